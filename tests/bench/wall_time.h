// Times what several threads or processes do, and the middle of such times.
#pragma once

#include <chrono>
#include <vector>

#include "base/median.h"

namespace weft::bench {

template <typename F>
double wall_seconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) { return weft::median(std::span(values)); }

}  // namespace weft::bench
