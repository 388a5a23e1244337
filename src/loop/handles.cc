// The handles of a loop: timers, signals, wakers and turns. libuv needs the memory of a handle
// until its close callback. Therefore each object keeps its handles in a separate state, which the
// last close callback frees.
#include <uv.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "loop/loop_state.h"

namespace weft {

namespace {

uv_handle_t* handle_of(void* handle) { return static_cast<uv_handle_t*>(handle); }

// `data` of the handle is its state.
template <typename State>
void close_and_delete(void* handle) {
  uv_close(handle_of(handle),
           [](uv_handle_t* closed) { delete static_cast<State*>(closed->data); });
}

}  // namespace

struct Loop::Timer::State {
  Loop& loop;
  std::function<void()> fired;
  uv_timer_t handle{};
};

Loop::Timer::Timer(Loop& loop, std::function<void()> fired)
    : state_(new State{loop, std::move(fired)}) {
  uv_timer_init(loop.uv(), &state_->handle);
  state_->handle.data = state_;
}

Loop::Timer::~Timer() { close_and_delete<State>(&state_->handle); }

void Loop::Timer::start(int64_t after_ms) {
  uv_update_time(state_->handle.loop);  // else the time of this callback would be subtracted
  const auto fire = [](uv_timer_t* handle) {
    auto* state = static_cast<State*>(handle->data);
    state->loop.protect(state->fired);
  };
  uv_timer_start(&state_->handle, fire, after_ms > 0 ? static_cast<uint64_t>(after_ms) : 0, 0);
}

void Loop::Timer::stop() { uv_timer_stop(&state_->handle); }

Loop::Signal::Signal(Loop& loop, std::function<void()> raised)
    : loop_(loop), state_(std::make_shared<State>(std::move(raised))) {
  loop_.state_->signals.push_back(state_);
}

Loop::Signal::~Signal() {
  auto& signals = loop_.state_->signals;
  std::find(signals.begin(), signals.end(), state_)->reset();
}

void Loop::Signal::raise() {
  state_->pending = true;
  loop_.state_->wake();
}

struct Loop::Waker::State {
  uv_poll_t handle{};
  bool woken = false;
};

Result<std::unique_ptr<Loop::Waker>> Loop::Waker::make(Loop& loop, int descriptor) {
  auto state = std::make_unique<State>();
  std::unique_ptr<Waker> waker(new Waker);
  const auto failure = [descriptor](int error) {
    return system_failure(cat("event loop: cannot watch descriptor ", descriptor), -error);
  };
  if (const int error = uv_poll_init(loop.uv(), &state->handle, descriptor); error != 0)
    return failure(error);
  state->handle.data = state.get();
  waker->state_ = state.release();
  const auto wake = [](uv_poll_t* handle, int, int) {
    static_cast<State*>(handle->data)->woken = true;
  };
  if (const int error = uv_poll_start(&waker->state_->handle, UV_READABLE, wake); error != 0)
    return failure(error);
  return waker;
}

bool Loop::Waker::take() { return std::exchange(state_->woken, false); }

Loop::Waker::~Waker() {
  if (state_ == nullptr) return;
  uv_poll_stop(&state_->handle);
  close_and_delete<State>(&state_->handle);
}

struct Loop::Turn::State {
  Loop& loop;
  std::function<bool()> ready;
  std::function<void()> turn;
  uv_prepare_t before{};
  uv_check_t after{};
  uv_idle_t awake{};  // while active, libuv does not sleep
  int open = 3;

  static void closed(uv_handle_t* handle) {
    auto* state = static_cast<State*>(handle->data);
    if (--state->open == 0) delete state;
  }
};

Loop::Turn::Turn(Loop& loop, std::function<bool()> ready, std::function<void()> turn)
    : state_(new State{loop, std::move(ready), std::move(turn)}) {
  uv_prepare_init(loop.uv(), &state_->before);
  uv_check_init(loop.uv(), &state_->after);
  uv_idle_init(loop.uv(), &state_->awake);
  state_->before.data = state_->after.data = state_->awake.data = state_;
  uv_prepare_start(&state_->before, [](uv_prepare_t* handle) {
    auto* state = static_cast<State*>(handle->data);
    bool awake = true;  // also if `ready` fails
    state->loop.protect([&] { awake = state->ready(); });
    if (awake) uv_idle_start(&state->awake, [](uv_idle_t*) {});
  });
  uv_check_start(&state_->after, [](uv_check_t* handle) {
    auto* state = static_cast<State*>(handle->data);
    uv_idle_stop(&state->awake);
    state->loop.protect(state->turn);
  });
}

Loop::Turn::~Turn() {
  for (void* handle : {static_cast<void*>(&state_->before), static_cast<void*>(&state_->after),
                       static_cast<void*>(&state_->awake)})
    uv_close(handle_of(handle), State::closed);
}

}  // namespace weft
