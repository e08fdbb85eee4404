#include "train/trainer_state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

json optional_number(const std::optional<double>& value) {
  return value.has_value() ? json(*value) : json(nullptr);
}

std::optional<double> read_optional(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<double>(value.get<double>());
}

}  // namespace

std::string to_json(const TrainerState& state) {
  // nlohmann writes doubles so that they read back to the same bits, and keys sorted.
  const json text = {
      {"format", 1},
      {"step", state.step},
      {"tokens", state.tokens},
      {"sampler",
       {{"seed", state.position.seed},
        {"epoch", state.position.epoch},
        {"offset", state.position.offset}}},
      {"global_batch_size", state.global_batch_size},
      {"block_size", state.block_size},
      {"loss_scale",
       {{"scale", state.loss_scale.scale},
        {"good_steps", state.loss_scale.good_steps},
        {"enabled", state.loss_scale.enabled}}},
      {"plateau",
       {{"factor", state.plateau.factor},
        {"best", state.plateau.best},
        {"bad_evaluations", state.plateau.bad_evaluations},
        {"has_best", state.plateau.has_best}}},
      {"best_eval_loss", optional_number(state.best_eval_loss)},
      {"best_eval_step", state.best_eval_step},
      {"evaluations_without_improvement", state.evaluations_without_improvement},
      {"evaluation_pending", state.evaluation_pending},
      {"last_eval_step", state.last_eval_step},
      {"skipped_in_a_row", state.skipped_in_a_row},
      {"last_loss", optional_number(state.last_loss)},
      {"tokenizer_hash", state.tokenizer_hash},
      {"data_key", state.data_key},
      {"layout",
       {{"device", state.layout.device},
        {"precision", state.layout.precision},
        {"torch", state.layout.torch},
        {"cpu_capability", state.layout.cpu_capability},
        {"threads", state.layout.threads},
        {"world_size", state.layout.world_size},
        {"transport", state.layout.transport}}},
  };
  return text.dump(1) + "\n";
}

TrainerState parse_trainer_state(std::string_view text, const Path& path) {
  try {
    const json root = json::parse(text);
    TrainerState state;
    state.step = root.at("step").get<std::int64_t>();
    state.tokens = root.at("tokens").get<std::int64_t>();
    const json& sampler = root.at("sampler");
    state.position = {.seed = sampler.at("seed").get<std::uint64_t>(),
                      .epoch = sampler.at("epoch").get<std::int64_t>(),
                      .offset = sampler.at("offset").get<std::int64_t>()};
    state.global_batch_size = root.at("global_batch_size").get<std::int64_t>();
    state.block_size = root.at("block_size").get<std::int64_t>();
    const json& scale = root.at("loss_scale");
    state.loss_scale = {.scale = scale.at("scale").get<double>(),
                        .good_steps = scale.at("good_steps").get<std::int64_t>(),
                        .enabled = scale.at("enabled").get<bool>()};
    const json& plateau = root.at("plateau");
    state.plateau = {.factor = plateau.at("factor").get<double>(),
                     .best = plateau.at("best").get<double>(),
                     .bad_evaluations = plateau.at("bad_evaluations").get<std::int64_t>(),
                     .has_best = plateau.at("has_best").get<bool>()};
    state.best_eval_loss = read_optional(root.at("best_eval_loss"));
    state.best_eval_step = root.at("best_eval_step").get<std::int64_t>();
    state.evaluations_without_improvement =
        root.at("evaluations_without_improvement").get<std::int64_t>();
    state.evaluation_pending = root.at("evaluation_pending").get<bool>();
    state.last_eval_step = root.at("last_eval_step").get<std::int64_t>();
    state.skipped_in_a_row = root.at("skipped_in_a_row").get<std::int64_t>();
    state.last_loss = read_optional(root.at("last_loss"));
    state.tokenizer_hash = root.at("tokenizer_hash").get<std::string>();
    state.data_key = root.at("data_key").get<std::string>();
    const json& layout = root.at("layout");
    state.layout = {.device = layout.at("device").get<std::string>(),
                    .precision = layout.at("precision").get<std::string>(),
                    .torch = layout.at("torch").get<std::string>(),
                    .cpu_capability = layout.at("cpu_capability").get<std::string>(),
                    .threads = layout.at("threads").get<std::int64_t>(),
                    .world_size = layout.at("world_size").get<std::int64_t>(),
                    .transport = layout.value("transport", "")};
    return state;
  } catch (const json::exception& error) {
    throw Error(ErrorKind::kCorrupt,
                std::string("cannot read the trainer's state: ") + error.what(), path.string(),
                "It was written by another version, or damaged; use another checkpoint.");
  }
}

std::string describe_difference(const NumericLayout& old_layout, const NumericLayout& new_layout) {
  std::string text;
  const auto add = [&](const char* name, const std::string& before, const std::string& after) {
    if (before != after)
      text += (text.empty() ? "" : ", ") + std::string(name) + " " + before + " -> " + after;
  };
  add("device", old_layout.device, new_layout.device);
  add("precision", old_layout.precision, new_layout.precision);
  add("torch", old_layout.torch, new_layout.torch);
  add("cpu capability", old_layout.cpu_capability, new_layout.cpu_capability);
  add("threads", std::to_string(old_layout.threads), std::to_string(new_layout.threads));
  add("world size", std::to_string(old_layout.world_size), std::to_string(new_layout.world_size));
  if (old_layout.world_size == new_layout.world_size && !old_layout.transport.empty()) {
    add("transport", old_layout.transport, new_layout.transport);
  }
  return text;
}

}  // namespace tessera
