// What a loop consists of, and how other threads wake it.
//
// libuv's own async handles are not used. Their callback spins until the thread that woke the loop
// has left uv_async_send(). If the loop took the processor from that thread, that takes until the
// scheduler gives it back: up to milliseconds per message.
#pragma once

#include <uv.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "loop/loop.h"

namespace weft {

struct Loop::Signal::State {
  explicit State(std::function<void()> f) : raised(std::move(f)) {}
  const std::function<void()> raised;
  std::atomic<bool> pending = false;
};

struct Loop::State {
  explicit State(Loop& of) : owner(of) {}
  ~State();

  Status open();
  void close();  // when nothing else lives on the loop
  // Any thread, and a signal handler: drain() runs on the loop thread after this call began.
  void wake();
  void drain();
  Task* take();  // all that was posted; under mutex

  Loop& owner;
  uv_loop_t loop{};
  bool is_open = false;
  uv_poll_t poll{};
  int descriptor = -1;  // readable while `woken`
  std::atomic<bool> woken = false;
  std::vector<std::shared_ptr<Signal::State>> signals;  // null: destroyed since the last drain()
  std::mutex mutex;
  Task* first = nullptr;  // posted, under mutex
  Task** last = &first;   // under mutex
  bool stopping = false;  // under mutex
  std::function<void(const Status&)> on_failure;
};

}  // namespace weft
