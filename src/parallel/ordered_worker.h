// A thread that runs operations in the order in which they were asked for. Owns: the thread, its
// queue, and what a Work waits on. Not: what an operation does.
#pragma once

#include <functional>
#include <memory>

#include "parallel/communicator.h"

namespace tessera {

// run() and the destructor belong to one thread; a Work may be waited for from any, also after the
// worker is gone.
class OrderedWorker {
 public:
  OrderedWorker();
  // Waits for the task under way (which its owner tells to give up, if it should), and leaves out
  // the others: waiting for these throws Error{kComm}.
  ~OrderedWorker();
  OrderedWorker(const OrderedWorker&) = delete;
  OrderedWorker& operator=(const OrderedWorker&) = delete;

  // What a task throws, wait() throws. After the first failure no task is run: the ranks are no
  // longer at the same place, and each later Work fails by the same exception. `task` and what it
  // holds are destroyed before wait() returns.
  std::unique_ptr<Work> run(std::function<void()> task);

 private:
  struct Operation;
  struct State;
  class Pending;
  std::shared_ptr<State> state_;
};

}  // namespace tessera
