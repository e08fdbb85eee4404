#include "train/plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "data/tokenizer_source.h"
#include "model/pretrained.h"
#include "ops/device.h"
#include "optim/registry.h"
#include "train/load_model.h"
#include "train/plan_picture.h"
#include "train/plan_rows.h"
#include "train/step_settings.h"

namespace tessera {
namespace {

constexpr std::int64_t kGpt2Vocabulary = 50257;

// Where the config leaves it to the tokenizer: as far as that is known without the data.
std::int64_t vocabulary_of(const Config& config, std::vector<std::string>& notes) {
  if (config.model.vocab_size > 0) return config.model.vocab_size;
  const std::string& name = config.data.tokenizer;
  if (name.starts_with("bpe:")) {
    std::int64_t size = 0;
    std::from_chars(name.data() + 4, name.data() + name.size(), size);
    return size;
  }
  if (name == "char" || name.starts_with("hub:")) {
    notes.push_back("the size of the vocabulary is not known before the data is read: GPT-2's " +
                    std::to_string(kGpt2Vocabulary) +
                    " is assumed; model.vocab_size=N says another");
    return kGpt2Vocabulary;
  }
  return make_tokenizer_without_text(config.data)->vocab_size();
}

Gpt2Shape shape_of(const Config& config, Log& log, std::vector<std::string>& notes) {
  const ModelConfig& model = config.model;
  Gpt2Shape shape;
  if (!model.init_from.empty()) {
    shape = read_hugging_face_config(find_model_folder(model.init_from, log));
  } else {
    shape = {.n_layer = model.n_layer,
             .n_head = model.n_head,
             .n_embd = model.n_embd,
             .n_positions = model.n_positions,
             .vocab_size = vocabulary_of(config, notes)};
    shape.padded_vocab_size =
        (shape.vocab_size + model.pad_vocab_to - 1) / model.pad_vocab_to * model.pad_vocab_to;
    shape.tie_head = model.tie_head;
  }
  shape.embd_dropout = model.embd_dropout;
  shape.attn_dropout = model.attn_dropout;
  shape.resid_dropout = model.resid_dropout;
  return shape;
}

// The device need not be on this machine.
void choose_device(const Config& config, Prediction& prediction) {
  const std::string& wanted = config.run.device;
  const bool elsewhere = wanted != "auto" && wanted != "cpu";
  prediction.device = elsewhere ? wanted : resolve_device(wanted).str();
  prediction.inputs.device_is_host = prediction.device == "cpu";
  switch (config.precision.compute) {
    case Compute::kF32: prediction.precision = "f32"; break;
    case Compute::kBf16: prediction.precision = "bf16"; break;
    case Compute::kF16: prediction.precision = "f16"; break;
    case Compute::kAuto:
      prediction.precision =
          elsewhere ? "bf16" : resolve_precision("auto", at::Device(prediction.device)).name;
      if (elsewhere) {
        prediction.notes.push_back("bf16 is assumed, as GPUs of compute capability 8.0 have it");
      }
  }
  prediction.inputs.compute_bytes = prediction.precision == "f32" ? 4 : 2;
  prediction.inputs.loss_scaling = prediction.precision == "f16";
}

MeshLayout layout_of(const PlanRequest& request) {
  ParallelConfig parallel = request.config.parallel;
  if (request.ranks_per_node > 0) parallel.ranks_per_node = request.ranks_per_node;
  return mesh_layout(parallel, std::vector<int>(static_cast<std::size_t>(request.world_size)));
}

void set_batches(const TrainConfig& train, Prediction& prediction) {
  prediction.batches = plan_batches(train, prediction.inputs.layout.mesh.world_size(), 0);
  prediction.inputs.micro_rows = prediction.batches.micro_rows;
  prediction.inputs.micro_batches = static_cast<int>(prediction.batches.micro_batches);
}

std::int64_t budget_of(const PlanRequest& request, const Prediction& prediction) {
  if (request.memory_bytes > 0) return request.memory_bytes;
  if (!prediction.inputs.device_is_host) {
    throw Error(ErrorKind::kUsage, "--fit needs to know the memory of a device", {},
                "Add --memory 80GiB, or what the device has.");
  }
  const MeshLayout& layout = prediction.inputs.layout;
  const std::int64_t sharers =
      std::max(layout.ranks_per_node > 0 ? layout.ranks_per_node : layout.mesh.world_size(), 1);
  return static_cast<std::int64_t>(machine_facts().usable_memory_bytes()) / sharers;
}

void fit(const PlanRequest& request, Prediction& prediction) {
  const std::int64_t budget = budget_of(request, prediction);
  TrainConfig train = request.config.train;
  const std::int64_t ranks = prediction.inputs.layout.mesh.world_size();
  const bool rows = request.fit == "batch_size";
  constexpr std::int64_t kMostRows = 1 << 20;
  const std::int64_t most =
      train.global_batch_size > 0 ? (train.global_batch_size + ranks - 1) / ranks : kMostRows;
  const std::optional<std::int64_t> largest =
      rows ? largest_micro_rows(prediction.inputs, most, budget)
           : largest_block_size(prediction.inputs, budget);
  const std::string key = rows ? "train.batch_size" : "data.block_size";
  if (!largest) {
    MemoryInputs least = prediction.inputs;
    (rows ? least.micro_rows : least.block_size) = 1;
    throw Error(ErrorKind::kResource,
                "even " + key + "=1 takes " + memory_text(plan_memory(least)) + ", and " +
                    bytes_text(budget) + " are there",
                key, memory_remedies(least));
  }
  if (rows) {
    train.batch_size = *largest;
    if (train.global_batch_size > 0) train.gradient_accumulation = 0;
    set_batches(train, prediction);
  } else {
    prediction.inputs.block_size = *largest;
  }
  const bool whole = *largest == (rows ? most : prediction.inputs.shape.n_positions);
  prediction.notes.push_back(
      key + "=" + std::to_string(*largest) +
      (!whole ? " is the largest whose tensors fit into " + bytes_text(budget)
       : rows ? ": a rank's whole part of the global batch fits into " + bytes_text(budget)
              : ": the model's whole context fits into " + bytes_text(budget)));
}

// Only the machine that trains, and its data, decide.
void note_auto_sizes(const PlanRequest& request, Prediction& prediction) {
  const TrainConfig& train = request.config.train;
  const auto note = [&](const char* key, const char* size, std::int64_t planned,
                        const std::string& fit) {
    if (request.fit == fit) {
      prediction.notes.push_back(std::string(key) +
                                 ": training leaves room and rounds down, so it may take less");
      return;
    }
    prediction.notes.push_back(std::string(key) + ": training will choose " + size +
                               " by its memory, and this plan has " + std::to_string(planned) +
                               "; --fit " + fit + " finds about what it takes");
  };
  if (train.auto_batch) {
    note("train.auto_batch", "train.batch_size", prediction.inputs.micro_rows, "batch_size");
  }
  if (train.auto_block_size) {
    note("train.auto_block_size", "data.block_size", prediction.inputs.block_size, "block_size");
  }
}

std::int64_t elements_of(Unit& unit) {
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : unit.parameters()) count += parameter.elements();
  return count;
}

// Of one rank in one step, what is computed again included.
double arithmetic(const StepCostInputs& inputs, const StepCost& cost) {
  double flops = 0;
  for (const Instruction& instruction : cost.schedule) {
    if (instruction.unit < 0) continue;
    const UnitCost& unit = inputs.units[static_cast<std::size_t>(instruction.unit)];
    const Operation operation = instruction.operation;
    if (operation == Operation::kForward || operation == Operation::kRecompute) {
      flops += unit.forward_flops;
    } else if (operation == Operation::kBackward) {
      flops += unit.all.backward_flops;
    }
  }
  return flops;
}

// Everything that is printed.
struct Output {
  const PlanRequest& request;
  const Prediction& prediction;
  StepCostInputs inputs = step_cost_inputs(prediction.inputs);
  StepCost cost = cost_of_step(inputs);
  Chain chain = make_gpt2(prediction.inputs.shape);
  MemoryPlan memory = {.peak = cost.peak,
                       .host = cost.host_peak,
                       .device_is_host = prediction.inputs.device_is_host};
  std::vector<std::pair<std::string, const MemoryUse*>> points = {
      {"start", &cost.at_start},
      {"after forward", &cost.after_forward},
      {"last backward", &cost.before_last_backward},
      {"after backward", &cost.after_backward},
      {"after step", &cost.after_step}};
  std::vector<std::pair<std::string, LinkBytes>> verbs = {
      {"all_gather", cost.traffic.all_gather},
      {"reduce_scatter", cost.traffic.reduce_scatter},
      {"all_reduce", cost.traffic.all_reduce}};

  std::int64_t tokens_per_step() const {
    return prediction.batches.global_rows * prediction.inputs.block_size;
  }
};

// Neighbours of one size share a line: "h.0 .. h.47".
std::string flat_unit_rows(const Output& output) {
  const auto& names = output.inputs.plan.inputs.unit_names;
  const int shards = output.prediction.inputs.layout.mesh.shard;
  std::vector<std::pair<std::string, std::string>> rows;  // name, sizes
  std::vector<std::string> last;                          // name of a row's last flat unit
  for (const FlatUnitPlan& flat : output.inputs.plan.flat_units) {
    std::int64_t parameters = 0, elements = 0;
    for (int unit = flat.span.first; unit <= flat.span.last; ++unit) {
      parameters += elements_of(*output.chain.units[static_cast<std::size_t>(unit)]);
    }
    for (const ParameterGroup& group : flat.groups) elements += group.elements;
    const std::string name = flat_unit_name(flat.span, names);
    const std::string sizes = format_count(parameters) + " parameters, " +
                              format_count(elements / shards) + " elements on a rank";
    if (!rows.empty() && rows.back().second == sizes) {
      last.back() = name;
    } else {
      rows.emplace_back(name, sizes);
      last.push_back(name);
    }
  }
  std::string text = "flat units\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [name, sizes] = rows[i];
    text += plan_row("  " + (last[i] == name ? name : name + " .. " + last[i]),
                     last[i] == name ? sizes : sizes + ", each");
  }
  return text;
}

std::string text_of(const Output& output) {
  const Prediction& prediction = output.prediction;
  const MemoryInputs& inputs = prediction.inputs;
  const int ranks = inputs.layout.mesh.world_size();
  std::string text = plan_row("model", model_text(inputs.shape));
  text += plan_row("parameters", format_count(output.chain.parameter_count()));
  text += plan_row("device", prediction.device + ", " + prediction.precision);
  text += plan_row("ranks", mesh_text(inputs.layout));
  text += plan_row("batch", batch_text(prediction.batches.global_rows, inputs.micro_rows,
                                       inputs.micro_batches, ranks) +
                                " and " + std::to_string(inputs.block_size) + " tokens");
  text += plan_row("tokens a step", format_count(output.tokens_per_step()));
  text += plan_row("arithmetic", format_short_count(arithmetic(output.inputs, output.cost)) +
                                     " operations a rank and step");
  text += plan_row("memory a rank", memory_text(output.memory));
  for (const auto& [name, use] : output.points) {
    text += plan_row("  " + name, bytes_text(use->on_device()));
  }
  text += plan_row("sent a rank", bytes_text(output.cost.traffic.total().total()) + " a step");
  for (const auto& [verb, sent] : output.verbs) {
    if (sent.total() == 0) continue;
    text += plan_row("  " + verb, bytes_text(sent.inside) + " inside the node, " +
                                      bytes_text(sent.across) + " across nodes");
  }
  for (const std::string& note : prediction.notes) text += plan_row("note", note);
  text += flat_unit_rows(output);
  if (output.request.schedule) {
    text += "schedule\n" + print(output.cost.schedule, output.inputs.plan.inputs);
  }
  return text;
}

nlohmann::json object(const NamedBytes& values) {
  nlohmann::json result;
  for (const auto& [name, value] : values) result[name] = value;
  return result;
}

nlohmann::json units_json(const Output& output) {
  nlohmann::json units = nlohmann::json::array();
  const auto& flats = output.inputs.plan.flat_units;
  for (std::size_t unit = 0; unit < output.chain.units.size(); ++unit) {
    const auto holds = [&](const FlatUnitPlan& flat) {
      return flat.span.first <= static_cast<int>(unit) && static_cast<int>(unit) <= flat.span.last;
    };
    units.push_back(
        {{"name", output.chain.units[unit]->name()},
         {"parameters", elements_of(*output.chain.units[unit])},
         {"flat_unit", std::find_if(flats.begin(), flats.end(), holds) - flats.begin()}});
  }
  return units;
}

std::string json_of(const Output& output) {
  using nlohmann::json;
  const Prediction& prediction = output.prediction;
  const MemoryInputs& inputs = prediction.inputs;
  json points, sent;
  for (const auto& [name, use] : output.points) {
    std::string key = name;
    std::replace(key.begin(), key.end(), ' ', '_');
    points[key] = use->on_device();
  }
  for (const auto& [verb, bytes] : output.verbs) {
    sent[verb] = {{"inside_node", bytes.inside}, {"across_nodes", bytes.across}};
  }
  json text = {
      {"event", "plan"},
      {"parameters", output.chain.parameter_count()},
      {"vocab_size", inputs.shape.vocab_size},
      {"block_size", inputs.block_size},
      {"device", prediction.device},
      {"precision", prediction.precision},
      {"world_size", inputs.layout.mesh.world_size()},
      {"mesh", {{"shard", inputs.layout.mesh.shard}, {"replica", inputs.layout.mesh.replica}}},
      {"ranks_per_node", inputs.layout.ranks_per_node},
      {"two_level", inputs.layout.two_level},
      {"global_batch_size", prediction.batches.global_rows},
      {"micro_batch_rows", inputs.micro_rows},
      {"micro_batches", inputs.micro_batches},
      {"tokens_per_step", output.tokens_per_step()},
      {"flops_per_rank", arithmetic(output.inputs, output.cost)},
      {"memory_bytes", object(named(output.memory))},
      {"memory_points", points},
      {"sent_bytes", sent},
      {"notes", prediction.notes},
      {"units", units_json(output)}};
  if (output.request.schedule) {
    for (const Instruction& instruction : output.cost.schedule) {
      std::string line = print({instruction}, output.inputs.plan.inputs);
      line.pop_back();
      text["schedule"].push_back(line);
    }
  }
  return text.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Two micro-batches show what all do.
void write_picture(const Output& output) {
  const PlanRequest& request = output.request;
  MemoryInputs few = output.prediction.inputs;
  few.micro_batches = std::min(few.micro_batches, 2);
  const StepCostInputs inputs = step_cost_inputs(few);
  NominalRates rates;
  if (request.flops > 0) rates.flops = request.flops;
  if (request.inside_bytes > 0) rates.inside_bytes = request.inside_bytes;
  if (request.across_bytes > 0) rates.across_bytes = request.across_bytes;
  std::string title = "A step of rank 0 of " + mesh_text(few.layout) + "; " +
                      format_short_count(static_cast<double>(output.chain.parameter_count())) +
                      " parameters";
  if (few.micro_batches < output.prediction.inputs.micro_batches) {
    title += ", 2 of " + std::to_string(output.prediction.inputs.micro_batches) + " micro-batches";
  }
  const auto files = make_posix_file_system();
  const auto file = files->create(*request.svg);
  file->write(draw_step(inputs, cost_of_step(inputs), rates, title));
  file->close();
}

}  // namespace

Prediction predict(const PlanRequest& request) {
  Log log(request.log_level);
  const Config& config = request.config;
  Prediction prediction;
  choose_device(config, prediction);
  MemoryInputs& inputs = prediction.inputs;
  inputs.shape = shape_of(config, log, prediction.notes);
  inputs.block_size =
      config.data.block_size > 0 ? config.data.block_size : inputs.shape.n_positions;
  inputs.reduce_bytes = config.precision.reduce_dtype == ReduceDtype::kF32 ? 4 : 2;
  inputs.layout = layout_of(request);
  inputs.step = step_policy(config.parallel, inputs.layout.mesh);
  inputs.optimizer_states =
      static_cast<std::int64_t>(make_optimizer(config.optim)->state_names().size());
  set_batches(config.train, prediction);
  if (!request.fit.empty()) fit(request, prediction);
  note_auto_sizes(request, prediction);
  return prediction;
}

int run_plan(const PlanRequest& request) {
  const Prediction prediction = predict(request);
  const Output output{.request = request, .prediction = prediction};
  const std::string text = request.json ? json_of(output) : text_of(output);
  if (request.svg) write_picture(output);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace tessera
