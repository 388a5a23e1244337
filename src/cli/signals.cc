#include "cli/signals.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace weft::cli {

namespace {

volatile std::sig_atomic_t g_signal = 0;
std::atomic<weft_mesh*> g_mesh = nullptr;
static_assert(std::atomic<weft_mesh*>::is_always_lock_free, "a signal handler reads it");

volatile std::sig_atomic_t g_grace = 0;  // seconds

std::atomic<const char*> g_answer = nullptr;

std::atomic<const SocketFiles*> g_files = nullptr;

extern "C" void on_signal(int number) {
  if (g_signal && number != SIGHUP) {
    if (const SocketFiles* const files = g_files) files->remove();
    _exit(128 + number);
  }
  if (g_signal) return;
  g_signal = number;
  const char* answer = g_answer;
  if (answer && !g_mesh.load()) {
    const int kept = errno;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, answer, std::strlen(answer));
    errno = kept;
  }
  if (g_grace)
    alarm(static_cast<unsigned>(g_grace));
  else
    weft_mesh_cancel(g_mesh);
}

// The watched processes. Set while the handler is not installed.
const int* g_pids = nullptr;
size_t g_pid_count = 0;

// Checks whether the child that ended is a watched one, and leaves it to be waited for. A signal
// handler may call waitid().
extern "C" void on_child(int) {
  const int kept = errno;
  for (size_t i = 0; i < g_pid_count; ++i) {
    siginfo_t info = {};
    if (g_pids[i] &&
        waitid(P_PID, static_cast<id_t>(g_pids[i]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid)
      weft_mesh_cancel(g_mesh);
  }
  errno = kept;
}

volatile std::sig_atomic_t g_parent_ended = 0;

// A run that has begun detects the end of rank 0 itself, and reports it. This handles a rank that
// is still connecting to rank 0.
extern "C" void on_parent(int) {
  if (g_parent_ended) return weft_mesh_cancel(g_mesh);
  g_parent_ended = 1;
  alarm(2);
}

extern "C" void on_grace_over(int) { weft_mesh_cancel(g_mesh); }

void set_handler(int number, void (*handler)(int), int flags = 0) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;
  sigaction(number, &action, nullptr);
}

}  // namespace

void watch_signals() {
  set_handler(SIGINT, on_signal);
  set_handler(SIGTERM, on_signal);
  struct sigaction hangup = {};
  const bool ignored = sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  if (!ignored) set_handler(SIGHUP, on_signal);  // nohup(1) ignores it
}

void answer_signal_with(const char* text) { g_answer = text; }
int stop_signal() { return g_signal; }
bool parent_ended() { return g_parent_ended != 0; }

SocketFiles::SocketFiles(const weft_mesh* mesh) {
  constexpr std::string_view kScheme = "ipc://", kSocket = "/socket", kOwn = "/weft-";
  const std::string_view endpoint = weft_mesh_endpoint(mesh);
  if (!endpoint.starts_with(kScheme) || !endpoint.ends_with(kSocket)) return;
  socket_ = endpoint.substr(kScheme.size());
  lock_ = socket_ + ".lock";
  directory_ = socket_.substr(0, socket_.size() - kSocket.size());
  if (directory_.find(kOwn, directory_.rfind('/')) != directory_.npos) g_files = this;
}

SocketFiles::~SocketFiles() { g_files = nullptr; }

void SocketFiles::remove() const {
  unlink(socket_.c_str());
  unlink(lock_.c_str());
  rmdir(directory_.c_str());
}

CancelOnSignal::CancelOnSignal(weft_mesh* mesh) {
  g_mesh = mesh;
  if (g_signal) weft_mesh_cancel(mesh);
}

void CancelOnSignal::watch(std::span<const int> pids) {
  g_pids = pids.data();
  g_pid_count = pids.size();
  set_handler(SIGCHLD, on_child, SA_NOCLDSTOP);
  on_child(SIGCHLD);
}

void CancelOnSignal::watch_parent(int pid) const {
  set_handler(SIGALRM, on_parent);
  prctl(PR_SET_PDEATHSIG, SIGALRM);
  if (getppid() != pid) raise(SIGALRM);
}

void CancelOnSignal::leave_to_rank_zero() const {
  set_handler(SIGALRM, on_grace_over);
  g_grace = 30;
}

CancelOnSignal::~CancelOnSignal() {
  g_grace = 0;
  std::signal(SIGALRM, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
  g_pid_count = 0;
  g_mesh = nullptr;
}

}  // namespace weft::cli
