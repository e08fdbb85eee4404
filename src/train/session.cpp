#include "train/session.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "model/causal_lm.h"
#include "model/pretrained.h"
#include "ops/caching_allocator.h"
#include "optim/registry.h"
#include "train/auto_size.h"
#include "train/load_model.h"
#include "train/model_state.h"
#include "train/step_settings.h"

namespace tessera {
namespace {

// A line of the log each few seconds while data is prepared.
PrepareCallback make_prepare_progress(Log& log) {
  auto last = std::chrono::steady_clock::now();
  return [&log, last](const PrepareProgress& progress) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::seconds(3)) return;
    last = now;
    std::string text = "data: " + std::string(progress.stage);
    if (progress.total_bytes > 0) {
      text += ", " + std::to_string(100 * progress.bytes / progress.total_bytes) + " %";
    }
    if (progress.tokens > 0)
      text += ", " + format_count(static_cast<std::int64_t>(progress.tokens)) + " tokens";
    log.info(text);
  };
}

std::string_view compute_name(Compute compute) {
  switch (compute) {
    case Compute::kAuto: return "auto";
    case Compute::kF32: return "f32";
    case Compute::kBf16: return "bf16";
    case Compute::kF16: return "f16";
  }
  return "auto";
}

void require_same(std::string_view key, std::int64_t given, std::int64_t models_own) {
  if (given == 0 || given == models_own) return;
  throw Error(ErrorKind::kConfig,
              std::string(key) + " is " + std::to_string(given) +
                  ", but the model in model.init_from has " + std::to_string(models_own),
              std::string(key), "Leave it out, or start from another model.");
}

Gpt2Shape shape_of(const Config& config, const Tokenizer& tokenizer, Log& log) {
  const ModelConfig& model = config.model;
  Gpt2Shape shape;
  if (!model.init_from.empty()) {
    shape = read_hugging_face_config(find_model_folder(model.init_from, log));
    require_same("model.n_layer", model.n_layer, shape.n_layer);
    require_same("model.n_head", model.n_head, shape.n_head);
    require_same("model.n_embd", model.n_embd, shape.n_embd);
    require_same("model.n_positions", model.n_positions, shape.n_positions);
    require_same("model.vocab_size", model.vocab_size, shape.vocab_size);
  } else {
    shape.n_layer = model.n_layer;
    shape.n_head = model.n_head;
    shape.n_embd = model.n_embd;
    shape.n_positions = model.n_positions;
    shape.vocab_size = model.vocab_size > 0 ? model.vocab_size : tokenizer.vocab_size();
    shape.padded_vocab_size =
        (shape.vocab_size + model.pad_vocab_to - 1) / model.pad_vocab_to * model.pad_vocab_to;
    shape.layer_norm_epsilon = model.layer_norm_epsilon;
    shape.init_std = model.init_std;
    shape.tie_head = model.tie_head;
  }
  shape.embd_dropout = model.embd_dropout;
  shape.attn_dropout = model.attn_dropout;
  shape.resid_dropout = model.resid_dropout;
  if (tokenizer.vocab_size() > shape.vocab_size) {
    throw Error(ErrorKind::kConfig,
                "the tokenizer has " + std::to_string(tokenizer.vocab_size()) +
                    " tokens, the model only " + std::to_string(shape.vocab_size),
                "model.vocab_size, data.tokenizer",
                "Use the tokenizer that belongs to the model, or leave model.vocab_size out.");
  }
  return shape;
}

// Each rank of a host has an accelerator of its own, unless the config names one.
at::Device device_of(const std::string& name, const RankPlace& place) {
  const at::Device device = resolve_device(name);
  if (device.is_cpu() || place.alone() || name.find(':') != std::string::npos) return device;
  return resolve_device(
      at::Device(device.type(), static_cast<at::DeviceIndex>(place.local_rank)).str());
}

std::int64_t total_steps(const TrainConfig& train, double steps_per_epoch) {
  std::int64_t total = std::numeric_limits<std::int64_t>::max();
  if (train.max_steps > 0) total = train.max_steps;
  if (train.max_epochs > 0) {
    total =
        std::min(total, static_cast<std::int64_t>(std::ceil(train.max_epochs * steps_per_epoch)));
  }
  if (total == std::numeric_limits<std::int64_t>::max()) {
    throw Error(ErrorKind::kConfig, "nothing says when training ends",
                "train.max_steps, train.max_epochs",
                "Set one of them, for example train.max_steps=1000.");
  }
  return total;
}

}  // namespace

MemoryInputs RunPlan::memory(std::int64_t block_size) const {
  return {.shape = shape,
          .micro_rows = batches.micro_rows,
          .block_size = block_size,
          .micro_batches = static_cast<int>(batches.micro_batches),
          .compute_bytes = precision.compute == at::kFloat ? 4 : 2,
          .reduce_bytes = config().precision.reduce_dtype == ReduceDtype::kF32 ? 4 : 2,
          .loss_scaling = precision.loss_scaling,
          .layout = layout,
          .step = step_policy(config().parallel, layout.mesh),
          .device_is_host = device.is_cpu()};
}

RunPlan make_plan(const TrainRequest& request, Ranks& ranks, FileSystem& files, Log& log,
                  const RecordedSizes& recorded) {
  RunPlan plan;
  plan.request = request;
  const Config& config = request.config;
  const MachineFacts machine = machine_facts();
  // Ranks of one host share its processors and its memory.
  const int sharers = request.ranks_of_host();
  at::set_num_threads(static_cast<int>(config.run.threads > 0
                                           ? config.run.threads
                                           : std::max(machine.usable_processors() / sharers, 1)));
  install_caching_allocator().set_limit(static_cast<std::int64_t>(machine.usable_memory_bytes()) /
                                        sharers);
  plan.device = device_of(config.run.device, ranks.place());
  plan.precision =
      resolve_precision(std::string(compute_name(config.precision.compute)), plan.device);
  ranks.host_by_host("data", [&] {
    plan.data = prepare_dataset(config.data, files, log, make_prepare_progress(log));
  });
  plan.shape = shape_of(config, *plan.data.tokenizer, log);
  if (const auto id = plan.data.tokenizer->end_of_text()) plan.end_of_text = *id;
  std::int64_t block_size =
      config.data.block_size > 0 ? config.data.block_size : plan.shape.n_positions;
  if (block_size > plan.shape.n_positions) {
    throw Error(ErrorKind::kConfig,
                "a block of " + std::to_string(block_size) +
                    " tokens does not fit into the model's context of " +
                    std::to_string(plan.shape.n_positions),
                "data.block_size", "Lower data.block_size, or raise model.n_positions.");
  }
  plan.chain = make_gpt2(plan.shape);
  plan.layout = ranks.layout(config.parallel, request.world_size());
  if (config.train.auto_batch || config.train.auto_block_size) {
    block_size =
        find_sizes(plan, ranks, recorded, tensor_budget(plan.device, sharers), block_size, log);
  } else {
    plan.batches = plan_batches(config.train, request.world_size(), recorded.global_rows);
  }
  DataConfig data_config = config.data;
  data_config.block_size = block_size;
  // The config's stride follows the context where no block is given, and leaves out no text.
  data_config.stride = std::min(data_config.stride, block_size);
  plan.sampler = std::make_shared<const Sampler>(plan.data.train, sampler_options(data_config));
  // No batch has more rows than an epoch.
  plan.batches.micro_rows = std::min(plan.batches.micro_rows, plan.sampler->sequences());
  plan.steps_per_epoch = plan.sampler->steps_per_epoch(plan.batches.global_rows);
  plan.total_steps = total_steps(config.train, static_cast<double>(plan.steps_per_epoch));
  return plan;
}

Session::Session(RunPlan run_plan, Ranks& run_ranks, FileSystem& file_system, Log& run_log,
                 Tracker& run_tracker)
    : plan(std::move(run_plan)),
      ranks(run_ranks),
      files(file_system),
      log(run_log),
      tracker(run_tracker),
      folder(file_system, plan.config().run.dir),
      objective(std::make_unique<CausalLmObjective>()),
      optimizer(make_optimizer(plan.config().optim)),
      communicators(ranks.connect(plan.config().parallel, plan.layout, plan.device, trace)),
      lr_schedule(plan.config().optim, plan.total_steps) {
  const double first_scale = plan.precision.loss_scaling ? plan.config().precision.loss_scale : 1.0;
  executor = std::make_unique<Executor>(
      plan.chain, *objective, optimizer.get(), groups(),
      Executor::Options{
          .compute_dtype = plan.precision.compute,
          .reduce_dtype = reduce_dtype(plan.config().precision),
          .device = plan.device,
          .clip = {.max_norm = plan.config().optim.grad_clip},
          .loss_scale = {.scale = first_scale, .enabled = plan.precision.loss_scaling},
          .train = true,
          .step = step_policy(plan.config().parallel, plan.layout.mesh)});
  executor->trace = &trace;
}

void Session::initialise_weights() {
  const at::NoGradGuard no_grad;
  const Config& settings = config();
  if (settings.model.init_from.empty()) {
    const auto seed = static_cast<std::uint64_t>(settings.run.seed);
    for (FlatUnit& unit : executor->units()) unit.initialise(seed);
  } else {
    read_pretrained(find_model_folder(settings.model.init_from, log));
  }
  executor->weights_changed();
}

// Each rank reads its own parts, or rank 0 everything for all.
void Session::read_pretrained(const Path& source) {
  const bool one_reads = config().parallel.efficient_loading && !ranks.alone();
  std::optional<PretrainedWeights> weights;
  if (!one_reads || ranks.first()) weights.emplace(source, plan.chain);
  const auto read = [&](const std::string& name, std::int64_t first, const at::Tensor& out) {
    weights->read(name, first, out);
  };
  if (one_reads) {
    fill_from_first(executor->units(), nullptr, *groups().world, plan.device, read);
  } else {
    fill_own_parts(executor->units(), nullptr, read);
  }
  log.info("weights from " + source.string());
}

void Session::initialise(bool with_weights) {
  if (with_weights) initialise_weights();
  state.position = {.seed = static_cast<std::uint64_t>(config().run.seed), .epoch = 0, .offset = 0};
  state.global_batch_size = plan.batches.global_rows;
  state.block_size = plan.sampler->block_size();
  state.loss_scale = executor->loss_scale();
  state.tokenizer_hash = plan.data.tokenizer->hash();
  state.data_key = train_data_key();
  state.layout = layout();
  ranks.require_equal("same-data", {"its tokenizer", "its training data"},
                      {state.tokenizer_hash, state.data_key});
}

std::string Session::train_data_key() const {
  const TokenDataset& train = *plan.data.train;
  return content_hash(train.content_hash() + " " + train.tokenizer_hash() + " " +
                      std::to_string(train.size()));
}

NumericLayout Session::layout() const {
  return {.device = plan.device.str(),
          .precision = plan.precision.name,
          .torch = TORCH_VERSION,
          .cpu_capability = at::get_cpu_capability(),
          .threads = at::get_num_threads(),
          .world_size = ranks.world_size(),
          .transport = std::string(groups().world->name())};
}

void Session::require_equal_weights() {
  if (ranks.alone() || groups().mesh.replica == 1) return;
  std::vector<std::string> names, hashes;
  const auto add = [](ContentHash& hash, const at::Tensor& tensor) {
    const at::Tensor host = tensor.cpu();
    hash.update(std::as_bytes(
        std::span(host.const_data_ptr<float>(), static_cast<std::size_t>(host.numel()))));
  };
  for (const FlatUnit& unit : executor->units()) {
    ContentHash hash;
    for (const FlatShard& shard : unit.shards()) {
      add(hash, shard.parameters);
      for (const at::Tensor& moment : shard.state) add(hash, moment);
    }
    names.push_back("weights or optimizer state of " + unit.name());
    hashes.push_back(hash.digest());
  }
  ranks.require_equal("weights/" + std::to_string(state.step), names, hashes, groups().mesh.shard);
}

}  // namespace tessera
