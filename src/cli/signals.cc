#include "cli/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace weft::cli {

namespace {

volatile std::sig_atomic_t g_signal = 0;
std::atomic<weft_mesh*> g_mesh = nullptr;
static_assert(std::atomic<weft_mesh*>::is_always_lock_free, "a signal handler reads it");

extern "C" void on_signal(int number) {
  if (g_signal) _exit(128 + number);
  g_signal = number;
  weft_mesh_cancel(g_mesh);
}

extern "C" void on_child(int) { weft_mesh_cancel(g_mesh); }

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return g_signal; }

CancelOnSignal::CancelOnSignal(weft_mesh* mesh) {
  g_mesh = mesh;
  struct sigaction action = {};
  action.sa_handler = on_child;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, nullptr);
  if (g_signal) weft_mesh_cancel(mesh);
}

CancelOnSignal::~CancelOnSignal() {
  std::signal(SIGCHLD, SIG_DFL);
  g_mesh = nullptr;
}

}  // namespace weft::cli
