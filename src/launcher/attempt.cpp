#include "launcher/attempt.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kTurn{100};
// After the first rank has ended with "a peer is gone", the peer itself gets this long to be seen.
constexpr std::chrono::milliseconds kConsequenceWait{1000};
constexpr double kTermSeconds = 5;        // between SIGTERM and SIGKILL, after a failure
constexpr double kLastRanksSeconds = 30;  // for the others, when a rank has stopped as asked
constexpr std::chrono::seconds kKernelWait{3};
constexpr std::chrono::seconds kAnswerWait{15};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// A program that saves when it is asked to stop exits with these.
bool is_stop_code(int code) { return code == 128 + SIGINT || code == 128 + SIGTERM; }

bool asks_to_stop(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

}  // namespace

Attempt::Attempt(const Setting& setting, SignalInbox& inbox, GroupGuardian& guardian,
                 NodeLink& link, Log& log)
    : setting_(setting), inbox_(inbox), guardian_(guardian), link_(link), log_(log) {
  node_lost_.resize(setting.members.nodes.size(), false);
}

Verdict Attempt::run() {
  start_ranks();
  while (!verdict_) {
    wait_for_events();
    for (const int number : inbox_.take()) on_signal(number);
    collect();
    on_news();
    on_time();
    if (all_ended() && !reported_) report_end();
    if (killed_by_ != 0 && all_ended() && !verdict_) {
      verdict_ = Verdict();
      verdict_->exit_code = 128 + killed_by_;
      if (setting_.members.self == 0) link_.tell_verdict(to_json(*verdict_));
    }
  }
  relay_.finish();
  return *verdict_;
}

const std::string& Attempt::host(int node) const {
  return setting_.members.nodes[static_cast<std::size_t>(node)].host;
}

void Attempt::start_ranks() {
  for (int i = 0; i < setting_.options.local_ranks && !stopping_; ++i) {
    try {
      ranks_.push_back(std::make_unique<RankProcess>(spec_of(i), inbox_, guardian_));
    } catch (const Error& error) {
      RankFailure failure;
      failure.rank = setting_.members.first_rank(setting_.members.self) + i;
      failure.local_rank = i;
      failure.host = host(setting_.members.self);
      failure.process = -1;
      failure.exit_code = exit_code(error.kind());
      failure.time = seconds_since_epoch();
      failure.message = error.what();
      fail(failure);
    }
    for (const int descriptor : std::exchange(opened_, {})) ::close(descriptor);
  }
}

RankSpec Attempt::spec_of(int local_rank) {
  const LaunchOptions& options = setting_.options;
  RankSpec spec;
  spec.rank = setting_.members.first_rank(setting_.members.self) + local_rank;
  spec.local_rank = local_rank;
  spec.command = options.command;
  spec.environment =
      rank_environment(options, setting_.members, setting_.store, setting_.restart, local_rank);
  const Path folder = setting_.folder / std::to_string(spec.rank);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    throw Error(ErrorKind::kIo, "the folder for a rank's logs cannot be made: " + failed.message(),
                folder.string(), "Choose another one with --log-dir.");
  }
  spec.error_file = (folder / "error.json").string();
  spec.environment["TORCHELASTIC_ERROR_FILE"] = spec.error_file;
  spec.standard_output = stream_of(local_rank, 1, folder);
  spec.standard_error = stream_of(local_rank, 2, folder);
  // A rank is not in the terminal's foreground group: reading from it would stop it.
  spec.reads_input = local_rank == 0 && ::isatty(STDIN_FILENO) == 0;
  if (options.bind_to_numa_nodes)
    spec.processors = numa_processors(local_rank, options.local_ranks);
  return spec;
}

// The descriptor that a rank gets for stdout (1) or stderr (2).
int Attempt::stream_of(int local_rank, int stream, const Path& folder) {
  const LaunchOptions& options = setting_.options;
  const bool redirected = (options.redirects.of(local_rank) & stream) != 0;
  const bool teed = (options.tee.of(local_rank) & stream) != 0;
  const bool shown = !options.shown_local_ranks ||
                     std::find(options.shown_local_ranks->begin(), options.shown_local_ranks->end(),
                               local_rank) != options.shown_local_ranks->end();
  const bool first_rank_only = options.style == OutputStyle::kFirstRank && local_rank > 0;
  const bool has_file = redirected || (teed && !options.log_dir.empty());
  const bool on_console = shown && (teed || !redirected);
  if (on_console && !teed && !first_rank_only) return stream;  // the agent's own
  OutputRelay::Target target;
  if (on_console) {
    target.console = first_rank_only ? STDERR_FILENO : stream;
    target.prefix =
        "[rank " + std::to_string(setting_.members.first_rank(setting_.members.self) + local_rank) +
        "] ";
  }
  if (has_file) target.file = folder / (stream == 1 ? "stdout.log" : "stderr.log");
  opened_.push_back(relay_.add(target));
  return opened_.back();
}

void Attempt::wait_for_events() {
  pollfd polled[2] = {{inbox_.descriptor(), POLLIN, 0}, {link_.descriptor(), POLLIN, 0}};
  ::poll(polled, 2, static_cast<int>(kTurn.count()));
  link_.clear();
}

void Attempt::on_signal(int number) {
  if (!asks_to_stop(number)) {
    signal_all(number);
    return;
  }
  if (++stops_here_ == 1) {
    // Where it came by way of another node already, the ranks have it.
    if (asked_ != 0) return;
    ask(number);
    link_.tell_signal(number);
    return;
  }
  killed_by_ = number;
  killed_ = stopping_ = true;
  signal_all(SIGKILL);
  give_up_at_ = Clock::now() + kKernelWait;
  link_.tell_stop("a second " + signal_name(number) + " came to " + host(setting_.members.self));
}

// Every rank gets it once, and time to save.
void Attempt::ask(int number) {
  asked_ = number;
  signal_all(number);
  kill_at_ = std::min(kill_at_, Clock::now() + milliseconds(setting_.options.shutdown_timeout_s));
}

void Attempt::signal_all(int number) {
  for (const auto& rank : ranks_) rank->signal(number);
}

bool Attempt::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended(); });
}

void Attempt::collect() {
  for (const auto& rank : ranks_)
    if (rank->poll_end()) on_end(*rank);
}

void Attempt::on_end(const RankProcess& rank) {
  if (rank.good()) return;
  const int number = rank.end_signal(), code = rank.exit_code();
  const int as_shell = number != 0 ? 128 + number : code;
  if (killed_by_ != 0) return;
  if (asked_ != 0 && as_shell == 128 + asked_) {
    code_ = as_shell;
    kill_at_ = std::min(kill_at_, Clock::now() + milliseconds(kLastRanksSeconds));
    return;
  }
  if (asked_ != 0 && killed_ && number == SIGKILL) {
    log_.warning("rank " + std::to_string(rank.rank()) + " had not ended in time after " +
                 signal_name(asked_) + " and was killed: not saved since the last checkpoint");
    code_ = 128 + asked_;
    return;
  }
  // Ended by the agent itself, because another one had failed.
  if (stopping_ && (number == SIGTERM || as_shell == 128 + SIGTERM)) return;
  if (stopping_ && killed_ && number == SIGKILL) return;
  if (number == 0 && is_stop_code(code) && asked_ == 0) {
    // Ranks agree among themselves to stop: the others do the same in a moment.
    own_stop_ = code - 128;
    code_ = code;
    stop_at_ = std::min(stop_at_, Clock::now() + milliseconds(kLastRanksSeconds));
    return;
  }
  RankFailure failure;
  failure.rank = rank.rank();
  failure.local_rank = rank.local_rank();
  failure.host = host(setting_.members.self);
  failure.process = rank.process();
  failure.exit_code = code;
  failure.signal = number;
  failure.time = rank.end_time();
  if (const auto content = read_error_file(rank.error_file())) {
    failure.message = content->message;
    // The folder of these files ends with the job, unless the user has named one.
    if (!setting_.options.log_dir.empty()) failure.error_file = rank.error_file();
  }
  fail(failure);
}

void Attempt::fail(RankFailure failure) {
  const std::string cause = failure.cause();
  const bool consequence = failure.is_consequence();
  failures_.push_back(std::move(failure));
  if (stopping_) return;
  if (consequence && !all_ended()) {
    stop_at_ = std::min(stop_at_, Clock::now() + kConsequenceWait);
  } else {
    stop_ranks(cause);
  }
}

void Attempt::stop_ranks(const std::string& why) {
  if (std::exchange(stopping_, true)) return;
  link_.tell_stop(why);
  if (!all_ended()) log_.detail("stopping the other ranks of this node: " + why);
  signal_all(SIGTERM);
  const double seconds = std::min(kTermSeconds, setting_.options.shutdown_timeout_s);
  kill_at_ = std::min(kill_at_, Clock::now() + milliseconds(seconds));
  judge_at_ = Clock::now() + kAnswerWait;
}

void Attempt::on_time() {
  const Moment now = Clock::now();
  if (now >= stop_at_) {
    stop_at_ = kNever;
    stop_ranks(failures_.empty() ? "a rank has stopped, and others went on"
                                 : failures_.front().cause());
  }
  if (now >= kill_at_ && !all_ended()) {
    kill_at_ = kNever;
    killed_ = true;
    signal_all(SIGKILL);
    give_up_at_ = now + kKernelWait;
  }
  if (now < give_up_at_) return;
  give_up_at_ = kNever;
  for (const auto& rank : ranks_) {
    if (rank->ended()) continue;
    log_.warning("rank " + std::to_string(rank->rank()) + " (pid " +
                 std::to_string(rank->process()) +
                 ") does not end even by SIGKILL; its device or file system may hang");
    rank->give_up();
  }
}

void Attempt::on_news() {
  const NodeLink::News news = link_.news();
  if (news.signal != 0 && asked_ == 0) ask(news.signal);
  if (news.stop && !stopping_) stop_ranks(*news.stop);
  if (news.verdict && setting_.members.self != 0 && all_ended()) {
    verdict_ = verdict_from_json(*news.verdict);
    return;
  }
  if (!news.lost_head.empty() && !std::exchange(head_lost_, true)) {
    RankFailure failure;
    failure.host = host(0);
    failure.time = seconds_since_epoch();
    failure.message = "the node that hosts the job's store does not answer: " + news.lost_head;
    fail(failure);
  }
  if (head_lost_ && all_ended()) {
    verdict_ = judge({node_end()}, {});
    return;
  }
  if (setting_.members.self != 0) return;
  on_lost_nodes(news);
  if (reported_) judge_when_complete(news);
}

// Of the head: a node that gives no sign of life any more, or no answer.
void Attempt::on_lost_nodes(const NodeLink::News& news) {
  for (std::size_t i = 1; i < node_lost_.size(); ++i) {
    const bool answered = i < news.ends.size() && news.ends[i].has_value();
    const bool late = Clock::now() >= judge_at_;
    if (node_lost_[i] || answered || !(late || (i < news.lost.size() && news.lost[i]))) continue;
    node_lost_[i] = true;
    RankFailure failure;
    failure.rank = setting_.members.first_rank(static_cast<int>(i));
    failure.host = host(static_cast<int>(i));
    failure.time = seconds_since_epoch();
    failure.message = late ? "its node did not say that its ranks have been stopped"
                           : "its node gives no sign of life any more";
    const int ranks = setting_.members.nodes[i].local_ranks;
    if (ranks > 1) failure.message += ", with all of its " + std::to_string(ranks) + " ranks";
    fail(failure);
  }
}

NodeEnd Attempt::node_end() const { return {failures_, asked_ != 0 ? asked_ : own_stop_, code_}; }

void Attempt::report_end() {
  reported_ = true;
  link_.tell_end(to_json(node_end()));
}

void Attempt::judge_when_complete(const NodeLink::News& news) {
  std::vector<NodeEnd> ends = {node_end()};
  for (std::size_t i = 1; i < node_lost_.size(); ++i) {
    if (node_lost_[i]) continue;
    if (i >= news.ends.size() || !news.ends[i]) return;
    ends.push_back(node_end_from_json(*news.ends[i]));
  }
  verdict_ = judge(ends, {setting_.restart, setting_.options.max_restarts,
                          setting_.options.first_restart_delay_s});
  link_.tell_verdict(to_json(*verdict_));
}

}  // namespace tessera
