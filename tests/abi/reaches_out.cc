// For abi_test.py: code that asks the clock, takes a lock and opens a file. symbols.py has to see
// all three.
#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <ctime>

long reach_out(pthread_mutex_t* mutex) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(mutex);
  std::FILE* file = std::fopen("/dev/null", "r");
  return file ? now.tv_nsec : std::chrono::steady_clock::now().time_since_epoch().count();
}
