// One attempt: the ranks of this node from their start to their end, and what all nodes make of it.
// Owns: when ranks are stopped and killed, what counts as a failure. Not: who takes part
// (rendezvous.h), restarts (launcher.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "launcher/launch_options.h"
#include "launcher/membership.h"
#include "launcher/node_link.h"
#include "launcher/output_relay.h"
#include "launcher/rank_environment.h"
#include "launcher/rank_failure.h"
#include "launcher/rank_process.h"

namespace tessera {

class Attempt {
 public:
  struct Setting {
    const LaunchOptions& options;
    const Membership& members;
    StorePlace store;
    int restart = 0;
    Path folder;  // of this attempt, for error files and logs: FOLDER/RANK/…
  };
  Attempt(const Setting& setting, SignalInbox& inbox, GroupGuardian& guardian, NodeLink& link,
          Log& log);

  // To the verdict, which every node of the job gets.
  Verdict run();
  // The signal that came a second time and ended the ranks at once; 0: none did.
  int killed_by() const { return killed_by_; }
  // The stop signal that was passed on to the ranks; 0: none was.
  int asked_signal() const { return asked_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Moment = Clock::time_point;
  static constexpr Moment kNever = Moment::max();

  void start_ranks();
  RankSpec spec_of(int local_rank);
  int stream_of(int local_rank, int stream, const Path& folder);
  void wait_for_events();
  void on_signal(int number);
  void ask(int number);
  void collect();
  void on_end(const RankProcess& rank);
  void fail(RankFailure failure);
  void stop_ranks(const std::string& why);
  void on_time();
  void on_news();
  void on_lost_nodes(const NodeLink::News& news);
  void signal_all(int number);
  bool all_ended() const;
  void report_end();
  void judge_when_complete(const NodeLink::News& news);
  NodeEnd node_end() const;
  const std::string& host(int node) const;

  Setting setting_;
  SignalInbox& inbox_;
  GroupGuardian& guardian_;
  NodeLink& link_;
  Log& log_;
  OutputRelay relay_;
  std::vector<int> opened_;  // descriptors for children's streams, closed after the start
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<RankFailure> failures_;
  std::vector<bool> node_lost_;
  std::optional<Verdict> verdict_;
  int asked_ = 0;       // a stop signal that was forwarded
  int own_stop_ = 0;    // a rank stopped of its own accord, as after this signal
  int stops_here_ = 0;  // stop signals that came to this agent
  int killed_by_ = 0;
  int code_ = 0;  // 128 + signal of the ranks that stopped
  bool stopping_ = false, killed_ = false, reported_ = false, head_lost_ = false;
  Moment stop_at_ = kNever;     // SIGTERM
  Moment kill_at_ = kNever;     // SIGKILL
  Moment give_up_at_ = kNever;  // a process that does not leave the kernel
  Moment judge_at_ = kNever;    // nodes that have not answered by then count as lost
};

}  // namespace tessera
