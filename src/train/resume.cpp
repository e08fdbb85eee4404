#include "train/resume.h"

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "config/load.h"
#include "model/pretrained.h"
#include "train/model_state.h"

namespace tessera {

std::optional<CheckpointReader> find_resume_point(const TrainRequest& request, FileSystem& files,
                                                  Log& log) {
  const Path folder = RunFolder(files, request.config.run.dir).checkpoints();
  if (!request.resume_from.has_value()) {
    return find_newest_checkpoint(files, folder, log, ", or start over with --fresh");
  }
  if (!list_checkpoints(files, folder).empty()) {
    throw Error(ErrorKind::kUsage,
                "--resume-from starts a new run, but there is a run with checkpoints already",
                request.config.run.dir,
                "Choose another run.name or run.dir, or leave --resume-from out to go on.");
  }
  // A run's folder stands for its newest checkpoint.
  const Path& source = *request.resume_from;
  if (!files.exists(source / "manifest.json") && files.is_directory(source / "checkpoints")) {
    if (auto newest = find_newest_checkpoint(files, source / "checkpoints", log)) return newest;
  }
  return CheckpointReader(source);
}

RecordedSizes recorded_sizes(const CheckpointReader& checkpoint) {
  const TrainerState state =
      parse_trainer_state(checkpoint.state_json(), checkpoint.path() / "state.json");
  return {.global_rows = state.global_batch_size, .block_size = state.block_size};
}

void check_config(const CheckpointReader& checkpoint, const Config& now, Log& log) {
  const Config before =
      config_from_yaml(checkpoint.config_yaml(), (checkpoint.path() / "config.yaml").string());
  std::string refused;
  for (const ConfigDifference& difference : compare_configs(before, now)) {
    const std::string line =
        std::string(difference.key) + ": " + difference.old_value + " -> " + difference.new_value;
    if (difference.policy == ResumePolicy::kRefuse) refused += (refused.empty() ? "" : "; ") + line;
    if (difference.policy == ResumePolicy::kWarn)
      log.warning("resuming with another value of " + line);
  }
  if (refused.empty()) return;
  throw Error(
      ErrorKind::kConfig, "the config is not the one that this run was started with: " + refused,
      checkpoint.path().string(),
      "Set the old values to resume it, or start another run with --fresh or another run.name.");
}

void restore_session(const CheckpointReader& checkpoint, Session& session) {
  const TrainerState saved =
      parse_trainer_state(checkpoint.state_json(), checkpoint.path() / "state.json");
  const std::string& tokenizer_hash = session.plan.data.tokenizer->hash();
  if (saved.tokenizer_hash != tokenizer_hash) {
    const Gpt2Shape shape = parse_hugging_face_config(std::string(checkpoint.file("config.json")),
                                                      (checkpoint.path() / "config.json").string());
    throw Error(ErrorKind::kConfig,
                "the tokenizer is not the one that this run was trained with: data.tokenizer=" +
                    session.config().data.tokenizer + " has " +
                    std::to_string(session.plan.data.tokenizer->vocab_size()) +
                    " tokens (checksum " + tokenizer_hash + "), the run's model " +
                    std::to_string(shape.vocab_size) + " (" + saved.tokenizer_hash + ")",
                checkpoint.path().string(),
                "Use the tokenizer in that checkpoint's tokenizer/ folder, or start another run "
                "with --fresh.");
  }
  if (saved.data_key != session.train_data_key()) {
    throw Error(ErrorKind::kConfig, "the training data has changed since this run began",
                checkpoint.path().string(),
                "Bring the old data back, or start another run with --fresh (model.init_from takes "
                "its weights).");
  }
  const at::NoGradGuard no_grad;
  const ReadElements read =
      read_from(checkpoint, session.executor->units(), session.optimizer.get());
  if (session.config().parallel.efficient_loading && !session.ranks.alone()) {
    fill_from_first(session.executor->units(), session.optimizer.get(), *session.groups().world,
                    session.plan.device, read);
  } else {
    fill_own_parts(session.executor->units(), session.optimizer.get(), read);
  }
  session.executor->weights_changed();
  session.executor->set_applied_steps(saved.step);
  if (saved.loss_scale.enabled == session.executor->loss_scale().enabled) {
    session.executor->loss_scale() = saved.loss_scale;
  }
  session.lr_schedule.set_plateau(saved.plateau);
  session.state = saved;
  session.state.loss_scale = session.executor->loss_scale();
  session.state.layout = session.layout();
  const std::string difference = describe_difference(saved.layout, session.state.layout);
  if (!difference.empty()) {
    session.log.warning("this resume is not bit-exact, rounding will differ: " + difference);
  }
}

}  // namespace tessera
