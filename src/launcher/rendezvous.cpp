#include "launcher/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text_format.h"
#include "launcher/node_link.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kRound = "round";
constexpr const char* kOver = "over";

bool passed(Clock::time_point since, double seconds) {
  return std::chrono::duration<double>(Clock::now() - since).count() >= seconds;
}

std::string count_text(std::size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

Rendezvous::Rendezvous(Options options, std::function<bool()> interrupted, Log& log)
    : options_(std::move(options)), interrupted_(std::move(interrupted)), log_(log) {}

bool Rendezvous::pause() const {
  for (int i = 0; i < 2; ++i) {
    if (interrupted_()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  return true;
}

std::optional<Rendezvous::Outcome> Rendezvous::join() {
  if (!client_) client_.emplace(options_.store);
  return options_.head ? lead() : follow();
}

void Rendezvous::end(int exit_code) { client_->set(kOver, std::to_string(exit_code)); }

// Those that have registered for this round and give a sign of life.
std::vector<NodeInfo> Rendezvous::present_nodes() {
  const auto joined = client_->get(round_key(round_, "joined"));
  const std::size_t count = joined ? std::strtoul(joined->c_str(), nullptr, 10) : 0;
  while (registered_.size() < count) {
    const auto text =
        client_->get(round_key(round_, "node/" + std::to_string(registered_.size() + 1)));
    if (!text) break;  // it has its number, and will write in a moment
    registered_.push_back(node_info_from_json(*text));
  }
  std::vector<std::string> keys;
  for (const NodeInfo& node : registered_) keys.push_back(beat_key(node.unique));
  std::vector<NodeInfo> nodes = {options_.self};
  if (keys.empty()) return nodes;
  const auto values = client_->get_all(keys);
  for (std::size_t i = 0; i < registered_.size(); ++i) {
    Beat& beat = beats_.try_emplace(registered_[i].unique, Beat{"", Clock::now()}).first->second;
    if (values[i].value_or("") != beat.value) beat = {values[i].value_or(""), Clock::now()};
    if (!passed(beat.changed, options_.heartbeat_timeout_s)) nodes.push_back(registered_[i]);
  }
  return nodes;
}

void Rendezvous::refuse(const std::string& why, const std::string& remedy) {
  const Error error(ErrorKind::kComm, why, {}, remedy);
  client_->set(round_key(round_, "members"), refusal_json(error.what()));
  client_->set(kOver, "5");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for the others to read it
  throw error;
}

bool Rendezvous::enough(std::size_t count) {
  if (count >= static_cast<std::size_t>(options_.nodes.max)) return true;
  if (count < static_cast<std::size_t>(options_.nodes.min)) {
    last_call_ = false;
    return false;
  }
  if (!std::exchange(last_call_, true)) enough_since_ = Clock::now();
  return passed(enough_since_, options_.last_call_s);
}

void Rendezvous::check(const std::vector<NodeInfo>& nodes) const {
  std::map<int, std::string> ranks;
  for (const NodeInfo& node : nodes) {
    if (node.node_rank < 0) continue;
    const auto [other, is_new] = ranks.emplace(node.node_rank, node.host);
    if (!is_new) {
      throw Error(ErrorKind::kComm,
                  "two nodes have the node rank " + std::to_string(node.node_rank) + ": " +
                      other->second + " and " + node.host,
                  {}, "Give each node a --node-rank of its own.");
    }
  }
}

std::optional<Rendezvous::Outcome> Rendezvous::lead() {
  ++round_;
  registered_.clear();
  last_call_ = false;
  begun_ = Clock::now();
  client_->set(kRound, std::to_string(round_));
  bool told = false;
  for (;;) {
    std::vector<NodeInfo> nodes = present_nodes();
    try {
      check(nodes);
    } catch (const Error& error) {
      refuse(error.reason(), error.remedy());
    }
    if (enough(nodes.size())) {
      nodes.resize(std::min(nodes.size(), static_cast<std::size_t>(options_.nodes.max)));
      order_nodes(nodes, options_.self.unique);
      Outcome outcome;
      outcome.round = round_;
      outcome.members = {options_.job, options_.token, std::move(nodes), 0};
      client_->set(round_key(round_, "members"), to_json(outcome.members));
      return outcome;
    }
    const bool waiting = nodes.size() < static_cast<std::size_t>(options_.nodes.min);
    if (waiting && passed(begun_, options_.join_timeout_s)) {
      std::string hosts;
      for (const NodeInfo& node : nodes) hosts += (hosts.empty() ? "" : ", ") + node.host;
      refuse("only " + count_text(nodes.size(), "node") + " of at least " +
                 std::to_string(options_.nodes.min) + " came within " +
                 format_fixed(options_.join_timeout_s, 0) + " s: " + hosts,
             "Check that the others were started with the same --rdzv-id, --rdzv-endpoint and "
             "TESSERA_JOB_SECRET.");
    }
    if (waiting && passed(begun_, 2) && !std::exchange(told, true)) {
      log_.info(
          "waiting for " +
          count_text(static_cast<std::size_t>(options_.nodes.min) - nodes.size(), "more node") +
          ", " + format_fixed(options_.join_timeout_s, 0) + " s at most");
    }
    if (!pause()) return std::nullopt;
  }
}

std::optional<Rendezvous::Outcome> Rendezvous::follow() {
  int registered_round = -1;
  bool told = false;
  for (;;) {
    if (const auto over = client_->get(kOver)) {
      // A refusal of the round that this node waits for tells its reason.
      const auto members = registered_round < 0
                               ? std::nullopt
                               : client_->get(round_key(registered_round, "members"));
      if (members) membership_from_json(*members);
      return Outcome{{}, round_, std::atoi(over->c_str())};
    }
    const auto text = client_->get(kRound);
    const int current = text ? std::atoi(text->c_str()) : -1;
    if (current > round_ || (registered_round == current && current >= 0)) {
      const auto members_text = client_->get(round_key(current, "members"));
      if (members_text) {
        Membership members = membership_from_json(*members_text);
        round_ = current;
        for (std::size_t i = 0; i < members.nodes.size(); ++i) {
          if (members.nodes[i].unique != options_.self.unique) continue;
          members.self = static_cast<int>(i);
          return Outcome{members, current, std::nullopt};
        }
        registered_round = -1;
        if (!std::exchange(told, true))
          log_.info("the job runs already; this node is taken at its next restart");
      } else if (registered_round != current) {
        const auto number = client_->add(round_key(current, "joined"), 1);
        client_->set(round_key(current, "node/" + std::to_string(number)), to_json(options_.self));
        registered_round = current;
      }
    }
    if (!pause()) return std::nullopt;
  }
}

}  // namespace tessera
