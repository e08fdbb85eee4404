#include "train/evaluate_lambada.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tessera {

namespace {

struct Passage {
  std::vector<std::int64_t> ids;  // context, then target
  std::int64_t target = 0;        // tokens at the end

  std::int64_t inputs() const { return static_cast<std::int64_t>(ids.size()) - 1; }
};

Passage split(const std::string& text, const Tokenizer& tokenizer, std::int64_t n_positions,
              std::size_t number) {
  const std::size_t space = text.rfind(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size()) {
    throw Error(ErrorKind::kData, "a passage needs a space before its last word",
                "passage " + std::to_string(number),
                "Give passages that end with the word to guess.");
  }
  const std::vector<TokenId> context = tokenizer.encode(std::string_view(text).substr(0, space));
  const std::vector<TokenId> target = tokenizer.encode(std::string_view(text).substr(space));
  Passage passage;
  passage.ids.assign(context.begin(), context.end());
  passage.ids.insert(passage.ids.end(), target.begin(), target.end());
  passage.target = static_cast<std::int64_t>(target.size());
  if (passage.target > n_positions) {
    throw Error(ErrorKind::kData, "the last word is longer than the model's context",
                "passage " + std::to_string(number));
  }
  const std::int64_t excess = passage.inputs() - n_positions;
  if (excess > 0) passage.ids.erase(passage.ids.begin(), passage.ids.begin() + excess);
  return passage;
}

// Scores one target token by its row of logits: nats, and whether it is the likeliest.
struct TokenScore {
  double nats = 0;
  bool likeliest = false;
};

TokenScore score(std::span<const float> logits, std::int64_t token) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - *largest);
  const auto index = static_cast<std::size_t>(token);
  return {*largest + std::log(sum) - static_cast<double>(logits[index]),
          largest - logits.begin() == token};
}

void run_batch(Executor& executor, const at::Device& device, std::span<const Passage> passages,
               LambadaScores& scores) {
  const at::NoGradGuard no_grad;
  const auto rows = static_cast<std::int64_t>(passages.size());
  const std::int64_t columns = passages.front().inputs();  // the longest: they are sorted
  BatchContext context;
  context.mode = Mode::kEvaluate;
  context.ids = at::zeros({rows, columns}, at::kLong);
  std::vector<std::int64_t> wanted;  // rows of (B * T, C) before a target token
  for (std::int64_t row = 0; row < rows; ++row) {
    const Passage& passage = passages[static_cast<std::size_t>(row)];
    std::copy(passage.ids.begin(), passage.ids.end() - 1,
              context.ids.data_ptr<std::int64_t>() + row * columns);
    for (std::int64_t i = passage.inputs() - passage.target; i < passage.inputs(); ++i) {
      wanted.push_back(row * columns + i);
    }
  }
  context.ids = context.ids.to(device);
  const at::Tensor hidden = executor.hidden(context);  // (B, T, C)
  const at::Tensor chosen = hidden.reshape({-1, hidden.size(2)})
                                .index_select(0, at::tensor(wanted, at::kLong).to(device));
  const at::Tensor logits = executor.logits(chosen).to(at::kCPU).contiguous();
  const auto width = static_cast<std::size_t>(logits.size(1));
  const float* at_row = logits.data_ptr<float>();
  for (const Passage& passage : passages) {
    bool right = true;
    for (auto id = passage.ids.end() - passage.target; id != passage.ids.end(); ++id) {
      const TokenScore token = score({at_row, width}, *id);
      at_row += width;
      right = right && token.likeliest;
      scores.nats += token.nats;
    }
    scores.correct += right ? 1 : 0;
    scores.tokens += passage.target;
    ++scores.passages;
  }
}

}  // namespace

LambadaScores evaluate_lambada(Executor& executor, const at::Device& device,
                               const std::vector<std::string>& passages, const Tokenizer& tokenizer,
                               std::int64_t n_positions, std::int64_t batch_rows,
                               const EvaluationProgress& progress) {
  std::vector<Passage> split_passages;
  for (const std::string& text : passages) {
    split_passages.push_back(split(text, tokenizer, n_positions, split_passages.size() + 1));
  }
  std::stable_sort(split_passages.begin(), split_passages.end(),
                   [](const Passage& a, const Passage& b) { return a.inputs() > b.inputs(); });
  LambadaScores scores;
  const auto total = static_cast<std::int64_t>(split_passages.size());
  for (std::int64_t begin = 0; begin < total; begin += batch_rows) {
    const std::int64_t count = std::min(batch_rows, total - begin);
    run_batch(executor, device,
              std::span(split_passages)
                  .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
              scores);
    if (progress) {
      progress(begin + count, total, scores.nats / static_cast<double>(scores.tokens));
    }
  }
  return scores;
}

}  // namespace tessera
