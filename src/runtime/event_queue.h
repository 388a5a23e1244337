// Events that the owner's thread has not yet polled, and a descriptor that is readable if there are
// any. The size is fixed: a step reserves its events when it is submitted.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/fifo.h"
#include "runtime/events.h"

namespace weft {

// Readable while raised or held; level-triggered.
class Flag {
 public:
  Flag() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Flag() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

  void set(bool raised) {
    raised_ = raised;
    show(raised_ || held_);
  }
  void hold(bool held) {
    held_ = held;
    show(raised_ || held_);
  }
  int descriptor() const { return descriptor_; }  // -1: the process had no free descriptor

 private:
  void show(bool readable) {
    if (readable == readable_) return;
    readable_ = readable;
    uint64_t word = 1;
    if (readable ? write(descriptor_, &word, sizeof word) : read(descriptor_, &word, sizeof word))
      return;  // a write to an open eventfd cannot fail
  }

  const int descriptor_;
  bool raised_ = false, held_ = false, readable_ = false;
};

class EventQueue {
 public:
  explicit EventQueue(size_t capacity) : events_(capacity) {}

  void push(RunEvent event) {
    {
      const std::lock_guard lock(mutex_);
      add(std::move(event));
    }
    there_.notify_one();
  }

  // Instead of an event of the same kind and rank that has not been polled: unknown processes
  // cannot fill the queue. A rank that left is not one that joined.
  void replace(RunEvent event) {
    const auto is_old = [&event](const RunEvent& other) {
      return (other.kind == event.kind || (joins(other.kind) && joins(event.kind))) &&
             other.mesh.rank == event.mesh.rank;
    };
    {
      const std::lock_guard lock(mutex_);
      events_.remove(is_old);
      add(std::move(event));  // in the place that is free now, without an allocation
    }
    there_.notify_one();
  }

  // Drops the events of replace().
  void drop_replaceable() {
    const std::lock_guard lock(mutex_);
    events_.remove([](const RunEvent& event) {
      return joins(event.kind) || event.kind == RunEvent::Kind::refused;
    });
    flag_.set(!events_.empty());
  }

  // Waits at most this time (nanoseconds; negative: no limit).
  bool pop(RunEvent& event, int64_t timeout_ns) {
    constexpr int64_t kForever = INT64_MAX / 2;  // 146 years; now + this must not overflow
    std::unique_lock lock(mutex_);
    auto there = [this] { return !events_.empty(); };
    if (timeout_ns < 0 || timeout_ns > kForever)
      there_.wait(lock, there);
    else if (!there_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), there))
      return false;
    event = events_.pop();
    flag_.set(!events_.empty());
    return true;
  }

  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    flag_.hold(held);
  }
  int descriptor() const { return flag_.descriptor(); }

 private:
  void add(RunEvent event) {
    events_.push(std::move(event));
    flag_.set(true);
  }
  static bool joins(RunEvent::Kind kind) {
    return kind == RunEvent::Kind::joined || kind == RunEvent::Kind::left;
  }

  std::mutex mutex_;
  std::condition_variable there_;
  Fifo<RunEvent> events_;
  Flag flag_;
};

}  // namespace weft
