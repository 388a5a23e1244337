// How long each job of a plan takes: the one place where times of nodes become times of jobs.
#pragma once

#include <array>
#include <vector>

#include "plan/plan.h"
#include "plan/times.h"

namespace weft {

// Bytes a second that a rank moves where it only moves them: clearing, folding, updating. That of a modest core.
constexpr double kMemorySpeed = 1e10;

class JobCosts {
 public:
  // `times`: per node of the model, of a full micro-batch; empty: analysed_times. `speeds`: per rank, empty: all 1.
  JobCosts(const Plan& plan, Mode mode, const std::vector<NodeTimes>& times, const std::vector<double>& speeds);

  // Seconds.
  double of(int32_t rank, const Job& job) const {
    const RankCosts& costs = ranks_[static_cast<size_t>(rank)];
    return job.kind == JobKind::action ? costs.programs[static_cast<size_t>(job.program)] : costs.step[static_cast<size_t>(job.kind)];
  }

 private:
  struct RankCosts {
    std::vector<double> programs;      // per program of the mode
    std::array<double, 6> step = {};   // per JobKind
  };
  std::vector<RankCosts> ranks_;
};

}  // namespace weft
