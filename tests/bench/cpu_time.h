// Times what this thread computes. Other programs on a busy machine do not count.
#pragma once

#include <ctime>

namespace weft::bench {

inline double cpu_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename F>
double seconds(const F& f) {
  const double begin = cpu_time();
  f();
  return cpu_time() - begin;
}

}  // namespace weft::bench
