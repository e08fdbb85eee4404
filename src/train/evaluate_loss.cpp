#include "train/evaluate_loss.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace tessera {

namespace {

struct Item {
  std::size_t document = 0;
  EvaluationWindow window;
};

std::vector<Item> list_windows(const EvaluationText& text, const WindowPlan& plan) {
  std::vector<Item> items;
  for (std::size_t document = 0; document < text.documents.size(); ++document) {
    const auto tokens = static_cast<std::int64_t>(text.documents[document].size());
    const std::int64_t count = plan.count(tokens);
    for (std::int64_t k = 0; k < count; ++k) items.push_back({document, plan.window(tokens, k)});
  }
  // Windows of similar length in a batch need little padding, and the largest batch comes first:
  // what does not fit into memory fails at once.
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.window.inputs > b.window.inputs; });
  return items;
}

// Shorter windows are padded on the right, where a causal model's earlier positions do not look.
BatchContext make_batch(const EvaluationText& text, std::span<const Item> items,
                        const at::Device& device) {
  const auto rows = static_cast<std::int64_t>(items.size());
  const std::int64_t columns = items.front().window.inputs;  // the longest: they are sorted
  BatchContext context;
  context.mode = Mode::kEvaluate;
  context.ids = at::zeros({rows, columns}, at::kLong);
  context.labels = at::full({rows, columns}, BatchContext::kIgnoreLabel, at::kLong);
  std::int64_t* ids = context.ids.data_ptr<std::int64_t>();
  std::int64_t* labels = context.labels.data_ptr<std::int64_t>();
  for (const Item& item : items) {
    const TokenId* from = text.documents[item.document].data() + item.window.begin;
    std::copy(from, from + item.window.inputs, ids);
    std::copy(from + item.window.context + 1, from + item.window.inputs + 1,
              labels + item.window.context);
    ids += columns;
    labels += columns;
  }
  context.ids = context.ids.to(device);
  context.labels = context.labels.to(device);
  return context;
}

}  // namespace

EvaluationSums evaluate_documents(Executor& executor, const at::Device& device,
                                  const EvaluationText& text, const WindowPlan& plan,
                                  std::int64_t batch_rows, const EvaluationProgress& progress) {
  const std::vector<Item> items = list_windows(text, plan);
  const auto total = static_cast<std::int64_t>(items.size());
  EvaluationSums sums;
  for (std::int64_t begin = 0; begin < total; begin += batch_rows) {
    const std::int64_t count = std::min(batch_rows, total - begin);
    const EvaluationSums batch = executor.evaluate(make_batch(
        text,
        std::span(items).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        device));
    sums.loss += batch.loss;
    sums.correct += batch.correct;
    sums.weight += batch.weight;
    if (progress) progress(begin + count, total, sums.loss / std::max(sums.weight, 1.0));
  }
  return sums;
}

}  // namespace tessera
