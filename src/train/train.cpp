#include "train/train.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text_format.h"
#include "checkpoint/catalog.h"
#include "checkpoint/unified.h"
#include "config/remarks.h"
#include "inference/generator.h"
#include "ops/gemm_rate.h"
#include "tracking/json_lines_sink.h"
#include "tracking/registry.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/session.h"
#include "train/torch_errors.h"

namespace tessera {
namespace {

// The matrix products of a step that matter, for rates: of a block, and of the projection in
// chunks.
std::vector<GemmShape> gemm_shapes(const RunPlan& plan) {
  const std::int64_t width = plan.shape.n_embd;
  const std::int64_t rows =
      std::min<std::int64_t>(plan.batches.micro_rows * plan.sampler->block_size(), 1024);
  const auto layers = static_cast<double>(plan.shape.n_layer);
  const std::int64_t chunk = std::min<std::int64_t>(rows, 256);
  return {{rows, 3 * width, width, layers},
          {rows, width, width, layers},
          {rows, 4 * width, width, layers},
          {rows, width, 4 * width, layers},
          {chunk, plan.shape.vocab_size, width,
           static_cast<double>(rows) / static_cast<double>(chunk)}};
}

StartEvent start_event(const Session& session, const std::optional<CheckpointReader>& resumed) {
  const RunPlan& plan = session.plan;
  StartEvent event;
  event.run = plan.config().run.name;
  event.dir = plan.config().run.dir;
  event.parameters = event.trainable_parameters = plan.chain.parameter_count();
  event.world_size = session.ranks.world_size();
  if (!session.ranks.alone()) {
    event.mesh = to_string(session.executor->mesh()) + " by " +
                 std::string(session.groups().world->name()) + "; " +
                 std::to_string(plan.batches.micro_batches) + " micro-batches of at most " +
                 std::to_string(plan.batches.micro_rows) + " sequences a rank";
  }
  event.global_batch_size = plan.batches.global_rows;
  if (resumed.has_value()) {
    event.resumed_from_step = session.state.step;
    event.resumed_from = resumed->path().string();
  }
  event.model = "gpt2: " + std::to_string(plan.shape.n_layer) + " layers, " +
                std::to_string(plan.shape.n_head) + " heads, width " +
                std::to_string(plan.shape.n_embd) + ", context " +
                std::to_string(plan.shape.n_positions) + ", vocabulary " +
                format_count(plan.shape.vocab_size);
  event.device = plan.device.str();
  event.device_reason = std::to_string(session.state.layout.threads) + " threads";
  event.precision = plan.precision.name;
  event.precision_reason = plan.precision.reason;
  event.tokens_per_step = plan.tokens_per_step();
  event.total_steps = plan.total_steps;
  event.steps_per_epoch = static_cast<double>(plan.steps_per_epoch);
  event.data = {{"train", plan.data.train->size(), plan.sampler->sequences()},
                {"validation", plan.data.validation->size(), 0}};
  event.checkpoint_dir = session.folder.checkpoints().string();
  const std::int64_t every =
      plan.config().checkpoint.every.in_steps(static_cast<double>(plan.steps_per_epoch));
  if (every > 0) event.checkpoint_every = std::to_string(every) + " steps";
  event.more.push_back(
      {"memory", "about " +
                     format_bytes(static_cast<std::uint64_t>(plan_memory(plan.memory()).total())) +
                     ": " + describe(plan_memory(plan.memory()))});
  return event;
}

// A command without some of its words, as a shell reads them.
std::string without_words(const std::string& command_line,
                          const std::function<bool(const std::string& word)>& dropped) {
  std::string result;
  for (std::size_t begin = 0; begin < command_line.size();) {
    std::size_t end = begin;
    for (bool quoted = false; end < command_line.size() && (quoted || command_line[end] != ' ');
         ++end) {
      if (command_line[end] == '\'') quoted = !quoted;
    }
    const std::string word = command_line.substr(begin, end - begin);
    begin = end + 1;
    if (!dropped(word)) result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

// The command that goes on with a run: without what only its first start wants.
std::string resuming(const std::string& command_line) {
  bool value_follows = false;
  return without_words(command_line, [&](const std::string& word) {
    const bool dropped = value_follows || word == "--fresh" || word.starts_with("--resume-from");
    value_follows = word == "--resume-from";
    return dropped;
  });
}

// The same command with another value: a repeated override would be read, but pile up.
std::string with_override(const std::string& command_line, const std::string& key,
                          const std::string& value) {
  const auto overridden = [&](const std::string& word) { return word.starts_with(key + "="); };
  return without_words(command_line, overridden) + " " + key + "=" + value;
}

// A word as a shell reads it back.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+,:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// What a person does next.
std::vector<LabelledText> next_commands(const TrainRequest& request, const EndEvent& end) {
  std::vector<LabelledText> commands;
  if (!end.model.empty()) {
    commands.push_back({"generate", "tessera generate " + shell_word(request.config.run.dir) +
                                        " --prompt 'The '"});
  }
  const std::string resume = resuming(request.command_line);
  if (end.status == EndStatus::kInterrupted) commands.push_back({"resume", resume});
  if (end.status == EndStatus::kDone && request.config.train.max_steps > 0) {
    commands.push_back(
        {"train on", with_override(resume, "train.max_steps",
                                   std::to_string(2 * request.config.train.max_steps))});
  }
  return commands;
}

EndEvent failed_event(const Error& error, EndEvent end = {}) {
  end.status = EndStatus::kFailed;
  end.error = error.what();
  end.exit_code = exit_code(error.kind());
  return end;
}

class TrainRun {
 public:
  explicit TrainRun(const TrainRequest& request)
      : request_(request),
        terminal_(std::make_shared<Terminal>()),
        // Rank 0 speaks; the others only warn, with their rank.
        log_(request.place.rank == 0 || request.config.log.ranks == LogRanks::kAll
                 ? request.log_level
                 : LogLevel::kQuiet,
             [terminal = terminal_, rank = request.place.rank](std::string_view line) {
               terminal->print(rank == 0
                                   ? std::string(line)
                                   : "[rank " + std::to_string(rank) + "] " + std::string(line));
             }),
        silence_(LogLevel::kQuiet, [](std::string_view) {}),
        files_(make_posix_file_system()),
        folder_(*files_, request.config.run.dir),
        tracker_(log_) {}

  int run() {
    std::optional<CheckpointReader> checkpoint;
    std::optional<RunPlan> plan;
    try {
      translate_errors([&] {
        ranks_.emplace(request_, log_);
        plan = prepare(checkpoint);
      });
    } catch (const Error& error) {
      if (ranks_.has_value()) ranks_->explain(error);
      announce(error);
      throw;
    }
    if (request_.dry_run && !ranks_->first()) return 0;
    if (request_.dry_run) {
      const std::string text = request_.json ? plan_json(*plan) : plan_text(*plan);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return 0;
    }
    return run_prepared(std::move(*plan), checkpoint);
  }

 private:
  // A failure before there is a run that could write it down: only stdout hears of it.
  void announce(const Error& failure) const {
    if (!request_.json || request_.dry_run || request_.place.rank != 0) return;
    try {
      JsonLinesSink::to_descriptor(STDOUT_FILENO, "standard output")->on(failed_event(failure));
    } catch (const Error&) {
      // That nobody hears it is not the cause: the failure is thrown on.
    }
  }

  // All that can be refused before training starts. Holds the run's folder from then on.
  RunPlan prepare(std::optional<CheckpointReader>& checkpoint) {
    // A save request has no run to save yet; its default would end the process.
    if (!request_.dry_run) {
      ::signal(SIGUSR1, SIG_IGN);
      if (ranks_->first()) {
        folder_.create();
        lock_ = folder_.lock();
      }
      ranks_->require_shared(*files_, folder_.dir());
    }
    checkpoint = agree_on_resume_point();
    RunPlan plan =
        make_plan(request_, *ranks_, *files_, ranks_->first() ? log_ : silence_,
                  checkpoint.has_value() ? recorded_sizes(*checkpoint) : RecordedSizes{});
    if (request_.dry_run) return plan;
    if (ranks_->first()) {
      for (const std::string& remark : config_remarks(request_.config)) log_.info(remark);
      const std::string remark =
          remark_on_mesh(request_.config.parallel.strategy, plan.layout.mesh);
      if (!remark.empty()) log_.info(remark);
      const ParallelConfig& parallel = request_.config.parallel;
      if (plan.device.is_cpu() && (parallel.cpu_offload || parallel.activation_offload)) {
        log_.info(
            "offloading frees nothing on a CPU: what is moved to host memory is where it was; the "
            "result is the same");
      }
      if (parallel.wrap == Wrap::kSize && parallel.min_num_params > plan.chain.parameter_count()) {
        log_.info("parallel.min_num_params is more than the model has: all of it is one unit");
      }
      open_run(plan);
    }
    ranks_->meet("prepared");
    return plan;
  }

  // Rank 0 looks for it; the others read what it found, and prove that it is the same.
  std::optional<CheckpointReader> agree_on_resume_point() {
    std::optional<CheckpointReader> found;
    const std::string path = ranks_->from_first("resume", [&] {
      if (!request_.fresh) found = find_resume_point(request_, *files_, log_);
      if (found.has_value()) check_config(*found, request_.config, log_);
      return found.has_value() ? std::filesystem::absolute(found->path()).string() : std::string();
    });
    if (path.empty()) return std::nullopt;
    if (!found.has_value()) found.emplace(Path(path), Verify::kStructure);
    ranks_->require_equal("checkpoint", {"the checkpoint " + path},
                          {content_hash(files_->read(Path(path) / "manifest.json"))});
    return found;
  }

  // What can still be refused, an older run out of the way, and where the run is recorded.
  void open_run(const RunPlan& plan) {
    require_space(plan);
    if (request_.fresh && folder_.move_aside(log_)) {
      folder_.create();
      lock_ = folder_.lock();
    }
    if (makes_one_model(plan.layout.mesh)) require_replaceable_model(*files_, one_model());
    for (auto& sink : make_sinks({.metrics_path = folder_.metrics(),
                      .json_lines = request_.json,
                      .terminal = terminal_,
                      .level = request_.log_level})) {
      tracker_.add(std::move(sink));
    }
  }

  int run_prepared(RunPlan plan, std::optional<CheckpointReader>& checkpoint) {
    signals_.emplace(ranks_->first() && request_.log_level != LogLevel::kQuiet);
    const auto started = std::chrono::steady_clock::now();
    EndEvent end;
    memory_inputs_ = plan.memory();
    try {
      translate_errors([&] { train(std::move(plan), checkpoint, end); });
    } catch (const Error& first) {
      const Error error = ranks_->explain(with_memory_advice(first));
      finish_failed(error, end, started);
      throw error;
    }
    end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    end.commands = next_commands(request_, end);
    // srun --kill-on-bad-exit, mpirun and torchrun end all ranks as soon as one exits with a code,
    // as a stopped one does: the others stay until rank 0 has saved and said so.
    ranks_->from_first("end", [&] {
      tracker_.emit(end);
      return std::string();
    });
    if (!ranks_->first()) tracker_.emit(end);
    ranks_->finish();
    return end.exit_code.value_or(0);
  }

  void require_space(const RunPlan& plan) {
    const MemoryPlan memory = plan_memory(plan.memory());
    const std::uint64_t free = files_->free_bytes(folder_.checkpoints());
    const auto checkpoint_bytes = static_cast<std::uint64_t>(parameter_count(plan.shape)) * 12;
    if (free < checkpoint_bytes + checkpoint_bytes / 10) {
      throw Error(ErrorKind::kIo,
                  "not enough space for a checkpoint: it takes " + format_bytes(checkpoint_bytes) +
                      ", " + format_bytes(free) + " are free",
                  folder_.checkpoints().string(), "Free space there, or choose another run.dir.");
    }
    log_.detail("memory predicted: " + describe(memory));
  }

  void train(RunPlan plan, std::optional<CheckpointReader>& checkpoint, EndEvent& end) {
    // What all ranks would warn of alike, rank 0 says for all.
    const bool speaks = ranks_->first() || request_.config.log.ranks == LogRanks::kAll;
    Session session(std::move(plan), *ranks_, *files_, speaks ? log_ : silence_, tracker_);
    session.initialise(!checkpoint.has_value());
    if (checkpoint.has_value()) restore_session(*checkpoint, session);
    end.step = session.state.step;
    if (ranks_->first()) {
      folder_.record(request_.config_yaml,
                     environment_json(request_.command_line, session.state.layout.torch,
                                      session.plan.device.str()));
    }
    // The first of the replicas writes: the ranks of its shard group, each its shard.
    const std::unique_ptr<SaveGroup> group = ranks_->save_group(session.groups().mesh.shard);
    std::optional<CheckpointWriter> writer;
    if (session.writes()) {
      writer.emplace(
          *files_,
          CheckpointWriterOptions{.folder = folder_.checkpoints(),
                                  .keep = static_cast<int>(request_.config.checkpoint.keep),
                                  .world_size = ranks_->world_size()},
          log_, *group);
    }
    tracker_.emit(start_event(session, checkpoint));
    checkpoint.reset();  // its files need not stay mapped
    const auto measure_rate = [&session] {
      return measure_gemm_rate(gemm_shapes(session.plan), session.plan.precision.compute,
                               session.plan.device, 0.2);
    };
    TrainLoop loop(session, writer.has_value() ? &*writer : nullptr, *signals_, measure_rate,
                   samples_with_others(session) ? sampler(session) : SampleFunction());
    if (ranks_->first()) {
      loop.at_checkpoint = [this](const FinishedCheckpoint& saved) {
        forget_old_model(saved.step);
      };
    }
    try {
      end.status = loop.run();
    } catch (...) {
      note_progress(session, end);
      throw;
    }
    note_progress(session, end);
    if (end.status == EndStatus::kInterrupted) {
      end.exit_code = 128 + loop.stop_signal();
    } else {
      report_true_loss(session, loop.evaluation_targets());
      if (ranks_->first()) {
        forget_old_model(std::nullopt);  // an earlier process may have died before it could
        unify_model(session, end);
      }
    }
  }

  Path one_model() const { return folder_.dir() / "model"; }
  bool makes_one_model(const Mesh& mesh) const {
    return mesh.shard > 1 && request_.config.checkpoint.unified_model;
  }

  // Shards of a checkpoint as one model, through a buffer: no rank holds it whole.
  void unify_model(const Session& session, EndEvent& end) {
    if (!makes_one_model(session.groups().mesh) || end.model.empty()) return;
    const std::string shards = end.model;
    const CheckpointReader checkpoint(shards, Verify::kStructure);
    try {
      write_unified_model(checkpoint, *files_, one_model());
    } catch (const Error& error) {
      throw Error(error.kind(),
                  "training has ended and its checkpoint " + shards +
                      " is whole, but one model could not be made of it: " + error.reason(),
                  error.where(),
                  error.remedy() + (error.remedy().empty() ? "" : " ") +
                      "Then run the same command again: it only makes the model.");
    }
    end.model = one_model().string();
    log_.info("one model of the shards of " + shards + ": " + end.model);
  }

  // One that an earlier end of this run made is not its result any more when another checkpoint is.
  // That of `saved` is another one, too: the run may have gone back behind the older.
  void forget_old_model(const std::optional<std::int64_t>& saved) {
    try {
      const std::optional<CheckpointEntry> result = resulting_checkpoint(silence_);
      if (!result.has_value()) return;
      const auto keep = result->step == saved ? std::nullopt : std::optional(result->step);
      if (!remove_unified_model(*files_, one_model(), keep)) return;
      log_.info("removed " + one_model().string() +
                ", the model of an earlier checkpoint; the run's model is now in " +
                result->path.string());
    } catch (const Error& error) {
      log_.warning("the model of an earlier checkpoint stays: " + std::string(error.what()));
    }
  }

  // The best checkpoint, else the newest.
  std::optional<CheckpointEntry> resulting_checkpoint(Log& log) {
    if (const auto best = best_checkpoint(*files_, folder_.checkpoints(), log)) {
      return CheckpointEntry{best->step, best->path};
    }
    const auto all = list_checkpoints(*files_, folder_.checkpoints());
    return all.empty() ? std::nullopt : std::optional(all.back());
  }

  void note_progress(const Session& session, EndEvent& end) {
    const TrainerState& state = session.state;
    end.step = state.step;
    end.loss = state.last_loss;
    end.best_eval_loss = state.best_eval_loss;
    if (!ranks_->first()) return;
    if (state.best_eval_loss.has_value()) end.best_eval_step = state.best_eval_step;
    if (const auto result = resulting_checkpoint(log_)) end.model = result->path.string();
  }

  // Out of memory: what held it, and what to do.
  Error with_memory_advice(const Error& error) const {
    if (error.kind() != ErrorKind::kResource || !memory_inputs_.has_value()) return error;
    const MemoryPlan plan = plan_memory(*memory_inputs_);
    return Error(error.kind(),
                 error.reason() + "; a step holds about " +
                     format_bytes(static_cast<std::uint64_t>(plan.total())) + ": " + describe(plan),
                 error.where(), memory_remedies(*memory_inputs_));
  }

  void finish_failed(const Error& error, EndEvent& end,
                     std::chrono::steady_clock::time_point started) {
    end = failed_event(error, std::move(end));
    end.commands = next_commands(request_, end);
    end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    tracker_.emit(end);
  }

  void report_true_loss(const Session& session, std::int64_t targets) {
    const TrainerState& state = session.state;
    if (!state.best_eval_loss.has_value() || targets == 0) return;
    const auto truth = true_loss(session.plan.data, targets);
    if (!truth.has_value()) return;
    log_.info("validation loss " + format_fixed(*state.best_eval_loss, 4) +
              " nats a token, against a true entropy of " + format_fixed(*truth, 4) +
              " of this text (no model can reach less): " +
              format_fixed(100.0 * (*state.best_eval_loss / *truth - 1.0), 1) + " % above it");
  }

  // Sharded parameters are gathered by all ranks of a group together: all make the same sample.
  bool samples_with_others(const Session& session) const {
    return ranks_->first() || session.groups().mesh.shard > 1;
  }

  // What train.sample_prompt says, else the beginning of the validation text, or of the training
  // text where nothing validates.
  static std::vector<std::int64_t> sample_prompt(const RunPlan& plan) {
    const std::string& text = plan.config().train.sample_prompt;
    const std::vector<TokenId> ids = plan.data.tokenizer->encode(text);
    if (!ids.empty()) return {ids.begin(), ids.end()};
    constexpr std::int64_t kTokens = 16;
    const TokenDataset& data = plan.data.validation ? *plan.data.validation : *plan.data.train;
    std::vector<std::int64_t> prompt(
        static_cast<std::size_t>(std::min({kTokens, data.size(), plan.shape.n_positions / 2 + 1})));
    data.read(0, static_cast<std::int64_t>(prompt.size()), prompt.data());
    return prompt;
  }

  SampleFunction sampler(Session& session) {
    if (session.config().train.sample_every.never()) return {};
    return [this, &session](std::int64_t step) {
      const TrainConfig& train = session.config().train;
      const Gpt2Shape& shape = session.plan.shape;
      const Tokenizer& tokenizer = *session.plan.data.tokenizer;
      const std::vector<std::int64_t> prompt = sample_prompt(session.plan);
      const GenerationModel model{.executor = session.executor.get(),
                                  .tokenizer = &tokenizer,
                                  .cache_shape = {.layers = shape.n_layer,
                                                  .heads = shape.n_head,
                                                  .head_size = shape.head_size(),
                                                  .dtype = session.plan.precision.compute,
                                                  .device = session.plan.device},
                                  .n_positions = shape.n_positions,
                                  .vocab_size = shape.vocab_size,
                                  .end_of_text = session.plan.end_of_text};
      // As many forwards on every rank, whatever is drawn: none may wait for one that has ended.
      const bool together = session.groups().mesh.shard > 1;
      const auto texts =
          generate(model, {prompt},
                   {.max_new_tokens = train.sample_tokens,
                    .seed = static_cast<std::uint64_t>(session.config().run.seed),
                    .past_context = PastContext::kSlide,
                    .end_of_text = together ? AtEndOfText::kGoOn : AtEndOfText::kStop});
      if (!ranks_->first()) return;
      log_.info("sample at step " + std::to_string(step) + ": " +
                tokenizer.decode(std::vector<TokenId>(prompt.begin(), prompt.end())) +
                texts.front().text);
    };
  }

  const TrainRequest& request_;
  std::shared_ptr<Terminal> terminal_;
  Log log_, silence_;  // silence_: for what rank 0 says for all
  std::unique_ptr<FileSystem> files_;
  RunFolder folder_;
  Tracker tracker_;  // of ranks other than 0: without sinks
  std::optional<Ranks> ranks_;
  std::unique_ptr<FileLock> lock_;         // of the run's folder
  std::optional<SignalRequests> signals_;  // while it trains; until then a signal ends the process
  std::optional<MemoryInputs> memory_inputs_;
};

}  // namespace

int run_train(const TrainRequest& request) { return TrainRun(request).run(); }

}  // namespace tessera
