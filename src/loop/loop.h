// The event loop (libuv) and the threads beside it. One loop per run, on a thread of its own.
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
  ~Loop();   // after run() has returned; closes every handle

  // Runs until stop(); the calling thread becomes the loop thread.
  void run();
  // Any thread. Runs `task` on the loop thread, in order; false once the loop has stopped.
  bool post(std::function<void()> task);
  void stop();                                    // any thread
  int64_t now_ms() const;                         // monotonic; loop thread
  bool on_loop_thread() const;
  uv_loop_s* uv() const;                          // for src/net and src/loop

  // A repeatable one-shot timer of the loop thread. Restarting replaces; destroying stops.
  class Timer {
   public:
    Timer(Loop& loop, std::function<void()> fired);
    ~Timer();
    void start(int64_t after_ms);
    void stop();

   private:
    struct State;
    State* state_;
  };

 private:
  Loop();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
