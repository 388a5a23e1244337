// The event loop (libuv) of a run, and the ways to wake it. One loop per run, on a thread of its
// own; <uv.h> stays inside this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"

struct uv_loop_s;

namespace weft {

class Loop {
 public:
  static Result<std::unique_ptr<Loop>> make();
  // After run() has returned, or without it; whatever lives on the loop (timers, signals, wakers,
  // turns) is destroyed before.
  ~Loop();

  // Runs until stop(), once in a loop's life; the calling thread becomes the loop thread.
  void run();
  // Any thread. Runs `task` on the loop thread, in the order of the calls; never from inside
  // post(). False, and the task is dropped, once stop() has been called. Allocates: for what must
  // not, see Task and Signal.
  bool post(std::function<void()> task);

  // The same without memory: the caller keeps the task until one of its functions is called, which
  // may destroy it.
  class Task {
   public:
    virtual ~Task() = default;
    virtual void run() = 0;
    virtual void drop() {}  // the loop ended before it ran

   private:
    friend class Loop;
    Task* next_ = nullptr;
  };
  bool post(Task& task);

  // Something that may be on the stack of the loop thread, and goes when it is not any more.
  class Disposable : private Task {
   public:
    ~Disposable() override = default;

   private:
    friend class Loop;
    void run() final { delete this; }
    void drop() final { delete this; }
  };
  void dispose(std::unique_ptr<Disposable> what);

  // What is told, on the loop thread, of an exception in a callback: memory has run out. It has
  // left some object half changed, so whoever works on the loop fails with that status. `told` does
  // without memory as far as others depend on it. Before run(), or loop thread.
  void on_failure(std::function<void(const Status&)> told);
  // Loop thread. Calls f, which libuv is to see nothing of: its exceptions end here.
  template <typename F>
  void protect(F&& f) noexcept {
    const Status status = attempt([&f] {
      f();
      return Status();
    });
    if (!status.ok()) failed(status);
  }

  // Any thread. What was posted before still runs, then run() returns.
  void stop();
  // Monotonic, of one clock with the timers. Loop thread.
  int64_t now_ms() const;
  uv_loop_s* uv() const;  // for src/loop

  // A one-shot timer. Starting again replaces; destroying stops. Loop thread; `fired` may start and
  // stop it, but not destroy it.
  class Timer {
   public:
    Timer(Loop& loop, std::function<void()> fired);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    void start(int64_t after_ms);
    void stop();

   private:
    struct State;
    State* state_;
  };

  // Wakes the loop from any thread without allocating: `raised` runs on the loop thread at least
  // once after the last raise(), and many raises may share one run. Made and destroyed on the loop
  // thread; nobody may be in raise() any more when it is destroyed.
  class Signal {
   public:
    Signal(Loop& loop, std::function<void()> raised);
    ~Signal();
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;
    void raise();

   private:
    friend class Loop;
    struct State;
    Loop& loop_;
    const std::shared_ptr<State> state_;
  };

  // A descriptor that wakes the loop when it becomes readable, and does nothing else: what to do
  // then is for a Turn. After its destruction the descriptor may be closed. Loop thread.
  class Waker {
   public:
    static Result<std::unique_ptr<Waker>> make(Loop& loop, int descriptor);
    ~Waker();

   private:
    struct State;
    Waker() = default;
    State* state_ = nullptr;
  };

  // For a library with a queue of its own behind an edge-triggered descriptor (ZeroMQ): before the
  // loop would sleep `ready` is asked, and if it says yes the loop only looks at its other
  // descriptors; after each look `turn` runs. So no wake-up can be lost, whoever swallowed the
  // edge. Loop thread; neither may destroy the Turn.
  class Turn {
   public:
    Turn(Loop& loop, std::function<bool()> ready, std::function<void()> turn);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    struct State;
    State* state_;
  };

 private:
  Loop();
  void failed(const Status& status) noexcept;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
