#include "launcher/node_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace

std::string round_key(int round, const std::string& name) {
  return "round/" + std::to_string(round) + "/" + name;
}

std::string beat_key(const std::string& unique) { return "beat/" + unique; }

struct NodeLink::State {
  Options options;
  int wake = -1;
  mutable std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  bool ending = false;
  int round = -1;
  Membership members;
  News news;
  bool heard_verdict = false;
  bool all_heard = false;
  std::vector<std::pair<std::string, std::string>> outbox;
  // The thread's own:
  std::optional<StoreClient> client;
  Clock::time_point next_beat;
  std::int64_t beats = 0;
  int tracked_round = -1;
  std::vector<std::pair<std::string, Clock::time_point>> seen;  // last beat of each node, and when
  std::thread thread;

  void run();
  void turn();
  void exchange(int of_round, const Membership& of_members);
  void look_after(const std::vector<std::optional<std::string>>& values,
                  const Membership& of_members, News& fresh);
  void connect(double timeout_s);
  bool is_ending() const;
};

bool NodeLink::State::is_ending() const {
  const std::lock_guard lock(mutex);
  return ending;
}

void NodeLink::State::connect(double timeout_s) {
  StoreClient::Options where = options.store;
  where.connect_timeout = milliseconds(timeout_s);
  where.timeout = milliseconds(options.heartbeat_timeout_s / 2);
  client.emplace(where);
}

void NodeLink::State::run() {
  // A request that fails may be tried once more on a new connection; both attempts together last no
  // longer than the heartbeat's timeout.
  while (!is_ending()) {
    try {
      if (!client) connect(options.heartbeat_timeout_s / 2);
      turn();
    } catch (const Error& error) {
      if (std::exchange(client, std::nullopt)) continue;
      const std::lock_guard lock(mutex);
      news.lost_head = error.reason();
      eventfd_write(wake, 1);
      return;
    }
    std::unique_lock lock(mutex);
    changed.wait_for(lock, milliseconds(options.interval_s),
                     [&] { return ending || !outbox.empty(); });
  }
  try {
    if (client) turn();  // what was said last
  } catch (const Error&) {
    return;  // nobody is there to hear it, and who leaves need not know
  }
}

void NodeLink::State::turn() {
  std::vector<std::pair<std::string, std::string>> letters;
  Membership now_members;
  int now_round = -1;
  {
    const std::lock_guard lock(mutex);
    letters = outbox;
    now_round = round;
    now_members = members;
  }
  for (const auto& [key, value] : letters) client->set(key, value);
  {
    const std::lock_guard lock(mutex);
    outbox.erase(outbox.begin(), outbox.begin() + static_cast<std::ptrdiff_t>(letters.size()));
  }
  if (Clock::now() >= next_beat) {
    client->set(beat_key(options.unique), std::to_string(++beats));
    next_beat = Clock::now() + milliseconds(std::min(1.0, options.heartbeat_timeout_s / 5));
  }
  if (now_round >= 0) exchange(now_round, now_members);
}

void NodeLink::State::exchange(int of_round, const Membership& of_members) {
  std::vector<std::string> keys = {round_key(of_round, "stop"), round_key(of_round, "signal"),
                                   round_key(of_round, "verdict"), round_key(of_round, "heard")};
  if (options.head) {
    for (std::size_t i = 0; i < of_members.nodes.size(); ++i) {
      keys.push_back(round_key(of_round, "end/" + std::to_string(i)));
      keys.push_back(beat_key(of_members.nodes[i].unique));
    }
  }
  const auto values = client->get_all(keys);
  bool hear_now = false;
  {
    const std::lock_guard lock(mutex);
    if (round != of_round) return;  // meanwhile another one is watched
    const News before = news;
    news.stop = values[0];
    news.signal = values[1] ? std::atoi(values[1]->c_str()) : 0;
    news.verdict = values[2];
    if (options.head) look_after(values, of_members, news);
    const std::int64_t heard = values[3] ? std::atoll(values[3]->c_str()) : 0;
    const auto lost = std::count(news.lost.begin(), news.lost.end(), true);
    all_heard = heard + lost + 1 >= static_cast<std::int64_t>(of_members.nodes.size());
    if (all_heard) changed.notify_all();
    hear_now = news.verdict && !options.head && !std::exchange(heard_verdict, true);
    if (news.stop != before.stop || news.signal != before.signal ||
        news.verdict != before.verdict || news.ends != before.ends || news.lost != before.lost)
      eventfd_write(wake, 1);
  }
  if (hear_now) client->add(round_key(of_round, "heard"), 1);
}

void NodeLink::State::look_after(const std::vector<std::optional<std::string>>& values,
                                 const Membership& of_members, News& fresh) {
  const Clock::time_point now = Clock::now();
  if (tracked_round != round) {
    tracked_round = round;
    seen.assign(of_members.nodes.size(), {"", now});
  }
  fresh.ends.resize(of_members.nodes.size());
  fresh.lost.resize(of_members.nodes.size(), false);
  for (std::size_t i = 0; i < of_members.nodes.size(); ++i) {
    fresh.ends[i] = values[4 + 2 * i];
    const std::string beat = values[5 + 2 * i].value_or("");
    if (beat != seen[i].first) seen[i] = {beat, now};
    if (static_cast<int>(i) != of_members.self &&
        now - seen[i].second > milliseconds(options.heartbeat_timeout_s))
      fresh.lost[i] = true;  // for good: what it does later is too late for this round
  }
}

NodeLink::NodeLink(Options options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state_->wake < 0) {
    throw Error(ErrorKind::kResource,
                std::string("the agent cannot be woken: ") + std::strerror(errno));
  }
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

NodeLink::~NodeLink() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
  ::close(state_->wake);
}

void NodeLink::watch(int round, const Membership& members) {
  const std::lock_guard lock(state_->mutex);
  state_->round = round;
  state_->members = members;
  const std::string lost_head = state_->news.lost_head;
  state_->news = News();
  state_->news.lost_head = lost_head;
  state_->heard_verdict = state_->all_heard = false;
}

void NodeLink::tell_stop(const std::string& why) {
  const std::lock_guard lock(state_->mutex);
  state_->outbox.emplace_back(round_key(state_->round, "stop"), why);
  state_->changed.notify_all();
}

void NodeLink::tell_signal(int number) {
  const std::lock_guard lock(state_->mutex);
  state_->outbox.emplace_back(round_key(state_->round, "signal"), std::to_string(number));
  state_->changed.notify_all();
}

void NodeLink::tell_end(const std::string& node_end) {
  const std::lock_guard lock(state_->mutex);
  state_->outbox.emplace_back(
      round_key(state_->round, "end/" + std::to_string(state_->members.self)), node_end);
  state_->changed.notify_all();
}

void NodeLink::tell_verdict(const std::string& verdict) {
  const std::lock_guard lock(state_->mutex);
  state_->outbox.emplace_back(round_key(state_->round, "verdict"), verdict);
  state_->changed.notify_all();
}

void NodeLink::wait_until_heard() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::seconds(3),
                           [&] { return state_->all_heard || !state_->news.lost_head.empty(); });
}

NodeLink::News NodeLink::news() const {
  const std::lock_guard lock(state_->mutex);
  return state_->news;
}

int NodeLink::descriptor() const { return state_->wake; }

void NodeLink::clear() {
  eventfd_t ignored;
  eventfd_read(state_->wake, &ignored);
}

}  // namespace tessera
