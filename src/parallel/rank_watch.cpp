#include "parallel/rank_watch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/host_name.h"
#include "store/store_client.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kBeat{250};
// A rank that has ended by itself says why within this time; it also bounds how long one that was
// told of a failure may take to notice it in its own collective.
constexpr milliseconds kGrace{4000};
constexpr milliseconds kLongestPause{50};  // between two questions for a value

// A sign of life: what a rank was doing when it last wrote.
struct Beat {
  std::int64_t count = 0;    // beats so far
  std::int64_t entered = 0;  // operations begun
  bool waiting = false;      // inside one
  bool done = false;
  std::string host, phase, operation;
};

std::string to_text(const Beat& beat) {
  return Json{{"count", beat.count},        {"entered", beat.entered}, {"waiting", beat.waiting},
              {"done", beat.done},          {"host", beat.host},       {"phase", beat.phase},
              {"operation", beat.operation}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Beat> to_beat(const std::optional<std::string>& text) {
  if (!text.has_value()) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return Beat{.count = json.value("count", std::int64_t{0}),
              .entered = json.value("entered", std::int64_t{0}),
              .waiting = json.value("waiting", false),
              .done = json.value("done", false),
              .host = json.value("host", ""),
              .phase = json.value("phase", ""),
              .operation = json.value("operation", "")};
}

std::string beat_key(int rank) { return "beat/" + std::to_string(rank); }

std::string name_of(int rank, const std::string& host) {
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " (host " + host + ")");
}

std::string last_seen(const Beat& beat) {
  std::string text = "at " + (beat.phase.empty() ? "its start" : beat.phase);
  if (beat.waiting) text += ", in " + beat.operation;
  return text;
}

}  // namespace

std::string store_prefix(const RankPlace& place) {
  return "/job/" + place.secret + "/" + place.job_id + "/" + std::to_string(place.restart) + "/";
}

struct RankWatch::State {
  State(Options given, const StoreClient::Options& where)
      : options(std::move(given)), store(where), thread_store(where) {}

  Options options;
  const std::string host = host_name();

  std::mutex store_mutex;  // guards `store`, used by the owner's threads
  StoreClient store;
  StoreClient thread_store;  // of the watch's thread alone

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  Beat mine;
  bool stopping = false;
  // Set by the watch's thread: the job has failed elsewhere.
  std::optional<Error> lost;

  // By rank, of the watch's thread: the last beat and when it changed.
  struct Seen {
    std::optional<Beat> beat;
    Clock::time_point changed = Clock::now();
  };
  std::vector<Seen> seen;
  std::optional<Clock::time_point> lost_since;
  Clock::time_point store_answered = Clock::now();
  bool told_owner = false;
  std::thread thread;

  int rank() const { return options.place.rank; }
  int world_size() const { return options.place.world_size; }

  void run();
  void beat_once();
  void look_at_others();
  void note_lost(const Error& error);
  void publish_failure(StoreClient& client, const Error& error, int rank);
  static Error failure_from(const std::string& text);
  std::optional<Error> failure(StoreClient& client);
  Error blame(std::vector<std::optional<Beat>> before, std::vector<std::optional<Beat>> after,
              const Error& error, std::span<const int> group);
  std::vector<std::optional<Beat>> beats(StoreClient& client);
};

void RankWatch::State::run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    lock.unlock();
    try {
      beat_once();
      look_at_others();
      store_answered = Clock::now();
    } catch (const Error& error) {
      // One lost request is no failure; a store that stays away is.
      if (Clock::now() - store_answered > options.heartbeat_timeout) {
        note_lost(Error(ErrorKind::kComm, "the job's store does not answer: " + error.reason(),
                        error.where(),
                        "The process that hosts it, or the way to its host, is gone."));
      }
    }
    const bool overdue =
        lost_since.has_value() && Clock::now() - *lost_since > kGrace && !told_owner;
    if (overdue && options.on_lost) {
      told_owner = true;
      options.on_lost(*lost);
    }
    lock.lock();
    changed.wait_for(lock, kBeat, [this] { return stopping; });
  }
}

void RankWatch::State::beat_once() {
  std::string text;
  {
    const std::lock_guard lock(mutex);
    ++mine.count;
    text = to_text(mine);
  }
  thread_store.set(beat_key(rank()), text);
}

void RankWatch::State::note_lost(const Error& error) {
  if (lost_since.has_value()) return;
  lost_since = Clock::now();
  const std::lock_guard lock(mutex);
  lost = error;
}

void RankWatch::State::look_at_others() {
  if (const auto failed = failure(thread_store)) {
    note_lost(*failed);
    return;
  }
  const int first = rank() == 0 ? 1 : 0, end = rank() == 0 ? world_size() : 1;
  std::vector<std::string> keys;
  for (int other = first; other < end; ++other) keys.push_back(beat_key(other));
  const auto texts = thread_store.get_all(keys);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const int other = first + static_cast<int>(i);
    Seen& seen_other = seen[static_cast<std::size_t>(other)];
    const std::optional<Beat> beat = to_beat(texts[i]);
    const bool alive =
        beat.has_value() && (!seen_other.beat.has_value() || beat->count != seen_other.beat->count);
    if (alive || (beat.has_value() && beat->done)) {
      seen_other.beat = beat;
      seen_other.changed = Clock::now();
    }
    // Who has never been seen may still be starting: meet() waits for it.
    const auto silent = Clock::now() - seen_other.changed;
    if (!seen_other.beat.has_value() || silent <= options.heartbeat_timeout) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silent).count();
    const Error gone(ErrorKind::kComm,
                     name_of(other, seen_other.beat->host) + " has given no sign of life for " +
                         std::to_string(seconds) + " s; last seen " + last_seen(*seen_other.beat),
                     {}, "Look at that host and at the rank's own output.");
    publish_failure(thread_store, gone, rank());
    note_lost(failure(thread_store).value_or(gone));
  }
}

void RankWatch::State::publish_failure(StoreClient& client, const Error& error, int of_rank) {
  const std::string text = Json{{"rank", of_rank},
                                {"host", host},
                                {"kind", static_cast<int>(error.kind())},
                                {"reason", error.reason()},
                                {"where", error.where()},
                                {"remedy", error.remedy()}}
                               .dump(-1, ' ', false, Json::error_handler_t::replace);
  client.compare_set("failure", "", text);
}

Error RankWatch::State::failure_from(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error(ErrorKind::kComm, "the job failed on another rank");
  const std::string reason = json.value("reason", "");
  // What one rank found out about another (kComm) names that one already.
  const bool own = json.value("kind", 0) != static_cast<int>(ErrorKind::kComm);
  return Error(
      ErrorKind::kComm,
      own ? name_of(json.value("rank", 0), json.value("host", "")) + " failed: " + reason : reason,
      json.value("where", ""), json.value("remedy", ""));
}

std::optional<Error> RankWatch::State::failure(StoreClient& client) {
  const auto text = client.get("failure");
  if (!text.has_value() || text->empty()) return std::nullopt;
  return failure_from(*text);
}

std::vector<std::optional<Beat>> RankWatch::State::beats(StoreClient& client) {
  std::vector<std::string> keys;
  for (int other = 0; other < world_size(); ++other) keys.push_back(beat_key(other));
  std::vector<std::optional<Beat>> result;
  for (const auto& text : client.get_all(keys)) result.push_back(to_beat(text));
  return result;
}

// Who is gone (no beat between two looks), else who of the group has begun fewer operations than
// this rank: others may be behind for reasons of their own.
Error RankWatch::State::blame(std::vector<std::optional<Beat>> before,
                              std::vector<std::optional<Beat>> after, const Error& error,
                              std::span<const int> group) {
  std::string gone, behind;
  std::int64_t entered = 0;
  {
    const std::lock_guard lock(mutex);
    entered = mine.entered;
  }
  const auto add = [](std::string& list, const std::string& text) {
    list += (list.empty() ? "" : "; ") + text;
  };
  for (int other = 0; other < world_size(); ++other) {
    const auto i = static_cast<std::size_t>(other);
    if (other == rank()) continue;
    if (!after[i].has_value()) {
      add(gone, name_of(other, "") + " has given no sign of life at all");
    } else if (!after[i]->done && before[i].has_value() && before[i]->count == after[i]->count) {
      add(gone, name_of(other, after[i]->host) + " is gone or stopped; last seen " +
                    last_seen(*after[i]));
    } else if (after[i]->entered < entered &&
               (group.empty() || std::ranges::find(group, other) != group.end())) {
      add(behind,
          name_of(other, after[i]->host) + " did not arrive; it is " + last_seen(*after[i]));
    }
  }
  const std::string& culprit = gone.empty() ? behind : gone;
  std::string here;
  {
    const std::lock_guard lock(mutex);
    here = "rank " + std::to_string(rank()) + " was at " +
           (mine.phase.empty() ? "its start" : mine.phase) + ", in " + mine.operation;
  }
  if (culprit.empty()) return Error(ErrorKind::kComm, error.reason(), here, error.remedy());
  return Error(ErrorKind::kComm, culprit, here,
               "Look at that rank's own output and host (" + error.reason() + ").");
}

RankWatch::RankWatch(Options options) {
  const RankPlace& place = options.place;
  StoreClient::Options where;
  where.host = place.store_host;
  where.port = place.store_port;
  where.prefix = store_prefix(place);
  where.timeout = milliseconds(4000);
  where.connect_timeout = options.connect_timeout;
  state_ = std::make_unique<State>(std::move(options), where);
  state_->seen.resize(static_cast<std::size_t>(state_->world_size()));
  state_->mine.host = state_->host;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void RankWatch::wait_for_all(milliseconds timeout,
                             const std::function<void(const std::string&)>& say) {
  const Clock::time_point start = Clock::now(), until = start + timeout;
  bool said = !say;
  while (true) {
    std::string missing;
    int count = 0;
    {
      const std::lock_guard lock(state_->store_mutex);
      const auto beats = state_->beats(state_->store);
      for (int other = 0; other < state_->world_size(); ++other) {
        if (beats[static_cast<std::size_t>(other)].has_value()) continue;
        if (++count <= 8) missing += (missing.empty() ? "" : ", ") + std::to_string(other);
      }
    }
    if (count == 0) return;
    if (!said && Clock::now() - start > milliseconds(3000)) {
      said = true;
      say("waiting for rank " + missing + (count > 8 ? ", …" : "") + " of " +
          std::to_string(state_->world_size()) + " ranks");
    }
    if (Clock::now() >= until) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout).count();
      throw Error(
          ErrorKind::kComm,
          std::to_string(count) + " of " + std::to_string(state_->world_size()) +
              " ranks have not come within " + std::to_string(seconds) + " s: rank " + missing +
              (count > 8 ? ", …" : ""),
          state_->options.place.store_host + ":" + std::to_string(state_->options.place.store_port),
          "Look whether they were started, and with the same MASTER_ADDR and MASTER_PORT.");
    }
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->lost.has_value()) throw Error(*state_->lost);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
}

void RankWatch::set_phase(std::string phase) {
  const std::lock_guard lock(state_->mutex);
  state_->mine.phase = std::move(phase);
}

void RankWatch::enter(std::string_view what) {
  const std::lock_guard lock(state_->mutex);
  ++state_->mine.entered;
  state_->mine.waiting = true;
  state_->mine.operation = what;
}

void RankWatch::leave() {
  const std::lock_guard lock(state_->mutex);
  state_->mine.waiting = false;
}

void RankWatch::tell(std::string_view key, std::string_view value) {
  const std::lock_guard lock(state_->store_mutex);
  state_->store.set("value/" + std::string(key), value);
}

std::string RankWatch::hear(std::string_view key) {
  const std::string name = "value/" + std::string(key);
  for (milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    {
      const std::lock_guard lock(state_->store_mutex);
      if (auto value = state_->store.get(name)) return *value;
    }
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->lost.has_value()) throw Error(*state_->lost);
    }
    std::this_thread::sleep_for(pause);  // other threads of this rank need the store meanwhile
  }
}

std::vector<std::string> RankWatch::exchange(std::string_view name, std::string_view value) {
  const std::string prefix = std::string(name) + "/";
  tell(prefix + std::to_string(state_->rank()), value);
  std::vector<std::string> values;
  for (int other = 0; other < state_->world_size(); ++other) {
    values.push_back(hear(prefix + std::to_string(other)));
  }
  return values;
}

void RankWatch::meet(std::string_view name) { exchange("meet/" + std::string(name), "here"); }

void RankWatch::report(const Error& error) noexcept {
  try {
    const std::lock_guard lock(state_->store_mutex);
    state_->publish_failure(state_->store, error, state_->rank());
  } catch (...) {
    // The store is gone as well: the others find that out by themselves.
  }
}

Error RankWatch::explain(const Error& error, std::span<const int> group) {
  try {
    const std::lock_guard lock(state_->store_mutex);
    const auto before = state_->beats(state_->store);
    const Clock::time_point until = Clock::now() + kGrace - milliseconds(1000);
    while (Clock::now() < until) {
      if (const auto failed = state_->failure(state_->store)) return *failed;
      std::this_thread::sleep_for(milliseconds(100));
    }
    const Error found = state_->blame(before, state_->beats(state_->store), error, group);
    state_->publish_failure(state_->store, found, state_->rank());
    return state_->failure(state_->store).value_or(found);
  } catch (const Error& store_error) {
    return Error(ErrorKind::kComm,
                 error.reason() + "; and the job's store does not answer: " + store_error.reason(),
                 store_error.where(), store_error.remedy());
  }
}

void RankWatch::finish() noexcept {
  try {
    std::string text;
    {
      const std::lock_guard lock(state_->mutex);
      state_->mine.done = true;
      text = to_text(state_->mine);
    }
    const std::lock_guard lock(state_->store_mutex);
    state_->store.set(beat_key(state_->rank()), text);
  } catch (...) {
    // Nobody is left who would miss this rank.
  }
}

}  // namespace tessera
