// A plan as a file: where the stages of a model begin, its schedule and its settings. What it leaves out follows from these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

struct PlanFile {
  std::string weft;                 // who wrote it
  Digest model_hash;                // a plan is of this model alone
  std::optional<Digest> plan_hash;  // of the plan as it was saved; none: whatever plan the rest makes
  uint64_t ranks = 1, micro_batches = 1, micro_batch_size = 1, short_size = 0, chunks = 0, group = 0, warm_up = 0, memory_limit = 0,
           seed = 0;
  uint64_t slack = 0;    // landing places beyond what a stage holds
  uint64_t segment = 0;  // updates of an asynchronous schedule's step
  bool vertical_sync = false;
  std::string schedule, recompute;
  std::vector<std::string> rows;  // the schedule written out, a row per rank; empty: as `schedule` makes it
  std::vector<std::string> cuts;  // the first nodes of stages 1, 2, ...
  std::string rule, curve;
  bool decay_all = false;
  double rate = 0, momentum = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, min_rate = 0, clip = 0;
  uint64_t warmup = 0, total = 0;
  friend bool operator==(const PlanFile&, const PlanFile&) = default;
};

// Fails for text that is not UTF-8.
Result<std::string> print_plan(const PlanFile& plan);
Result<PlanFile> parse_plan(std::string_view text);

}  // namespace weft
