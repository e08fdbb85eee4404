#include "train/evaluation.h"

#include <ATen/ops/tensor.h>

#include "train/batch_tensors.h"

namespace tessera {

std::optional<EvaluationResult> evaluate(
    Executor& executor, Communicator& communicator, const EvaluationOrder& order,
    std::int64_t micro_rows, const at::Device& device,
    const std::function<bool(std::int64_t, std::int64_t)>& proceed) {
  EvaluationSums sums;
  GlobalBatch batch;
  for (std::int64_t index = 0; index < order.batches(); ++index) {
    if (!proceed(index, order.batches())) return std::nullopt;
    order.fill(index, batch);
    const int ranks = communicator.world_size();
    const auto rows = split_rows(batch.rows, micro_batches_for(batch.rows, micro_rows, ranks),
                                 communicator.rank(), ranks);
    for (const BatchContext& context :
         make_micro_batches(batch, rows, device, Mode::kEvaluate, 0, 0)) {
      const EvaluationSums part = executor.evaluate(context);
      sums.loss += part.loss;
      sums.correct += part.correct;
      sums.weight += part.weight;
    }
  }
  const at::Tensor all = at::tensor({sums.loss, sums.correct, sums.weight}, at::kDouble).to(device);
  communicator.note("the sums of an evaluation");
  communicator.all_reduce(all, ReduceOperation::kSum)->wait();
  const at::Tensor host = all.cpu();
  const double* total = host.const_data_ptr<double>();
  return EvaluationResult{
      .loss = total[0] / total[2], .accuracy = total[1] / total[2], .targets = total[2]};
}

}  // namespace tessera
