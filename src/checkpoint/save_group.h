// The ranks that write one checkpoint together. Owns: the interface through which their writing
// threads exchange small texts, and the group of one. Not: what they say (save_meeting.h), nor how
// texts travel between processes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tessera {

// Writers are the first ranks of the run: a rank's number in the group is its rank. All functions
// are for any thread. Keys are told once.
class SaveGroup {
 public:
  virtual ~SaveGroup() = default;
  virtual int rank() const = 0;  // 0 makes and shows the checkpoint
  virtual int writers() const = 0;

  virtual void tell(std::string_view key, std::string_view text) = 0;
  // Waits until some rank has told it, however long that takes. Error where that will never be: a
  // rank is gone, the job has failed. What was told before that is still heard.
  virtual std::string hear(std::string_view key) = 0;
  // Nobody will hear it again: its memory may be used for others.
  virtual void forget(std::string_view key) = 0;
};

// One writer, which has nobody to talk to.
std::unique_ptr<SaveGroup> make_single_save_group();

}  // namespace tessera
