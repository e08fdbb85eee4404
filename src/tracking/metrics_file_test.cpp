#include "tracking/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "tracking/json_lines_sink.h"

namespace tessera {
namespace {

class MetricsFileTest : public testing::Test {
 protected:
  void write(std::string_view text) {
    auto file = files_->create(path_);
    file->write(text);
    file->close();
  }
  std::string content() { return files_->read(path_); }

  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  TemporaryDirectory directory_;
  Path path_ = directory_.path() / "metrics.jsonl";
};

StartEvent start_event(std::optional<std::int64_t> resumed) {
  StartEvent event;
  event.run = "char";
  event.dir = "runs/char";
  event.parameters = 10;
  event.trainable_parameters = 8;
  event.world_size = 2;
  event.global_batch_size = 12;
  event.resumed_from_step = resumed;
  return event;
}

StepEvent step_event(std::int64_t step, double loss) {
  StepEvent event;
  event.step = step;
  event.loss = loss;
  event.tokens = step * 768;
  return event;
}

TEST(JsonLineTest, HasExactlyTheDocumentedFieldsInOrder) {
  EXPECT_EQ(to_json_line(start_event({})),
            R"({"event":"start","run":"char","dir":"runs/char","parameters":10,)"
            R"("trainable_parameters":8,"world_size":2,"global_batch_size":12,)"
            R"("resumed_from_step":null})");
  StepEvent step = step_event(3, 2.5);
  step.epoch = 0.25;
  step.grad_norm = 1.5;
  step.lr = 3e-4;
  step.tokens_per_second = 812.5;
  step.mfu = 0.5;
  step.seconds = 0.125;
  step.memory = {{"start", 1024}, {"peak", 4096}};
  EXPECT_EQ(to_json_line(step),
            R"({"event":"step","step":3,"epoch":0.25,"loss":2.5,"grad_norm":1.5,"lr":0.0003,)"
            R"("tokens":2304,"tokens_per_second":812.5,"mfu":0.5,"seconds":0.125,)"
            R"("memory_bytes":{"start":1024,"peak":4096}})");
  step.loss_scale = 32768;
  EXPECT_TRUE(to_json_line(step).ends_with(R"("peak":4096},"loss_scale":32768.0})"));
  EXPECT_EQ(to_json_line(LossScaleEvent{.step = 3, .loss_scale = 1.5, .not_finite = "loss"}),
            R"({"event":"loss_scale","step":3,"loss_scale":1.5,"not_finite":"loss"})");
  EvalEvent eval;
  eval.step = 3;
  eval.loss = 2.5;
  eval.perplexity = 12.5;
  EXPECT_EQ(to_json_line(eval),
            R"({"event":"eval","step":3,"loss":2.5,"perplexity":12.5,"accuracy":null})");
  EXPECT_EQ(to_json_line(CheckpointEvent{40, "a/step_00000040"}),
            R"({"event":"checkpoint","step":40,"path":"a/step_00000040"})");
  EndEvent end;
  end.status = EndStatus::kDone;
  end.step = 40;
  end.loss = 1.5;
  end.best_eval_loss = 1.25;
  end.model = "runs/char/best";
  EXPECT_EQ(to_json_line(end),
            R"({"event":"end","status":"done","step":40,"loss":1.5,"best_eval_loss":1.25,)"
            R"("model":"runs/char/best"})");
  EndEvent failure;
  failure.status = EndStatus::kFailed;
  failure.error = "disk full";
  failure.exit_code = 4;
  EXPECT_EQ(to_json_line(failure),
            R"({"event":"end","status":"failed","step":0,"loss":null,"best_eval_loss":null,)"
            R"("model":null,"error":"disk full","exit_code":4})");
  EXPECT_EQ(to_json_line(ProgressEvent{"train", 1, 2}), "");
}

TEST(JsonLineTest, NotFiniteIsNullAndBadTextIsReplaced) {
  StepEvent step = step_event(1, std::nan(""));
  step.grad_norm = std::numeric_limits<double>::infinity();
  step.mfu = -std::numeric_limits<double>::infinity();
  const std::string line = to_json_line(step);
  EXPECT_NE(line.find(R"("loss":null,"grad_norm":null)"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("mfu":null)"), std::string::npos) << line;
  EXPECT_EQ(to_json_line(CheckpointEvent{1, "a\xFF\nb"}),
            "{\"event\":\"checkpoint\",\"step\":1,\"path\":\"a\xEF\xBF\xBD\\nb\"}");
}

TEST_F(MetricsFileTest, AppendsAndRepairsATornLine) {
  JsonLinesSink::append_to(path_)->on(step_event(1, 3));
  const std::string whole = content();
  EXPECT_TRUE(whole.ends_with("}\n"));
  write(whole + R"({"event":"step","st)");
  JsonLinesSink::append_to(path_)->on(step_event(2, 2));
  EXPECT_EQ(content(),
            whole + "{\"event\":\"step\",\"st\n" + to_json_line(step_event(2, 2)) + "\n");
  const RunMetrics metrics = read_metrics(path_);
  ASSERT_EQ(metrics.steps.size(), 2u);
  EXPECT_EQ(metrics.unreadable_lines, 1);
  JsonLinesSink::append_to(path_);  // opening alone changes nothing
  EXPECT_TRUE(content().ends_with("}\n"));
}

TEST_F(MetricsFileTest, OpeningWhereNothingCanBeWrittenIsAnError) {
  try {
    JsonLinesSink::append_to(directory_.path() / "missing" / "metrics.jsonl");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("missing/metrics.jsonl"), std::string::npos);
  }
  EXPECT_THROW(read_metrics(path_), Error);
}

TEST_F(MetricsFileTest, AFullDiskIsAnErrorOfTheSink) {
  if (!files_->exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto sink = JsonLinesSink::append_to("/dev/full");
  EXPECT_THROW(sink->on(step_event(1, 3)), Error);
}

TEST_F(MetricsFileTest, ReadsBackWhatWasWritten) {
  const auto sink = JsonLinesSink::append_to(path_);
  sink->on(start_event(7));
  StepEvent step = step_event(8, 2.5);
  step.mfu = 0.5;
  step.grad_norm = std::nan("");
  sink->on(step);
  EvalEvent eval;
  eval.step = 8;
  eval.loss = 2.25;
  eval.accuracy = 0.375;
  sink->on(eval);
  sink->on(CheckpointEvent{8, "x"});
  EndEvent end;
  end.status = EndStatus::kInterrupted;
  end.step = 8;
  end.exit_code = 130;
  sink->on(end);
  const RunMetrics metrics = read_metrics(path_);
  ASSERT_TRUE(metrics.start);
  EXPECT_EQ(metrics.start->run, "char");
  EXPECT_EQ(metrics.start->trainable_parameters, 8);
  EXPECT_EQ(metrics.start->resumed_from_step, 7);
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.steps[0].loss, 2.5);
  EXPECT_EQ(metrics.steps[0].tokens, 8 * 768);
  EXPECT_EQ(metrics.steps[0].mfu, 0.5);
  EXPECT_TRUE(std::isnan(metrics.steps[0].grad_norm));
  ASSERT_EQ(metrics.evals.size(), 1u);
  EXPECT_EQ(metrics.evals[0].accuracy, 0.375);
  ASSERT_EQ(metrics.checkpoints.size(), 1u);
  EXPECT_EQ(metrics.checkpoints[0].path, "x");
  ASSERT_TRUE(metrics.end);
  EXPECT_EQ(metrics.end->status, EndStatus::kInterrupted);
  EXPECT_EQ(metrics.end->exit_code, 130);
  EXPECT_FALSE(metrics.end->loss);
  EXPECT_EQ(metrics.unreadable_lines, 0);
}

TEST_F(MetricsFileTest, LaterLinesOfAStepSupersedeEarlierOnes) {
  const auto sink = JsonLinesSink::append_to(path_);
  sink->on(start_event({}));
  for (int step = 1; step <= 6; ++step) sink->on(step_event(step, 10 + step));
  EndEvent end;
  end.step = 6;
  sink->on(end);
  sink->on(start_event(4));
  sink->on(step_event(5, 50));
  RunMetrics metrics = read_metrics(path_);
  EXPECT_EQ(metrics.starts, 2);
  EXPECT_FALSE(metrics.end) << "the resumed run has not ended";
  ASSERT_EQ(metrics.steps.size(), 5u) << "step 6 belongs to a history that was left";
  EXPECT_EQ(metrics.steps[3].loss, 14);
  EXPECT_EQ(metrics.steps[4].loss, 50);
  sink->on(step_event(5, 51));  // also without a start between
  EXPECT_EQ(read_metrics(path_).steps.back().loss, 51);
  sink->on(start_event({}));
  EXPECT_TRUE(read_metrics(path_).steps.empty());
}

TEST_F(MetricsFileTest, SkipsWhatIsTornForeignOrOfAnotherShape) {
  write(
      "\n"
      "not json\n"
      "[1,2]\n"
      "17\n"
      R"({"event":"step","step":"three"})"
      "\n"
      R"({"event":"step","step":1e300,"tokens":1})"
      "\n"
      R"({"event":"end","status":"lost","step":1})"
      "\n"
      R"({"event":"from the future","step":1})"
      "\n"
      R"({"event":"step","step":2,"tokens":5,"loss":1.5})"
      "\n"
      R"({"event":"step","step":3,"tok)");
  const RunMetrics metrics = read_metrics(path_);
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.steps[0].step, 2);
  EXPECT_TRUE(std::isnan(metrics.steps[0].lr));
  EXPECT_EQ(metrics.unreadable_lines, 7);
}

}  // namespace
}  // namespace tessera
