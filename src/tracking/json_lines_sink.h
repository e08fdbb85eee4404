// Events as JSON lines (docs/metrics.md): DIR/metrics.jsonl, and stdout for --json. Each line is
// one write, so that a reader or a second process never sees two halves mixed.
#pragma once

#include <memory>
#include <string>

#include "base/file_system.h"
#include "tracking/tracker.h"

namespace tessera {

// One line without its newline; empty for an event that is not stored (ProgressEvent). A number
// that is not finite and a value that is not known are null. Bytes that are not UTF-8 are replaced.
std::string to_json_line(const Event& event);

class JsonLinesSink final : public Sink {
 public:
  // Appends to a file, which is made if it is not there. If its last line is torn (a killed
  // process), the first event starts on a new line. Error{kIo}.
  static std::unique_ptr<JsonLinesSink> append_to(const Path& path);
  // Writes to an open stream that stays the caller's, such as stdout (1).
  static std::unique_ptr<JsonLinesSink> to_descriptor(int file_descriptor, std::string name);

  ~JsonLinesSink() override;
  std::string_view name() const override { return name_; }
  void on(const Event& event) override;  // Error{kIo}

 private:
  JsonLinesSink(int file_descriptor, bool owned, std::string name);
  int file_descriptor_;
  bool owned_;
  std::string name_;
};

}  // namespace tessera
