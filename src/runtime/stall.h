// When a rank that should go on does not: no finished action for 30 s, ten times the median action
// or a hundred times what the longest one takes on a fast processor, whichever is longest. A long
// kernel is no stall until then, and a rank that waits stalls later than the one it waits for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/messages.h"

namespace weft {

class StallWatch {
 public:
  static constexpr int64_t kLeast = 30'000'000'000;  // nanoseconds

  // What the longest action of any rank takes on a fast processor: a first one has no median yet.
  void expect(double seconds) {
    least_ = std::max(kLeast, static_cast<int64_t>(100e9 * std::min(seconds, 1e6)));
  }
  void ran(const JobTime& time) {
    last_ = time.end;
    durations_[count_++ % durations_.size()] = time.end - time.begin;
  }
  void begin(int64_t now) { last_ = looked_ = now; }  // a step begins
  // How long nothing has happened, if that is too long; else 0. To be asked every second: a longer
  // gap is a time in which this process itself was stopped, and counts for nothing.
  int64_t stalled(int64_t now) {
    if (now - looked_ > kGap) last_ += now - looked_;
    looked_ = now;
    return now - last_ > limit() ? now - last_ : 0;
  }

  int64_t limit() const {
    const size_t n = std::min(count_, durations_.size());
    if (n == 0) return least_;
    auto sorted = durations_;
    std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
    return std::max(least_, 10 * sorted[n / 2]);
  }

 private:
  static constexpr int64_t kGap = 3'000'000'000;
  int64_t least_ = kLeast, last_ = 0, looked_ = 0;
  std::array<int64_t, 64> durations_{};
  size_t count_ = 0;
};

}  // namespace weft
