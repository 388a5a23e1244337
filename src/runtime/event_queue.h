// Events on their way from a loop thread to the owner's thread. Fixed size; full is impossible, since room is taken when a step is submitted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "runtime/ring.h"
#include "runtime/run.h"

namespace weft {

class EventQueue {
 public:
  explicit EventQueue(size_t capacity) : events_(capacity) {}

  void push(RunEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push(std::move(event));
    }
    there_.notify_one();
  }

  // Within the time (nanoseconds; negative: no limit).
  bool pop(RunEvent& event, int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    auto there = [this] { return !events_.empty(); };
    if (timeout_ns < 0) there_.wait(lock, there);
    else if (!there_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), there)) return false;
    event = events_.pop();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  RingQueue<RunEvent> events_;
};

}  // namespace weft
