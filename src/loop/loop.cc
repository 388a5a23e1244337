// The loop and its posted tasks. They wait in a list under a mutex. A wake-up takes the whole list
// at once, so that a task that posts again does not delay the sockets.
#include "loop/loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "loop/descriptors.h"
#include "loop/loop_state.h"

namespace weft {

namespace {
// For the first loop of a process libuv makes a pipe, and ends the process if this fails. Every
// loop needs four more descriptors, and its users soon need others.
constexpr int kDescriptors = 8;
constexpr const char* kNotMade = "event loop: cannot be made";
}  // namespace

Loop::State::~State() {
  if (descriptor >= 0) ::close(descriptor);
}

Status Loop::State::open() {
  descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor < 0) return system_failure("event loop: cannot be woken", errno);
  if (const int error = uv_loop_init(&loop); error != 0) return system_failure(kNotMade, -error);
  is_open = true;
  if (const int error = uv_poll_init(&loop, &poll, descriptor); error != 0)
    return system_failure("event loop: cannot be woken", -error);
  poll.data = this;
  const auto drain_it = [](uv_poll_t* handle, int, int) {
    static_cast<State*>(handle->data)->drain();
  };
  if (const int error = uv_poll_start(&poll, UV_READABLE, drain_it); error != 0)
    return system_failure("event loop: cannot be woken", -error);
  return {};
}

void Loop::State::close() {
  if (!is_open) return;
  if (poll.data != nullptr) uv_close(reinterpret_cast<uv_handle_t*>(&poll), nullptr);
  // What was destroyed after run() returned still waits for its close callback.
  uv_run(&loop, UV_RUN_DEFAULT);
  [[maybe_unused]] const int left = uv_loop_close(&loop);
  assert(left == 0);
}

void Loop::State::wake() {
  if (woken.exchange(true)) return;  // drain() looks for the reason after it has cleared this
  [[maybe_unused]] const int result = eventfd_write(descriptor, 1);
}

void Loop::State::drain() {
  eventfd_t count = 0;
  [[maybe_unused]] const int result = eventfd_read(descriptor, &count);
  woken.exchange(false);
  for (size_t i = 0; i < signals.size(); ++i) {  // by index: they come and go meanwhile
    const std::shared_ptr<Signal::State> signal = signals[i];
    if (signal && signal->pending.exchange(false)) owner.protect(signal->raised);
  }
  std::erase(signals, nullptr);
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

Loop::Task* Loop::State::take() {
  last = &first;
  return std::exchange(first, nullptr);
}

Loop::Loop() : state_(std::make_unique<State>(*this)) {}

Result<std::unique_ptr<Loop>> Loop::make() {
  // libuv ends the process if it closes a standard descriptor. If the host has closed some, these
  // get their numbers, so that the descriptors of the loop have others.
  WEFT_TRY_ASSIGN(const HeldDescriptors standard, HeldDescriptors::hold(3, kNotMade));
  WEFT_TRY(spare_descriptors(kDescriptors, kNotMade));
  std::unique_ptr<Loop> made(new Loop);
  WEFT_TRY(made->state_->open());
  return made;
}

Loop::~Loop() {
  state_->close();
  for (Task* task = state_->take(); task != nullptr;) std::exchange(task, task->next_)->drop();
}

void Loop::run() { uv_run(&state_->loop, UV_RUN_DEFAULT); }

bool Loop::post(Task& task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return false;
  task.next_ = nullptr;
  *state_->last = &task;
  state_->last = &task.next_;
  // Under the lock: after stop() the loop may end and be destroyed as soon as the lock is free.
  state_->wake();
  return true;
}

bool Loop::post(std::function<void()> body) {
  struct Posted final : Task {
    explicit Posted(std::function<void()> b) : body(std::move(b)) {}
    void run() override {
      const std::unique_ptr<Posted> self(this);  // destroyed before the next task runs
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

void Loop::on_failure(std::function<void(const Status&)> callback) {
  state_->on_failure = std::move(callback);
}

void Loop::failed(const Status& status) noexcept {
  (void)attempt([&] {
    if (state_->on_failure) state_->on_failure(status);
  });
}

void Loop::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->wake();
}

int64_t Loop::now_ms() const {
  uv_update_time(&state_->loop);
  return static_cast<int64_t>(uv_now(&state_->loop));
}

uv_loop_s* Loop::uv() const { return &state_->loop; }

}  // namespace weft
