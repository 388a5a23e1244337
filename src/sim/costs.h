// How long each job of a plan takes: the one place where times of nodes become times of jobs.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "plan/times.h"

namespace weft {

// Bytes a second that a rank moves where it only moves them: clearing, folding, updating. That of a
// modest core.
constexpr double kMemorySpeed = 1e10;

class JobCosts {
 public:
  // `times`: per node of the model, of a full micro-batch; empty: analysed_times. `speeds`: per
  // rank, empty: all 1.
  JobCosts(const Plan& plan, Mode mode, const std::vector<NodeTimes>& times,
           const std::vector<double>& speeds);

  // Seconds.
  double of(int32_t rank, const Job& job) const {
    const size_t at = job.kind == JobKind::action ? kKinds + static_cast<size_t>(job.program)
                                                  : static_cast<size_t>(job.kind);
    return costs_[begins_[static_cast<size_t>(rank)] + at];
  }

 private:
  static constexpr size_t kKinds = 6;  // of JobKind
  std::vector<size_t> begins_;         // per rank: where its costs begin,
  std::vector<double> costs_;  // which are those per JobKind, then those per program of the mode
};

}  // namespace weft
