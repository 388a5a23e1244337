// When the gradients of a step are added, and when their slots are free for others.
#include "engine/engine.h"

namespace weft {

void Engine::begin_reductions() {
  const std::vector<Bucket>& buckets = program().buckets;
  const std::vector<AccumulatorRun>& runs = program().runs;
  const bool has_sums =
      (own_.first < step_.micro_batches || !runs.empty()) && step_.per_update == 0;
  for (size_t r = 0; r < runs.size(); ++r)
    uses_of_run_[r] = static_cast<int32_t>(runs[r].sends.size()) + (runs[r].bucket >= 0);
  reducible_.clear();
  unreduced_ = static_cast<int32_t>(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    Reduction& reduction = reductions_[b];
    reduction.given = false;
    reduction.missing = (has_sums ? buckets[b].sums : 0) + reduction.follows;
    if (step_.per_update == 0)
      for (const int32_t e : buckets[b].waits) reduction.missing += !here(port_of(e), 0);
    if (reduction.missing == 0) reducible_.push_back(static_cast<int32_t>(b));
  }
}

// The updates of a segment have waits of their own.
void Engine::complete(int32_t bucket) {
  if (step_.per_update > 0) return;
  if (--reductions_[static_cast<size_t>(bucket)].missing == 0) reducible_.push_back(bucket);
}

// Its slot is free when its sums have left and its own ones are added.
void Engine::leave(int32_t run, Effects& effects) {
  if (run < 0 || --uses_of_run_[static_cast<size_t>(run)] > 0) return;
  for (const int32_t edge : program().runs[static_cast<size_t>(run)].grants)
    effects.grant(step_, edge, 0);
}

bool Engine::adds_zeros(const Job& job) const {
  return job.kind == JobKind::action && job.micro_batch >= step_.micro_batches &&
         span_of(job).sums_only;
}

}  // namespace weft
