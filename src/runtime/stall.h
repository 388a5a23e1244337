// Detects a rank that does not make progress: no finished action for 30 s (10 minutes if it has ops
// of the program, whose time is unknown), ten times the median action or a hundred times the
// longest action on a fast processor, whichever is longest. So a long kernel is not a stall. A rank
// that waits for one that computes is not watched: see RankNode::must_progress().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/median.h"
#include "engine/messages.h"

namespace weft {

class StallWatch {
 public:
  // Nanoseconds.
  static constexpr int64_t kLeast = 30'000'000'000, kLeastWithOps = 20 * kLeast;

  // `longest_action`: of any rank on a fast processor, in seconds. Before the first action there is
  // no median.
  StallWatch(int64_t least, double longest_action, int64_t now)
      : least_(std::max(least, static_cast<int64_t>(100e9 * std::min(longest_action, 1e6)))),
        last_(now),
        looked_(now) {}
  void ran(const JobTime& time) {
    last_ = time.end;
    durations_[count_++ % durations_.size()] = time.end - time.begin;
  }
  // Nothing has to make progress until now.
  void begin(int64_t now) { last_ = looked_ = now; }
  // The time without progress, if it is too long; otherwise 0. Call it every second: a longer gap
  // means that this process itself was stopped, and is not counted.
  int64_t stalled(int64_t now) {
    if (now - looked_ > kGap) last_ += now - looked_;
    looked_ = now;
    return now - last_ > limit() ? now - last_ : 0;
  }

  int64_t limit() const {
    const size_t n = std::min(count_, durations_.size());
    if (n == 0) return least_;
    auto values = durations_;
    return std::max(least_, 10 * median(std::span(values).first(n)));
  }

 private:
  static constexpr int64_t kGap = 3'000'000'000;
  const int64_t least_;
  int64_t last_, looked_;
  std::array<int64_t, 64> durations_{};
  size_t count_ = 0;
};

}  // namespace weft
