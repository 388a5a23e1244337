// What `weft train` tells while it runs: JSON lines, or a line for a person.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/json.h"
#include "weft.h"

namespace weft::cli {

struct StepReport {
  uint64_t step = 0;  // counts from 1
  double loss = 0, grad_norm = 0, per_second = 0;
  double idle = 0;
  std::vector<double> micro_batch_losses, idle_by_rank;
};

struct DoneReport {
  std::string digest, optimizer_digest, kernels;
  uint64_t steps = 0;
  double seconds = 0;
  int64_t parameters = 0;
  std::vector<int64_t> planned_bytes, measured_bytes;
};

class Report {
 public:
  // `unit`: what per_second counts, "tokens" or "samples".
  Report(bool json, bool quiet, uint64_t steps, const char* unit)
      : json_(json), steps_(steps), unit_(unit), progress_(json || quiet) {}

  void step(const StepReport& report);
  void evaluated(uint64_t step, double loss, int64_t windows);
  void saved(uint64_t step, const std::string& path);
  void done(const DoneReport& report);
  void clear() { progress_.clear(); }

 private:
  const bool json_;
  const uint64_t steps_;
  const char* unit_;
  Progress progress_;
  StepReport last_;
  double eval_loss_ = -1;
  uint64_t eval_step_ = 0;
};

}  // namespace weft::cli
