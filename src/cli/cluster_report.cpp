#include "cli/cluster_report.h"

#include <algorithm>
#include <cmath>

#include "base/text_format.h"

namespace tessera::cli {
namespace {

constexpr int kNotReached = 5, kNotShared = 4, kDiffers = 1;
constexpr double kClockLimit_s = 1.0;
// Ranks of a host exchange gradients through segments there.
constexpr std::uint64_t kLeastSharedMemory = std::uint64_t{64} << 20;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string joined(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return joined(words);
}

const NodeFacts* node_of_rank(const ClusterReport& report, int rank) {
  for (const NodeFacts& node : report.facts) {
    if (node.rank == rank) return &node;
  }
  return nullptr;
}

std::string host_of_rank(const ClusterReport& report, int rank) {
  const NodeFacts* node = node_of_rank(report, rank);
  return node != nullptr ? node->host : "rank " + std::to_string(rank);
}

void find_missing(const ClusterReport& report, std::vector<ClusterProblem>& problems) {
  if (report.missing_ranks.empty()) return;
  std::string what = (report.missing_ranks.size() == 1 ? "rank " : "ranks ") +
                     joined(report.missing_ranks) + " did not report to the store at " +
                     report.store;
  if (!report.missing_hosts.empty())
    what += "; nothing was heard from the node" +
            std::string(report.missing_hosts.size() == 1 ? " " : "s ") +
            joined(report.missing_hosts);
  problems.push_back({kNotReached, what,
                      "Look at that node's own output: whether it runs, resolves the store's name "
                      "and may connect to that port."});
}

void find_unreached(const ClusterReport& report, std::vector<ClusterProblem>& problems) {
  for (const NodeFacts& node : report.facts) {
    const auto same = [&node](const NodeFindings& f) { return f.rank == node.rank; };
    if (std::none_of(report.findings.begin(), report.findings.end(), same))
      problems.push_back({kNotReached, node.host + " reported, and was not heard of again",
                          "Look at that node's own output."});
  }
  for (const NodeFindings& findings : report.findings) {
    for (std::size_t i = 0; i < findings.unreached.size(); ++i) {
      const NodeFacts* other = node_of_rank(report, findings.unreached[i]);
      if (other == nullptr) continue;
      problems.push_back(
          {kNotReached,
           host_of_rank(report, findings.rank) + " does not reach " + other->host + " at " +
               other->address + ":" + std::to_string(other->port) + ": " + findings.reasons[i],
           "Ranks listen on ports that the system chooses: let nodes connect to each other on all "
           "ports above 1023. If the address is of the wrong network, set MASTER_ADDR to the first "
           "node's address on the right one."});
    }
  }
}

void find_unshared(const ClusterReport& report, std::vector<ClusterProblem>& problems) {
  for (const NodeFacts& node : report.facts) {
    if (!node.folder_failure.empty())
      problems.push_back(
          {kNotShared,
           node.host + " cannot use the folder " + node.folder + ": " + node.folder_failure,
           "Name a folder on shared storage with --folder, and as run.dir."});
  }
  for (const NodeFindings& findings : report.findings) {
    for (const int rank : findings.unseen) {
      const NodeFacts* other = node_of_rank(report, rank);
      if (other == nullptr || !other->folder_failure.empty()) continue;
      problems.push_back({kNotShared,
                          host_of_rank(report, findings.rank) + " does not see what " +
                              other->host + " writes to " + other->folder +
                              ": the folder is not shared",
                          "Use a folder on storage that all nodes mount at the same path."});
    }
  }
}

void find_differences(const ClusterReport& report, std::vector<ClusterProblem>& problems) {
  constexpr const char* kSame =
      "Install once on shared storage (`make install PREFIX=…`), and start that program "
      "everywhere.";
  const NodeFacts& first = report.facts.front();
  for (const NodeFacts& node : report.facts) {
    if (!node.engine_failure.empty()) {
      problems.push_back({kDiffers,
                          "the engine does not work on " + node.host + ": " + node.engine_failure,
                          kSame});
      continue;
    }
    const auto differs = [&](const char* what, const std::string& here, const std::string& there) {
      problems.push_back({kDiffers,
                          std::string(what) + " differs: " + node.host + " has " + here + ", " +
                              first.host + " has " + there,
                          kSame});
    };
    if (node.program_hash != first.program_hash)
      differs("the program", node.program + " (" + node.program_hash.substr(0, 8) + ")",
              first.program + " (" + first.program_hash.substr(0, 8) + ")");
    if (node.engine_hash != first.engine_hash)
      differs("the engine", node.engine + " (" + node.engine_hash.substr(0, 8) + ")",
              first.engine + " (" + first.engine_hash.substr(0, 8) + ")");
    if (first.engine_failure.empty() && node.torch_version != first.torch_version)
      differs("torch", node.torch_version, first.torch_version);
  }
}

void find_warnings(const ClusterReport& report, std::vector<ClusterProblem>& problems) {
  const NodeFacts& first = report.facts.front();
  for (const NodeFindings& findings : report.findings) {
    if (!findings.round_trip_s || std::abs(findings.clock_ahead_s) <= kClockLimit_s) continue;
    problems.push_back({0,
                        "the clock of " + host_of_rank(report, findings.rank) + " is " +
                            format_fixed(std::abs(findings.clock_ahead_s), 1) + " s " +
                            (findings.clock_ahead_s > 0 ? "ahead of" : "behind") + " that of " +
                            first.host,
                        "Let a time service (chrony) run on every node: times in logs and files "
                        "are wrong otherwise."});
  }
  for (std::size_t i = 0; i < report.facts.size(); ++i) {
    const NodeFacts& node = report.facts[i];
    if (report.ranks_of_node[i] > 1 && node.shm_free_bytes < kLeastSharedMemory)
      problems.push_back(
          {0,
           "/dev/shm of " + node.host + " has only " + format_bytes(node.shm_free_bytes) + " free",
           "Make it larger, or set parallel.transport=gloo."});
    if (node.processors != first.processors)
      problems.push_back({0,
                          node.host + " has " + std::to_string(node.processors) +
                              " processors to use, " + first.host + " has " +
                              std::to_string(first.processors),
                          "Ranks wait for the slowest: use nodes of one kind, or threads that all "
                          "have (run.threads)."});
    if (node.gpus.size() != first.gpus.size())
      problems.push_back({0,
                          node.host + " has " + std::to_string(node.gpus.size()) + " GPUs, " +
                              first.host + " has " + std::to_string(first.gpus.size()),
                          "Use nodes of one kind."});
  }
}

using Row = std::vector<std::string>;

std::string laid_out(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += " " + row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 1, ' ');
    }
    text += line + "\n";
  }
  return text;
}

std::string clock_text(const ClusterReport& report, int rank) {
  for (const NodeFindings& findings : report.findings) {
    if (findings.rank != rank || !findings.round_trip_s) continue;
    return (findings.clock_ahead_s < 0 ? "-" : "+") +
           format_fixed(std::abs(findings.clock_ahead_s) * 1000, 1) + " ms";
  }
  return "?";
}

}  // namespace

int ClusterReport::exit_code() const {
  int code = 0;
  for (const ClusterProblem& problem : problems) code = std::max(code, problem.exit_code);
  return code;
}

std::vector<ClusterProblem> find_cluster_problems(const ClusterReport& report) {
  std::vector<ClusterProblem> problems;
  find_missing(report, problems);
  find_unreached(report, problems);
  find_unshared(report, problems);
  find_differences(report, problems);
  find_warnings(report, problems);
  std::stable_sort(problems.begin(), problems.end(),
                   [](const auto& a, const auto& b) { return a.exit_code > b.exit_code; });
  return problems;
}

std::string cluster_text(const ClusterReport& report) {
  const auto counted = [](int count, const char* thing) {
    return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
  };
  std::string text = counted(report.ranks, "rank") + " on " + counted(report.nodes, "node") +
                     (report.ranks == 1 ? "" : ", started by " + report.launched_by) +
                     "; store at " + report.store + "; folder " + report.facts.front().folder +
                     "\n\n";
  std::vector<Row> rows = {{"node", "ranks", "address", "build", "torch", "cpus", "memory", "gpus",
                            "/dev/shm", "clock"}};
  for (std::size_t i = 0; i < report.facts.size(); ++i) {
    const NodeFacts& node = report.facts[i];
    const std::string build =
        node.program_hash.substr(0, 6) + "+" +
        (node.engine_hash.empty() ? std::string("none") : node.engine_hash.substr(0, 6));
    rows.push_back({node.host, std::to_string(report.ranks_of_node[i]),
                    node.address + (node.interface.empty() ? "" : " " + node.interface), build,
                    node.torch_version.empty() ? "none" : node.torch_version,
                    std::to_string(node.processors), format_bytes(node.memory_bytes),
                    std::to_string(node.gpus.size()), format_bytes(node.shm_bytes),
                    clock_text(report, node.rank)});
  }
  text += laid_out(rows) + "\n";
  for (const ClusterProblem& problem : report.problems)
    text += (problem.exit_code != 0 ? "  ! " : "  - ") + problem.what + ".\n    " + problem.remedy +
            "\n";
  if (!report.problems.empty()) text += "\n";
  if (report.exit_code() != 0)
    return text + "These nodes cannot train together yet (see ! above).\n";
  if (report.ranks == 1)
    return text +
           "One process only: nothing was compared. Start it on every node, for example: "
           "srun tessera doctor --cluster\n";
  return text + "These nodes can train together.\n";
}

}  // namespace tessera::cli
