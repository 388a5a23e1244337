// One answer from the loop thread to a thread that waits for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/status.h"

namespace weft {

class Waiter {
 public:
  // The first answer counts. It is set under the lock: the waiter may be on the other thread's
  // stack and be destroyed as soon as the lock is free.
  void set(Status status) {
    const std::lock_guard lock(mutex_);
    if (!status_) status_ = std::move(status);
    there_.notify_all();
  }
  Status wait() {
    std::unique_lock lock(mutex_);
    there_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }
  // False if no answer arrived in time.
  bool wait_for(int64_t ms) {
    std::unique_lock lock(mutex_);
    return there_.wait_for(lock, std::chrono::milliseconds(ms),
                           [this] { return status_.has_value(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::optional<Status> status_;
};

}  // namespace weft
