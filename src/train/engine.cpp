// The engine library's door: tessera_engine() of engine_api.h.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include "base/machine.h"
#include "ops/device.h"
#include "ops/gemm_rate.h"
#include "train/engine_api.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/plan.h"
#include "train/torch_errors.h"
#include "train/train.h"

namespace tessera {
namespace {

// Where the loader found torch.
std::string torch_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0) return {};
  return info.dli_fname;
}

std::string blas_of(const std::string& torch_config) {
  const std::size_t start = torch_config.find("BLAS_INFO=");
  if (start == std::string::npos) return "unknown";
  return torch_config.substr(start + 10, torch_config.find(',', start) - start - 10);
}

EngineFacts facts(bool measure) {
  return translate_errors([&] {
    at::set_num_threads(machine_facts().usable_processors());
    EngineFacts facts;
    facts.torch_version = TORCH_VERSION;
    facts.torch_library = torch_library();
    facts.blas = blas_of(at::show_config());
    facts.cpu_capability = at::get_cpu_capability();
    facts.threads = at::get_num_threads();
    const at::Device device = resolve_device("auto");
    const Precision precision = resolve_precision("auto", device);
    facts.default_precision = precision.name;
    facts.precision_reason = precision.reason;
    facts.devices.push_back("cpu");
    if (const auto accelerator = at::getAccelerator(false)) {
      for (int index = 0; index < at::accelerator::deviceCount(); ++index) {
        facts.devices.push_back(
            at::Device(*accelerator, static_cast<at::DeviceIndex>(index)).str());
      }
    }
    if (measure) {
      const std::vector<GemmShape> shape = {{1024, 1024, 1024}};
      facts.gemm_gflops_f32 = measure_gemm_rate(shape, at::kFloat, at::kCPU, 0.3) / 1e9;
      facts.gemm_gflops_bf16 = measure_gemm_rate(shape, at::kBFloat16, at::kCPU, 0.3) / 1e9;
    }
    return facts;
  });
}

int train(const TrainRequest& request) {
  return translate_errors([&] { return run_train(request); });
}

int evaluate(const EvaluateRequest& request) {
  return translate_errors([&] { return run_evaluate(request); });
}

int generate(const GenerateRequest& request) {
  return translate_errors([&] { return run_generate(request); });
}

int plan(const PlanRequest& request) {
  return translate_errors([&] { return run_plan(request); });
}

constexpr EngineApi kEngine{
    .train = train, .evaluate = evaluate, .generate = generate, .plan = plan, .facts = facts};

}  // namespace
}  // namespace tessera

const tessera::EngineApi* tessera_engine() { return &tessera::kEngine; }
