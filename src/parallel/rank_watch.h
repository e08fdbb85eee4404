// How ranks notice that another one is gone, and say which. Owns: this rank's sign of life in the
// job's store, the record of what it is doing, the first failure of the job, and small values that
// ranks tell each other beside the collectives. Not: the collectives (Communicator), nor ending the
// process (the owner is told).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/rank_place.h"
#include "parallel/communicator.h"
#include "parallel/rank_group.h"

namespace tessera {

// Where keys of this job and attempt lie in the store: strangers do not know the secret, and an
// earlier attempt's addresses are never read again.
std::string store_prefix(const RankPlace& place);

// A thread of its own writes a sign of life four times a second, and reads those of others: rank 0
// of all, the others of rank 0. All functions are for any thread; those that may wait say so.
class RankWatch {
 public:
  struct Options {
    RankPlace place;
    // A rank without a sign of life for so long counts as gone.
    std::chrono::milliseconds heartbeat_timeout{30000};
    std::chrono::milliseconds connect_timeout{60000};  // to reach the store
    // Called once, on the watch's thread, when the job has failed elsewhere and this process has
    // not ended by itself a few seconds later: it hangs in a wait for somebody who is gone.
    std::function<void(const Error&)> on_lost;
  };

  // Waits until the store answers; Error{kComm}.
  explicit RankWatch(Options options);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Waits until every rank has given a sign of life; from then on none may be silent. Error{kComm}
  // that names those who have not come in time. `say` is told once who is waited for, if that takes
  // more than a moment.
  void wait_for_all(std::chrono::milliseconds timeout,
                    const std::function<void(const std::string&)>& say = {});
  // What this rank is doing, for messages of others: "step 7", "evaluation at step 20".
  void set_phase(std::string phase);
  // Around an operation that waits for others; `what`: "all_reduce, gradients of h.3".
  void enter(std::string_view what);
  void leave();

  // Values that ranks tell each other. Keys are of this job and attempt.
  void tell(std::string_view key, std::string_view value);
  // Waits until somebody has told it, however long that takes; Error{kComm} when the job has failed
  // meanwhile, naming the rank.
  std::string hear(std::string_view key);
  // Waits until all ranks are here; `name` is used once.
  void meet(std::string_view name);
  // One value of each rank, by rank. Waits for all; `name` is used once.
  std::vector<std::string> exchange(std::string_view name, std::string_view value);

  // This rank has failed: tells the others, who then end too. Never throws. Where another failure
  // came first, that one stays.
  void report(const Error& error) noexcept;
  // `error` came from a collective: finds out, in a few seconds, why. Returns an Error{kComm} that
  // names the rank that failed, is gone, or did not arrive, and where it was last seen; and reports
  // it, so that all ranks say the same. `group`: the ranks that the collective was waiting for;
  // empty: all.
  Error explain(const Error& error, std::span<const int> group = {});
  // This rank is done: nobody shall miss it.
  void finish() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The communicator, with each operation in the watch's record, and errors explained by it. During
// the first operations all ranks compare what they are about to do: Error{kInternal} that names the
// rank that does something else. `device`: where the communicator's tensors lie;
// `checked_operations`: how many; `group`: the communicator's ranks, where it is not the world's.
std::unique_ptr<Communicator> make_watched_communicator(std::unique_ptr<Communicator> communicator,
                                                        RankWatch& watch, at::Device device,
                                                        int checked_operations,
                                                        const RankGroup& group = {});

}  // namespace tessera
