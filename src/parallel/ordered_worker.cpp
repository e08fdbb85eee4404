#include "parallel/ordered_worker.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tessera {

struct OrderedWorker::Operation {
  std::function<void()> task;
  bool done = false;
  std::exception_ptr failure;
};

struct OrderedWorker::State {
  std::mutex mutex;
  std::condition_variable work_changed, operation_done;
  std::deque<std::shared_ptr<Operation>> queue;
  std::exception_ptr failure;  // the first one
  bool closing = false;
  std::thread thread;

  void serve();
  void run_one(std::unique_lock<std::mutex>& lock);
};

class OrderedWorker::Pending final : public Work {
 public:
  Pending(std::shared_ptr<State> state, std::shared_ptr<Operation> operation)
      : state_(std::move(state)), operation_(std::move(operation)) {}

  void wait() override {
    std::unique_lock lock(state_->mutex);
    state_->operation_done.wait(lock, [&] { return operation_->done; });
    if (operation_->failure) std::rethrow_exception(operation_->failure);
  }

 private:
  std::shared_ptr<State> state_;
  std::shared_ptr<Operation> operation_;
};

void OrderedWorker::State::run_one(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Operation> operation = std::move(queue.front());
  queue.pop_front();
  std::exception_ptr failed = failure;
  lock.unlock();
  if (!failed) {
    try {
      operation->task();
    } catch (...) {  // the edge of this thread: wait() throws it again
      failed = std::current_exception();
    }
  }
  operation->task = nullptr;
  lock.lock();
  operation->failure = failed;
  operation->done = true;
  failure = std::move(failed);
  operation_done.notify_all();
}

void OrderedWorker::State::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    work_changed.wait(lock, [&] { return closing || !queue.empty(); });
    if (closing && !failure) {
      failure = std::make_exception_ptr(
          Error(ErrorKind::kComm, "the communicator was closed before this operation began"));
    }
    if (queue.empty()) return;
    run_one(lock);
  }
}

OrderedWorker::OrderedWorker() : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

OrderedWorker::~OrderedWorker() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->closing = true;
  }
  state_->work_changed.notify_all();
  state_->thread.join();
}

std::unique_ptr<Work> OrderedWorker::run(std::function<void()> task) {
  auto operation = std::make_shared<Operation>();
  operation->task = std::move(task);
  {
    const std::scoped_lock lock(state_->mutex);
    state_->queue.push_back(operation);
  }
  state_->work_changed.notify_one();
  return std::make_unique<Pending>(state_, std::move(operation));
}

}  // namespace tessera
