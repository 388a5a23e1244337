// The event loop (libuv) of a run, and the ways to wake it. One loop per run, on a separate thread;
// only this folder includes <uv.h>.
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
  // After run() has returned, or without it. All timers, signals, wakers and turns of the loop must
  // be destroyed before.
  ~Loop();

  // Runs until stop(), at most once per loop; the calling thread becomes the loop thread.
  void run();
  // Any thread. Runs `task` on the loop thread, in the order of the calls; never from within
  // post(). After stop(), returns false and drops the task. Allocates;
  // Task and Signal do not.
  bool post(std::function<void()> task);

  // The same without allocating: the caller keeps the task until one of its functions is called,
  // which may destroy it.
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

  // An object that may be on the stack of the loop thread, and is destroyed when it is not.
  class Disposable : private Task {
   public:
    ~Disposable() override = default;

   private:
    friend class Loop;
    void run() final { delete this; }
    void drop() final { delete this; }
  };
  void dispose(std::unique_ptr<Disposable> what);

  // Called on the loop thread after an exception in a callback, for lack of memory: an object may
  // be inconsistent, so that all users of the loop fail with this status. `callback` must not
  // depend on memory. Call on_failure() before run(), or on the loop thread.
  void on_failure(std::function<void(const Status&)> callback);
  // Loop thread. Calls f and catches its exceptions, which must not pass through libuv.
  template <typename F>
  void protect(F&& f) noexcept {
    const Status status = attempt([&f] { f(); });
    if (!status.ok()) failed(status);
  }

  // Any thread. Tasks that were posted before still run, then run() returns.
  void stop();
  // Monotonic time, from the same clock as the timers. Loop thread.
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
  // thread; no thread may be in raise() when it is destroyed.
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

  // A descriptor that only wakes the loop when it becomes readable; a Turn does the work. After its
  // destruction the descriptor may be closed. Loop thread.
  class Waker {
   public:
    static Result<std::unique_ptr<Waker>> make(Loop& loop, int descriptor);
    ~Waker();
    // Whether the loop has found it readable since the last call.
    bool take();

   private:
    struct State;
    Waker() = default;
    State* state_ = nullptr;
  };

  // For a library with its own queue behind an edge-triggered descriptor (ZeroMQ). Before the loop
  // sleeps it calls `ready`; if the result is true, the loop does not sleep and only checks its
  // other descriptors. After each check `turn` runs. So no wake-up is lost, even if another call
  // has consumed the edge. Loop thread; neither may destroy the Turn.
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
