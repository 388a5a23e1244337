// The simulator, with digests as the values of tensors.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/sim.h"
#include "support/digest_worker.h"

namespace weft::test {

class DigestSim final : private SimValues {
 public:
  DigestSim(std::shared_ptr<const Plan> plan, SimCosts costs) : sim_(plan, std::move(costs), this) {
    for (int32_t r = 0; r < plan->config.ranks; ++r) workers_.emplace_back(plan, r);
  }

  Result<DigestStep> step(const StepDescriptor& step) {
    deliveries_.clear();
    WEFT_TRY_ASSIGN(SimStep done, sim_.step(step));
    return DigestStep{std::move(done.result), std::move(deliveries_)};
  }
  const DigestWorker& worker(int32_t rank) const { return workers_[static_cast<size_t>(rank)]; }

 private:
  DigestWorker& at(int32_t rank) { return workers_[static_cast<size_t>(rank)]; }
  Result<std::span<const double>> ran(int32_t rank, const StepDescriptor& step, double scale,
                                      int32_t job) override {
    WEFT_TRY(at(rank).run(step, scale, job));
    return at(rank).squares();
  }
  Status left(int32_t rank, const StepDescriptor& step, int32_t edge,
              int32_t micro_batch) override {
    WEFT_TRY_ASSIGN(in_transit_[std::pair(edge, micro_batch)],
                    at(rank).outgoing(step, edge, micro_batch));
    return {};
  }
  Result<double> arrived(int32_t rank, const StepDescriptor& step, int32_t edge,
                         int32_t micro_batch) override {
    const Digest value = in_transit_.at(std::pair(edge, micro_batch));
    WEFT_TRY(at(rank).land(step, edge, micro_batch, value));
    return as_number(value);
  }
  Status delivered(const StepDescriptor& step, int32_t micro_batch) override {
    return at(0).read_sinks(step, micro_batch, deliveries_);
  }

  std::vector<DigestWorker> workers_;
  std::map<std::pair<int32_t, int32_t>, Digest> in_transit_;  // by edge and micro-batch
  std::vector<std::vector<Digest>> deliveries_;
  Sim sim_;
};

}  // namespace weft::test
