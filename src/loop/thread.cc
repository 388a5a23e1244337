// pthreads rather than std::thread: a thread that cannot be started is a status, not an exception.
#include "loop/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <uv.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/text.h"

namespace weft {

struct Thread::State {
  pthread_t handle{};
  std::string name;
  int niceness = 0;
  std::function<void()> body;

  static void* enter(void* state) {
    static_cast<State*>(state)->live();
    return nullptr;
  }

  void live() {
    pthread_setname_np(pthread_self(), name.c_str());
    // On Linux a niceness belongs to a thread, and 0 names the caller's.
    if (niceness != 0)
      setpriority(PRIO_PROCESS, 0, std::clamp(getpriority(PRIO_PROCESS, 0) + niceness, -20, 19));
    body();
  }
};

Thread::Thread(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Thread>> Thread::start(const std::string& name, int niceness,
                                              std::function<void()> body) {
  auto state = std::make_unique<State>();
  state->name = name.substr(0, 15);
  state->niceness = niceness;
  state->body = std::move(body);
  State* const started = state.get();
  std::unique_ptr<Thread> thread(
      new Thread(std::move(state)));  // before the thread runs: from then on nothing may fail
  // A new thread inherits the mask, so it never runs without it. Faults stay open: the system kills
  // a thread that blocks its own, and the host's handler (a crash reporter, a language runtime
  // behind a callback) would not hear of it.
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

}  // namespace weft
