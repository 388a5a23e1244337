// pthreads rather than std::thread: a thread that cannot be started is a status, not an exception.
#include "loop/thread.h"

#include <pthread.h>
#include <uv.h>

#include <atomic>
#include <csignal>
#include <utility>
#include <vector>

#include "base/text.h"

namespace weft {

struct Thread::State {
  pthread_t handle{};
  std::string name;
  std::function<void()> body;

  static void* enter(void* state) {
    static_cast<State*>(state)->live();
    return nullptr;
  }

  void live() {
    pthread_setname_np(pthread_self(), name.c_str());
    body();
  }
};

Thread::Thread(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Thread>> Thread::start(const std::string& name, std::function<void()> body) {
  auto state = std::make_unique<State>();
  state->name = name.substr(0, 15);
  state->body = std::move(body);
  State* const started = state.get();
  std::unique_ptr<Thread> thread(
      new Thread(std::move(state)));  // before it runs: afterwards nothing may fail
  // A new thread inherits the mask, so it never runs without it. Signals of faults are not
  // blocked: the system would end the process without calling the handler of the host (a crash
  // reporter, a language runtime).
  sigset_t mask, before;
  sigfillset(&mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
    sigdelset(&mask, fault);
  pthread_sigmask(SIG_SETMASK, &mask, &before);
  const int error = pthread_create(&started->handle, nullptr, State::enter, started);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return thread;
  thread->state_.reset();
  return Status(
      Code::no_memory,
      cat("thread '", name, "' cannot be started: ", uv_strerror(uv_translate_sys_error(error))));
}

Thread::~Thread() {
  if (state_) pthread_join(state_->handle, nullptr);
}

namespace {

// Threads that only wait.
struct Waiting {
  ~Waiting() {
    end = true;
    end.notify_all();
  }
  std::atomic<bool> end = false;
  std::vector<std::unique_ptr<Thread>> threads;
};

}  // namespace

Status spare_threads(int count, const std::string& what) {
  Waiting waiting;
  waiting.threads.reserve(static_cast<size_t>(count));  // later, nothing fails while one runs
  for (int i = 0; i < count; ++i) {
    auto thread = Thread::start("weft-spare", [&end = waiting.end] { end.wait(false); });
    if (!thread.ok()) return thread.status().within(what);
    waiting.threads.push_back(thread.take());
  }
  return {};
}

}  // namespace weft
