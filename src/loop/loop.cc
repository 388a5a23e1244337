// The loop itself and its posts. What is posted waits in a list under a mutex; a wake-up takes the
// whole list at once, so a task that posts again does not keep the loop from its sockets.
#include "loop/loop.h"

#include <uv.h>

#include <cassert>
#include <mutex>
#include <utility>

#include "base/text.h"
#include "loop/descriptors.h"

namespace weft {

struct Loop::State {
  explicit State(Loop& of) : owner(of) {}

  Loop& owner;
  uv_loop_t loop{};
  uv_async_t wake{};
  std::mutex mutex;
  Task* first = nullptr;  // posted, under mutex
  Task** last = &first;   // under mutex
  bool stopping = false;  // under mutex
  std::function<void(const Status&)> on_failure;

  static void woken(uv_async_t* handle) { static_cast<State*>(handle->data)->drain(); }

  void drain() {
    bool end;
    Task* task;
    {
      const std::lock_guard lock(mutex);
      task = take();
      end = stopping;
    }
    while (task != nullptr) {
      Task* const next = task->next_;  // the task may be gone when it has run
      owner.protect([task] { task->run(); });
      task = next;
    }
    if (end) uv_stop(&loop);
  }

  Task* take() {
    last = &first;
    return std::exchange(first, nullptr);
  }
};

namespace {
// The first loop of a process has a pipe of libuv's own, and libuv ends the process where it cannot
// be made. Every loop has four more, and whoever makes one soon needs others.
constexpr int kDescriptors = 8;
}  // namespace

Loop::Loop() : state_(std::make_unique<State>(*this)) {}

Result<std::unique_ptr<Loop>> Loop::make() {
  WEFT_TRY(spare_descriptors(kDescriptors, "event loop: cannot be made"));
  std::unique_ptr<Loop> made(new Loop);
  State& state = *made->state_;
  if (const int error = uv_loop_init(&state.loop); error != 0) {
    state.loop.data = nullptr;
    return system_failure("event loop: cannot be made", -error);
  }
  state.loop.data = &state;
  if (const int error = uv_async_init(&state.loop, &state.wake, State::woken); error != 0)
    return system_failure("event loop: cannot be woken", -error);
  state.wake.data = &state;
  return made;
}

Loop::~Loop() {
  if (state_->loop.data == nullptr) return;
  if (state_->wake.data != nullptr)
    uv_close(reinterpret_cast<uv_handle_t*>(&state_->wake), nullptr);
  // What was destroyed after run() returned still waits for its close callback.
  uv_run(&state_->loop, UV_RUN_DEFAULT);
  [[maybe_unused]] const int left = uv_loop_close(&state_->loop);
  assert(left == 0);
  for (Task* task = state_->take(); task != nullptr;) std::exchange(task, task->next_)->drop();
}

void Loop::run() { uv_run(&state_->loop, UV_RUN_DEFAULT); }

bool Loop::post(Task& task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return false;
  task.next_ = nullptr;
  *state_->last = &task;
  state_->last = &task.next_;
  // Under the lock: after stop() the loop may end and be destroyed as soon as nobody holds it.
  uv_async_send(&state_->wake);
  return true;
}

bool Loop::post(std::function<void()> body) {
  struct Posted final : Task {
    explicit Posted(std::function<void()> b) : body(std::move(b)) {}
    void run() override {
      const std::unique_ptr<Posted> self(this);  // what it holds goes before the next one runs
      body();
    }
    void drop() override { delete this; }
    std::function<void()> body;
  };
  auto task = std::make_unique<Posted>(std::move(body));
  const bool posted = post(*task);
  if (posted) (void)task.release();
  return posted;
}

void Loop::dispose(std::unique_ptr<Disposable> what) {
  if (post(*what)) (void)what.release();
}

void Loop::on_failure(std::function<void(const Status&)> told) {
  state_->on_failure = std::move(told);
}

void Loop::failed(const Status& status) noexcept {
  (void)attempt([&] {
    if (state_->on_failure) state_->on_failure(status);
    return Status();
  });
}

void Loop::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  uv_async_send(&state_->wake);
}

int64_t Loop::now_ms() const {
  uv_update_time(&state_->loop);
  return static_cast<int64_t>(uv_now(&state_->loop));
}

uv_loop_s* Loop::uv() const { return &state_->loop; }

}  // namespace weft
