// How the doctor's report looks: for people, and for scripts.
#include <nlohmann/json.hpp>

#include "base/text_format.h"
#include "cli/doctor_report.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text.empty() ? "none" : text;
}

class Page {
 public:
  void title(const std::string& text) { text_ += (text_.empty() ? "" : "\n") + text + "\n"; }
  void row(std::string label, const std::string& value) {
    label.resize(std::max<std::size_t>(label.size(), 15), ' ');
    text_ += "  " + label + " " + value + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void show_machine(const MachineFacts& machine, Page& page) {
  page.title("machine");
  page.row("system", (machine.system.empty() ? "" : machine.system + ", ") + machine.kernel);
  page.row("processor", machine.cpu_model.empty() ? "not known" : machine.cpu_model);
  std::string threads = std::to_string(machine.usable_processors()) + " usable";
  if (machine.usable_processors() < machine.processors)
    threads += " of " + std::to_string(machine.processors);
  if (machine.processor_quota > 0)
    threads += ", container's limit " + format_fixed(machine.processor_quota, 1);
  if (machine.cores > 0) threads += ", " + std::to_string(machine.cores) + " physical cores";
  page.row("processors", threads);
  page.row("abilities", joined(machine.cpu.names(), " ") +
                            (machine.cpu.fast_bf16() ? "" : " (no bf16 in hardware)"));
  std::string memory = format_bytes(machine.memory_bytes) + ", " +
                       format_bytes(machine.usable_memory_bytes()) + " free to use";
  if (machine.memory_limit_bytes > 0)
    memory += ", container's limit " + format_bytes(machine.memory_limit_bytes);
  page.row("memory", memory);
  page.row("gpu", joined(machine.gpus, ", "));
}

void show_engine(const DoctorReport& report, Page& page) {
  page.title("engine");
  page.row("library", report.engine.empty() ? "not built" : report.engine.string());
  if (!report.probe.facts) {
    if (!report.engine.empty()) page.row("state", "does not work: " + report.probe.failure);
    if (!report.torch_folder.empty())
      page.row("torch", (report.torch_version.empty() ? "nothing" : report.torch_version) + " in " +
                            report.torch_folder.string());
    return;
  }
  const EngineFacts& facts = *report.probe.facts;
  page.row("state", "loads in " + format_fixed(report.probe.load_seconds, 2) + " s");
  page.row("torch", facts.torch_version + " from " + facts.torch_library);
  page.row("products", facts.blas);
  page.row("code path", facts.cpu_capability + ", " + std::to_string(facts.threads) + " threads");
  page.row("devices", joined(facts.devices, ", "));
  page.row("precision",
           facts.default_precision +
               (facts.precision_reason.empty() ? "" : " (" + facts.precision_reason + ")"));
  if (report.measured)
    page.row("speed", "f32 " + format_fixed(facts.gemm_gflops_f32, 1) + " GFLOP/s, bf16 " +
                          format_fixed(facts.gemm_gflops_bf16, 1) +
                          " GFLOP/s (product of 1024 x 1024 matrices)");
}

Json machine_json(const MachineFacts& machine) {
  return {{"system", machine.system},
          {"kernel", machine.kernel},
          {"cpu", machine.cpu_model},
          {"cpu_features", machine.cpu.names()},
          {"processors", machine.processors},
          {"cores", machine.cores},
          {"usable_processors", machine.usable_processors()},
          {"processor_limit", machine.processor_quota > 0 ? Json(machine.processor_quota) : Json()},
          {"memory_bytes", machine.memory_bytes},
          {"usable_memory_bytes", machine.usable_memory_bytes()},
          {"memory_limit_bytes",
           machine.memory_limit_bytes > 0 ? Json(machine.memory_limit_bytes) : Json()},
          {"gpus", machine.gpus}};
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json engine_json(const DoctorReport& report) {
  Json json = {{"library", text_or_null(report.engine.string())},
               {"works", report.probe.facts.has_value()},
               {"failure", text_or_null(report.probe.failure)},
               {"torch_folder", text_or_null(report.torch_folder.string())}};
  if (!report.probe.facts) {
    json["torch_version"] = text_or_null(report.torch_version);
    return json;
  }
  const EngineFacts& facts = *report.probe.facts;
  json["load_seconds"] = report.probe.load_seconds;
  json["torch_version"] = facts.torch_version;
  json["torch_library"] = facts.torch_library;
  json["blas"] = facts.blas;
  json["cpu_capability"] = facts.cpu_capability;
  json["threads"] = facts.threads;
  json["devices"] = facts.devices;
  json["default_precision"] = facts.default_precision;
  json["precision_reason"] = facts.precision_reason;
  json["gemm_gflops_f32"] = report.measured ? Json(facts.gemm_gflops_f32) : Json();
  json["gemm_gflops_bf16"] = report.measured ? Json(facts.gemm_gflops_bf16) : Json();
  return json;
}

}  // namespace

std::string report_text(const DoctorReport& report) {
  Page page;
  page.title("tessera " + report.version + " (" + report.program.string() + ")");
  show_machine(report.machine, page);
  page.title("disk");
  for (const FolderFacts& folder : report.folders)
    page.row(folder.use, format_bytes(folder.free_bytes) + " free, " + folder.path.string() +
                             (folder.writable ? "" : " (cannot be written)"));
  show_engine(report, page);
  if (!report.problems.empty()) page.title("what is missing or could be better");
  std::string text = page.text();
  for (const Problem& problem : report.problems)
    text += (problem.prevents_training ? "  ! " : "  - ") + problem.what + ".\n    " +
            problem.remedy + "\n";
  return text + "\n" +
         (report.training_possible() ? "Training is possible here.\n"
                                     : "Training is not possible here yet (see ! above).\n");
}

std::string report_json(const DoctorReport& report) {
  Json folders = Json::array(), problems = Json::array();
  for (const FolderFacts& folder : report.folders)
    folders.push_back({{"use", folder.use},
                       {"path", folder.path.string()},
                       {"free_bytes", folder.free_bytes},
                       {"writable", folder.writable}});
  for (const Problem& problem : report.problems)
    problems.push_back({{"what", problem.what},
                        {"remedy", problem.remedy},
                        {"prevents_training", problem.prevents_training}});
  const Json json = {{"version", report.version},
                     {"program", report.program.string()},
                     {"training_possible", report.training_possible()},
                     {"machine", machine_json(report.machine)},
                     {"folders", folders},
                     {"engine", engine_json(report)},
                     {"problems", problems}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::cli
