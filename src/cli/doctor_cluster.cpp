#include "cli/doctor_cluster.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/host_name.h"
#include "base/node_list.h"
#include "cli/cluster_report.h"
#include "cli/doctor_report.h"
#include "cli/node_answer.h"
#include "launcher/host_addresses.h"
#include "store/socket.h"
#include "store/store_client.h"
#include "store/store_server.h"

namespace tessera::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kAskTime{3};       // of one node by another
constexpr seconds kFindingTime{20};  // for all that one node looks for
constexpr seconds kFarewell{3};      // for others to read the verdict before its store ends
// Network file systems show a new file a little later elsewhere.
constexpr seconds kSeeTime{5};

std::string hash_of(const Path& file) {
  ContentHash hash;
  hash.update(MappedFile(file).bytes());
  return hash.digest();
}

std::string random_token() {
  std::random_device device;
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += std::to_string(device()) + " ";
  return content_hash(bytes);
}

std::string interface_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    const sockaddr* at = entry->ifa_addr;
    if (at == nullptr || (at->sa_family != AF_INET && at->sa_family != AF_INET6)) continue;
    char text[NI_MAXHOST];
    const socklen_t size = at->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(at, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
        address == text)
      name = entry->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

NodeFacts node_facts(const RankPlace& place, const Path& folder) {
  // Loads the engine in a child process: it must come before any thread.
  const DoctorReport report = collect_report(/*measure=*/false);
  NodeFacts node;
  node.rank = place.rank;
  node.host = host_name();
  node.version = report.version;
  node.program = report.program.string();
  node.program_hash = hash_of(report.program);
  node.engine = report.engine.string();
  if (report.engine.empty()) {
    node.engine_failure =
        "it is not there (looked for " + report.engine_candidates.front().string() + ")";
  } else {
    node.engine_hash = hash_of(report.engine);
    node.engine_failure = report.probe.facts ? "" : report.probe.failure;
  }
  node.torch_version =
      report.probe.facts ? report.probe.facts->torch_version : report.torch_version;
  if (report.probe.facts) node.torch_library = report.probe.facts->torch_library;
  node.processors = report.machine.usable_processors();
  node.memory_bytes = report.machine.memory_bytes;
  node.gpus = report.machine.gpus;
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    node.shm_bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    node.shm_free_bytes = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  }
  node.token = random_token();
  node.folder = folder.string();
  return node;
}

Path mark_of(const NodeFacts& node) {
  return Path(node.folder) / (".tessera-doctor-" + node.token.substr(0, 16));
}

// This node's mark in the folder, for as long as others look for it.
class Mark {
 public:
  Mark(FileSystem& files, NodeFacts& node) : files_(files), path_(mark_of(node)) {
    try {
      const auto file = files.create(path_);
      file->write(node.token);
      file->close();
    } catch (const Error& error) {
      node.folder_failure = error.reason();
    }
  }
  ~Mark() {
    try {
      files_.remove_all(path_);
    } catch (const Error&) {
      // A file of 32 bytes stays; the folder's own fault has been reported.
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  FileSystem& files_;
  const Path path_;
};

bool sees_mark(FileSystem& files, const NodeFacts& mine, const NodeFacts& other) {
  const Path path = Path(mine.folder) / mark_of(other).filename();
  const auto deadline = steady_clock::now() + kSeeTime;
  while (true) {
    try {
      if (files.exists(path) && files.read(path) == other.token) return true;
    } catch (const Error&) {
      // Not yet, or not ever: the same to the one who asks.
    }
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(100));
  }
}

NodeFindings look_around(const NodeFacts& mine, const std::vector<NodeFacts>& nodes,
                         FileSystem& files) {
  NodeFindings findings;
  findings.rank = mine.rank;
  const auto end = steady_clock::now() + kFindingTime;
  for (const NodeFacts& other : nodes) {
    const auto deadline = std::min(end, steady_clock::now() + kAskTime);
    const AskedNode asked = ask_node(other.address, other.port, other.token, deadline);
    if (!asked.failure.empty()) {
      findings.unreached.push_back(other.rank);
      findings.reasons.push_back(asked.failure);
    } else if (other.rank == nodes.front().rank) {
      findings.round_trip_s = asked.round_trip_s;
      findings.clock_ahead_s = -asked.clock_ahead_s;
    }
  }
  // Everybody looks for the first node's mark, and that one for everybody's.
  for (const NodeFacts& other : nodes) {
    const bool mine_to_look = mine.rank == nodes.front().rank || other.rank == nodes.front().rank;
    if (!mine_to_look || !mine.folder_failure.empty() || !other.folder_failure.empty()) continue;
    if (!sees_mark(files, mine, other)) findings.unseen.push_back(other.rank);
  }
  return findings;
}

std::string key(const char* name, int rank) {
  return std::string(name) + "/" + std::to_string(rank);
}

// What is left of the time, so that one missing rank does not take it for each.
milliseconds left_until(steady_clock::time_point deadline) {
  return std::max(milliseconds(0),
                  std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()));
}

// The launcher's list of nodes, less those that were heard of.
std::vector<std::string> silent_hosts(const std::vector<std::string>& heard) {
  const Environment environment = process_environment();
  auto list = environment("SLURM_STEP_NODELIST");
  if (!list) list = environment("SLURM_JOB_NODELIST");
  if (!list) return {};
  std::vector<std::string> silent;
  for (const std::string& host : parse_node_list(*list)) {
    const auto same = [&host](const std::string& name) {
      return name == host || name.starts_with(host + ".") || host.starts_with(name + ".");
    };
    if (std::none_of(heard.begin(), heard.end(), same)) silent.push_back(host);
  }
  return silent;
}

class Check {
 public:
  Check(const RankPlace& place, const ClusterCheck& check)
      : place_(place), check_(check), files_(make_posix_file_system()) {}

  int run() {
    const bool speaks = place_.local_rank == 0;
    NodeFacts mine;
    if (speaks) mine = node_facts(place_, check_.folder);
    host_store();
    StoreClient store(store_options());
    store.set(key("here", place_.rank), host_name());
    std::optional<NodeAnswer> answer;
    std::optional<Mark> mark;
    if (speaks) {
      mine.address = store.local_address();
      mine.interface = interface_of(mine.address);
      answer.emplace(mine.address, mine.token);
      mine.port = answer->port();
      mark.emplace(*files_, mine);
      store.set(key("facts", place_.rank), to_json(mine));
    } else {
      store.set(key("facts", place_.rank), "");
    }
    if (place_.rank == 0) return lead(store, mine);
    if (speaks) follow(store, mine);
    const auto verdict = store.wait("verdict", check_.timeout + kFindingTime + kSeeTime * 2);
    if (!verdict) throw_lost();
    store.set(key("bye", place_.rank), "");
    return std::atoi(verdict->c_str());
  }

 private:
  void host_store() {
    if (place_.rank != 0 || place_.store_is_hosted) return;
    StoreServerOptions options;
    if (!place_.alone()) options = {.address = place_.store_host, .port = place_.store_port};
    server_ = std::make_unique<StoreServer>(options);
  }

  StoreClient::Options store_options() const {
    StoreClient::Options options;
    options.host = server_ ? server_->address() : place_.store_host;
    options.port = server_ ? server_->port() : place_.store_port;
    options.connect_timeout = check_.timeout;
    options.prefix = "/doctor/" + place_.secret + "/" + place_.job_id + "/" +
                     std::to_string(place_.restart) + "/";
    return options;
  }

  void follow(StoreClient& store, const NodeFacts& mine) const {
    const auto count = store.wait("nodes", check_.timeout + kFarewell);
    if (!count) throw_lost();
    std::vector<NodeFacts> nodes;
    for (int i = 0; i < std::atoi(count->c_str()); ++i) {
      const auto text = store.get(key("node", i));
      if (text) nodes.push_back(parse_node_facts(*text));
    }
    store.set(key("findings", place_.rank), to_json(look_around(mine, nodes, *files_)));
  }

  int lead(StoreClient& store, const NodeFacts& mine) {
    ClusterReport report;
    report.launched_by = to_string(place_.launched_by);
    report.store = store_options().host + ":" + std::to_string(store_options().port);
    report.ranks = place_.world_size;
    gather_facts(store, report);
    for (std::size_t i = 0; i < report.facts.size(); ++i)
      store.set(key("node", static_cast<int>(i)), to_json(report.facts[i]));
    store.set("nodes", std::to_string(report.facts.size()));
    report.findings.push_back(look_around(mine, report.facts, *files_));
    const auto deadline = steady_clock::now() + kFindingTime + kSeeTime;
    for (const NodeFacts& node : report.facts) {
      if (node.rank == 0) continue;
      const auto text = store.wait(key("findings", node.rank), left_until(deadline));
      if (text) report.findings.push_back(parse_node_findings(*text));
    }
    report.problems = find_cluster_problems(report);
    const std::string text = check_.json ? cluster_json(report) + "\n" : cluster_text(report);
    std::fwrite(text.data(), 1, text.size(), stdout);
    const int code = report.exit_code();
    store.set("verdict", std::to_string(code));
    const auto farewell = steady_clock::now() + kFarewell;
    for (int rank = 1; rank < place_.world_size; ++rank)
      (void)store.wait(key("bye", rank), left_until(farewell));
    return code;
  }

  void gather_facts(StoreClient& store, ClusterReport& report) const {
    const auto deadline = steady_clock::now() + check_.timeout;
    std::vector<std::string> hosts;
    for (int rank = 0; rank < place_.world_size; ++rank) {
      const auto text = store.wait(key("facts", rank), left_until(deadline));
      if (!text) {
        report.missing_ranks.push_back(rank);
        continue;
      }
      hosts.push_back(store.get(key("here", rank)).value_or(""));
      if (!text->empty()) report.facts.push_back(parse_node_facts(*text));
    }
    for (const NodeFacts& node : report.facts)
      report.ranks_of_node.push_back(
          static_cast<int>(std::count(hosts.begin(), hosts.end(), node.host)));
    report.nodes = std::max(place_.nodes, static_cast<int>(report.facts.size()));
    if (!report.missing_ranks.empty()) report.missing_hosts = silent_hosts(hosts);
  }

  [[noreturn]] void throw_lost() const {
    throw Error(ErrorKind::kComm, "rank 0 was not heard of in time",
                "rank " + std::to_string(place_.rank) + " on " + host_name(),
                "Look at the output of rank 0.");
  }

  const RankPlace& place_;
  const ClusterCheck& check_;
  const std::unique_ptr<FileSystem> files_;
  std::unique_ptr<StoreServer> server_;
};

}  // namespace

int check_cluster(const RankPlace& place, const ClusterCheck& check) {
  return Check(place, check).run();
}

}  // namespace tessera::cli
