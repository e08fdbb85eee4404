#include "launcher/launcher.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/host_name.h"
#include "base/machine.h"
#include "base/temporary_directory.h"
#include "base/text_format.h"
#include "launcher/attempt.h"
#include "launcher/host_addresses.h"
#include "launcher/rendezvous.h"
#include "store/store_server.h"

namespace tessera {
namespace {

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    throw Error(ErrorKind::kResource, "the system gives no random numbers for the job's secret");
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : raw) {
    text += kDigits[(static_cast<unsigned char>(c) >> 4) & 15];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<int> forwarded_signals(const LaunchOptions& options) {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1};
  signals.insert(signals.end(), options.signals.begin(), options.signals.end());
  return signals;
}

// Letters that a folder's name may have everywhere.
std::string file_name(const std::string& text) {
  std::string name;
  for (const char c : text) name += c == '/' || static_cast<unsigned char>(c) < 33 ? '_' : c;
  return name;
}

class Agent {
 public:
  Agent(const LaunchOptions& options, Log& log);
  LaunchResult run();

 private:
  void open_store();
  bool store_may_be_here() const;
  void host_store(const std::string& address);
  void share_processors();
  void reach_store();
  void make_rendezvous();
  bool interrupted();
  Path attempt_folder(const Membership& members, int restart);
  bool wait_before_restart(double seconds);
  LaunchResult result_of(const Verdict& verdict, const Attempt& attempt, const std::string& job);
  LaunchResult stopped_early();
  std::string job_name() const;

  LaunchOptions options_;
  Log& log_;
  SignalInbox inbox_;
  GroupGuardian guardian_;  // after the inbox, before any thread
  bool head_ = false;
  std::unique_ptr<StoreServer> server_;
  StorePlace store_;
  std::string secret_, unique_ = random_hex(8);
  std::optional<TemporaryDirectory> temporary_;
  std::unique_ptr<NodeLink> link_;
  std::unique_ptr<Rendezvous> rendezvous_;
  int stopped_by_ = 0;
};

Agent::Agent(const LaunchOptions& options, Log& log)
    : options_(options), log_(log), inbox_(forwarded_signals(options)) {
  secret_ = variable("TESSERA_JOB_SECRET");
  // Tells a checkpoint of this launch from an older one.
  options_.environment["TESSERA_LAUNCH_TIME"] =
      std::to_string(static_cast<std::int64_t>(seconds_since_epoch()));
  share_processors();
  if (options_.redirects.any() && options_.log_dir.empty()) {
    // What is sent to files must still be there at the end.
    options_.log_dir = std::filesystem::temp_directory_path() / ("tessera-logs-" + random_hex(4));
    log_.info("redirected output is in " + options_.log_dir.string());
  }
}

void Agent::share_processors() {
  if (variable("OMP_WAIT_POLICY").empty()) options_.environment["OMP_WAIT_POLICY"] = "passive";
  if (options_.bind_to_numa_nodes && !numa_processors(0, options_.local_ranks))
    log_.info("--numa-binding is without effect: this machine shows one NUMA node only");
  if (!variable("OMP_NUM_THREADS").empty()) return;
  const int processors = machine_facts().usable_processors();
  const int threads = thread_share(processors, options_.local_ranks);
  options_.environment["OMP_NUM_THREADS"] = std::to_string(threads);
  if (options_.local_ranks > 1) {
    log_.info(std::to_string(options_.local_ranks) + " ranks share " + std::to_string(processors) +
              " processors: OMP_NUM_THREADS=" + std::to_string(threads) +
              " for each (set it to choose)");
  }
}

bool Agent::store_may_be_here() const {
  if (options_.nodes.max == 1) return true;
  if (options_.node_rank) return *options_.node_rank == 0;
  const auto named = resolve(options_.endpoint_host);
  if (!options_.local_address.empty()) {
    const auto own = resolve(options_.local_address);
    return std::find_first_of(named.begin(), named.end(), own.begin(), own.end()) != named.end();
  }
  return std::any_of(named.begin(), named.end(), is_own_address);
}

void Agent::host_store(const std::string& address) {
  server_ = std::make_unique<StoreServer>(StoreServerOptions{address, options_.endpoint_port});
  head_ = true;
  store_ = {server_->address(), server_->port()};
}

void Agent::open_store() {
  if (options_.nodes.max == 1) {
    host_store("127.0.0.1");
    if (secret_.empty()) secret_ = random_hex(16);
    options_.environment["TESSERA_JOB_SECRET"] = secret_;
    return;
  }
  store_ = {options_.endpoint_host, options_.endpoint_port};
  if (!store_may_be_here()) return;
  const std::string address = options_.local_address.empty()
                                  ? listening_address(options_.endpoint_host)
                                  : resolve(options_.local_address).front();
  try {
    host_store(address);
  } catch (const Error& error) {
    if (options_.node_rank) throw;
    // As with torchrun, a second agent on the same host joins the first.
    log_.info(std::string(error.reason()) + "; joining the job whose store is there");
  }
}

// Waits for the store, wherever it is. Nodes with different secrets would never see each other: the
// plain cases are told at once.
void Agent::reach_store() {
  if (options_.nodes.max == 1) return;
  const std::string own = secret_.empty() ? "without" : "with";
  StoreClient::Options where{store_.host, store_.port, "/agent/" + options_.id + "/"};
  where.connect_timeout = std::chrono::milliseconds(500);
  if (head_) {
    StoreClient(where).set("secret", own);
    return;
  }
  std::optional<StoreClient> client;
  const auto start = std::chrono::steady_clock::now();
  bool told = false;
  while (!interrupted()) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > 2 && !std::exchange(told, true))
      log_.info("waiting for the store of the job at " + store_.host + ":" +
                std::to_string(store_.port));
    std::string why = "it knows no job '" + options_.id + "'";
    try {
      if (!client) client.emplace(where);
      const auto others = client->get("secret");
      if (others && *others != own) {
        throw Error(
            ErrorKind::kUsage,
            "the job runs " + *others + " a secret, and this node was started " + own + " one", {},
            "Set TESSERA_JOB_SECRET to the same value on every node, or on none.");
      }
      if (others) return;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kComm) throw;
      client.reset();
      why = error.reason();
    }
    if (waited.count() > options_.join_timeout_s) {
      throw Error(ErrorKind::kComm,
                  "the node that hosts the job's store did not answer within " +
                      format_fixed(options_.join_timeout_s, 0) + " s: " + why,
                  {},
                  "Start it there too, with the same --rdzv-id; check its address, its port and "
                  "the firewall.");
    }
    ::poll(nullptr, 0, 100);
  }
}

void Agent::make_rendezvous() {
  StoreClient::Options where;
  where.host = store_.host;
  where.port = store_.port;
  where.prefix = (secret_.empty() ? "" : secret_ + "/") + "/agent/" + options_.id + "/";
  Rendezvous::Options meeting;
  meeting.store = where;
  meeting.head = head_;
  meeting.nodes = options_.nodes;
  meeting.join_timeout_s = options_.join_timeout_s;
  meeting.last_call_s = options_.last_call_s;
  meeting.heartbeat_timeout_s = options_.heartbeat_timeout_s;
  meeting.token = random_hex(4);
  meeting.job = options_.id.empty() || options_.id == "none" ? "job-" + meeting.token : options_.id;
  meeting.self = {unique_, options_.local_address.empty() ? host_name() : options_.local_address,
                  options_.local_ranks, options_.node_rank.value_or(-1)};
  NodeLink::Options link;
  link.store = where;
  link.unique = unique_;
  link.head = head_;
  link.interval_s = options_.monitor_interval_s;
  link.heartbeat_timeout_s = options_.heartbeat_timeout_s;
  rendezvous_ = std::make_unique<Rendezvous>(
      std::move(meeting), [this] { return interrupted(); }, log_);
  link_ = std::make_unique<NodeLink>(std::move(link));
}

// While no rank runs, a stop signal ends the job; others concern nobody.
bool Agent::interrupted() {
  for (const int number : inbox_.take())
    if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT)
      stopped_by_ = number;
  return stopped_by_ != 0;
}

Path Agent::attempt_folder(const Membership& members, int restart) {
  Path folder = options_.log_dir;
  if (folder.empty()) {
    if (!temporary_) temporary_.emplace();
    folder = temporary_->path();
  }
  return folder / (file_name(members.job) + "_" + members.token) /
         ("attempt_" + std::to_string(restart));
}

bool Agent::wait_before_restart(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (interrupted()) return false;
    ::poll(nullptr, 0, 25);
  }
  return true;
}

LaunchResult Agent::stopped_early() {
  if (head_ && rendezvous_) {
    rendezvous_->end(128 + stopped_by_);
    ::poll(nullptr, 0, 300);  // for nodes that wait to read it
  }
  return {128 + stopped_by_, "",
          "stopped by " + signal_name(stopped_by_) +
              " while no rank was running. Run the same command again."};
}

std::string Agent::job_name() const {
  std::string name = Path(options_.command.front()).filename().string();
  if (options_.command.size() > 1) name += " " + options_.command[1];
  return name;
}

LaunchResult Agent::result_of(const Verdict& verdict, const Attempt& attempt,
                              const std::string& job) {
  LaunchResult result;
  result.exit_code = verdict.exit_code;
  if (attempt.killed_by() != 0) {
    result.cause =
        "stopped by a second signal: not saved since the last checkpoint. Run the same "
        "command again to resume from it.";
    return result;
  }
  if (verdict.failures.empty()) return result;
  result.summary = failure_summary(job, verdict.failures);
  result.cause = verdict.failures.front().cause();
  if (!result.cause.ends_with('.')) result.cause += '.';
  if (!verdict.remark.empty()) {
    result.cause += ' ';
    result.cause += static_cast<char>(::toupper(verdict.remark.front()));
    result.cause += verdict.remark.substr(1) + '.';
  }
  return result;
}

LaunchResult Agent::run() {
  open_store();
  reach_store();
  if (stopped_by_ != 0) return stopped_early();
  make_rendezvous();
  for (int restart = 0;; ++restart) {
    std::optional<Rendezvous::Outcome> found;
    try {
      found = rendezvous_->join();
    } catch (const Error& error) {
      if (head_ || error.kind() != ErrorKind::kComm) throw;
      throw Error(ErrorKind::kComm, "the nodes did not find together: " + error.reason(),
                  "store at " + store_.host + ":" + std::to_string(store_.port), error.remedy());
    }
    if (!found) return stopped_early();
    if (found->over) {
      log_.info("the job has ended without this node");
      return {*found->over, "", ""};
    }
    const Membership& members = found->members;
    restart = found->round;  // a node that came later counts as the others do
    if (options_.nodes.max > 1 && members.self == 0)
      log_.info(std::to_string(members.nodes.size()) + " nodes: " + members.text());
    link_->watch(found->round, members);
    const Path folder = attempt_folder(members, restart);
    if (!options_.log_dir.empty()) log_.detail("logs: " + folder.string());
    Attempt attempt({options_, members, store_, restart, folder}, inbox_, guardian_, *link_, log_);
    const Verdict verdict = attempt.run();
    if (verdict.action == AfterAttempt::kRestart) {
      log_.warning(verdict.failures.front().cause() + "; " + verdict.remark + " in " +
                   format_fixed(verdict.delay_s, verdict.delay_s < 1 ? 1 : 0) + " s");
      if (wait_before_restart(verdict.delay_s)) continue;
      return stopped_early();
    }
    if (head_) {
      link_->wait_until_heard();
      rendezvous_->end(verdict.exit_code);
    }
    return result_of(verdict, attempt, job_name());
  }
}

}  // namespace

LaunchResult launch(const LaunchOptions& options, Log& log) { return Agent(options, log).run(); }

}  // namespace tessera
