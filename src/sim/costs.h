// The time of each job of a plan. Only here are the times of nodes converted to times of jobs.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"
#include "plan/times.h"

namespace weft {

// Memory bandwidth of a rank in bytes per second, for jobs that only move data: clearing, folding,
// updating. The value of a modest core, if none was measured.
constexpr double kMemorySpeed = 1e10;

class JobCosts {
 public:
  // `times`: per node of the model, of a full micro-batch; empty: analysed_times. `speeds`: per
  // rank, empty: all 1.
  JobCosts(const Plan& plan, Mode mode, const std::vector<NodeTimes>& times,
           const std::vector<double>& speeds);

  // Refuses times that are too long for a simulation.
  Status check() const;

  // Seconds. The first of jobs that run at once has the time of all of them, the others have 0.
  double of(int32_t rank, const Job& job) const {
    if (job.together == 0) return 0;
    const size_t at = index_of(begins_[static_cast<size_t>(rank)], job);
    return costs_[at] + (job.together - 1) * further_[at];
  }

 private:
  static constexpr size_t kKinds = 6;  // of JobKind
  // The start of the costs of a rank: per JobKind, per bucket, and per program of the mode.
  struct Begins {
    size_t kinds, buckets, programs;
  };
  static size_t index_of(const Begins& begins, const Job& job) {
    const auto program = static_cast<size_t>(std::max(job.program, 0));
    switch (job.kind) {
      case JobKind::action: return begins.programs + program;
      case JobKind::reduce: return begins.buckets + program;
      default: return begins.kinds + static_cast<size_t>(job.kind);
    }
  }
  std::vector<Begins> begins_;  // per rank
  std::vector<double> costs_;
  std::vector<double> further_;  // of each further micro-batch that runs at once with the first
};

}  // namespace weft
