#include "data/batch_stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera {

struct BatchStream::State {
  Fill fill;
  std::size_t ahead = 1;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<GlobalBatch> ready;
  std::vector<GlobalBatch> spare;  // their memory is used again
  std::exception_ptr failure;
  bool stop = false;
  std::thread thread;

  void produce(SamplerPosition position) {
    for (;;) {
      GlobalBatch batch;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stop || ready.size() < ahead; });
        if (stop) return;
        if (!spare.empty()) {
          batch = std::move(spare.back());
          spare.pop_back();
        }
      }
      try {
        fill(position, batch);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failure = std::current_exception();
        changed.notify_all();
        return;
      }
      position = batch.position_after;
      const std::scoped_lock lock(mutex);
      ready.push_back(std::move(batch));
      changed.notify_all();
    }
  }
};

BatchStream::BatchStream(std::shared_ptr<const Sampler> sampler, std::int64_t rows,
                         SamplerPosition start, std::int64_t ahead)
    : BatchStream([sampler = std::move(sampler), rows](
                      const SamplerPosition& position,
                      GlobalBatch& batch) { sampler->fill(position, rows, batch); },
                  start, ahead) {}

BatchStream::BatchStream(Fill fill, SamplerPosition start, std::int64_t ahead)
    : state_(std::make_unique<State>()) {
  if (ahead < 1) throw Error(ErrorKind::kInternal, "a batch stream needs room for one batch");
  state_->fill = std::move(fill);
  state_->ahead = static_cast<std::size_t>(ahead);
  state_->thread = std::thread([state = state_.get(), start] { state->produce(start); });
}

BatchStream::~BatchStream() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void BatchStream::next(GlobalBatch& batch) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return !state_->ready.empty() || state_->failure; });
  if (state_->ready.empty()) std::rethrow_exception(state_->failure);
  std::swap(batch, state_->ready.front());
  state_->spare.push_back(std::move(state_->ready.front()));
  state_->ready.pop_front();
  state_->changed.notify_all();
}

}  // namespace tessera
