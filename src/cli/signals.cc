#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

namespace weft::cli {

namespace {

volatile std::sig_atomic_t g_signal = 0;

extern "C" void on_signal(int number) {
  if (g_signal) _exit(128 + number);
  g_signal = number;
}

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return g_signal; }

}  // namespace weft::cli
