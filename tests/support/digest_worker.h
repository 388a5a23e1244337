// A rank whose tensors are digests. DigestWorker replaces runtime/worker.h, with the same jobs and
// places. It stores which bytes contain which value. Therefore a place that is reused too early, or
// read before it was written, is an error and not only another digest.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/controller.h"
#include "plan/plan.h"
#include "support/provenance.h"

namespace weft::test {

// A step of a mesh of such ranks.
struct DigestStep {
  StepResult result;
  // [sink][micro-batch], in the order of the mode's sink edges.
  std::vector<std::vector<Digest>> deliveries;
};

class DigestWorker {
 public:
  DigestWorker(std::shared_ptr<const Plan> plan, int32_t rank);

  Status run(const StepDescriptor& step, double scale, int32_t job);
  std::span<const double> squares() const { return std::span(squares_).first(summed_); }
  // Of a feed: the input.
  Result<Digest> outgoing(const StepDescriptor& step, int32_t edge, int32_t micro_batch) const;
  Status land(const StepDescriptor& step, int32_t edge, int32_t micro_batch, const Digest& value);
  Result<Digest> landed(const StepDescriptor& step, int32_t edge, int32_t micro_batch) const;
  // Rank 0: the deliveries of micro-batches, [sink][micro-batch] in the order of the sink edges.
  Status read_sinks(const StepDescriptor& step, int32_t micro_batch,
                    std::vector<std::vector<Digest>>& out) const;
  Result<Digest> weight(ParamId param) const;
  Result<Digest> grad(ParamId param) const;

 private:
  struct Held {
    int64_t bytes;
    Digest digest;
  };
  const RankProgram& program(Mode mode) const {
    return plan_->mode(mode).ranks[static_cast<size_t>(rank_)];
  }
  int64_t address(const RankProgram& program, const Place& place, int32_t micro_batch,
                  uint64_t sequence) const;
  Result<Digest> read(int64_t address, int64_t bytes, const std::string& what) const;
  void write(int64_t address, int64_t bytes, const Digest& digest);
  // To the copy that other ranks get, if there is one.
  void write_sent(const ResidentParam& param, const Digest& value);
  Status run_action(const StepDescriptor& step, const RankProgram& program, const Job& job);
  Status run_call(const StepDescriptor& step, const RankProgram& program, const ProgramCall& call,
                  int32_t micro_batch);
  Result<std::vector<Digest>> operands_of(const StepDescriptor& step, const RankProgram& program,
                                          const ProgramCall& call, int32_t micro_batch);
  Status add_to_sum(const StepDescriptor& step, const ProgramCall& call, int32_t micro_batch,
                    const Digest& sum);
  const WeightVersions& versions() const { return plan_->versions[static_cast<size_t>(rank_)]; }
  // One of the sums of an accumulator, see GroupSums.
  static int64_t sum_at(const PlacedOperand& accumulator, int32_t depth);
  Status fold(int64_t from, int64_t to, int64_t bytes);
  void clear();
  Status reduce(const Bucket& bucket, int32_t update, int32_t parts);
  Status add_sums(const ResidentParam& p, const Bucket::Part& part, int32_t update);
  Status update(uint64_t step, int32_t from, int32_t to, double scale);
  Status run_update(const StepDescriptor& step, int32_t update);
  Status make_first(int32_t version);
  const ResidentParam* find(ParamId param) const;

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;
  std::map<int64_t, Held> memory_;  // by address; never overlapping
  std::vector<double> squares_;
  size_t owned_ = 0, summed_ = 0;  // parameters; squares of the last step
};

}  // namespace weft::test
