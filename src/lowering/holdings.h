// The memory of a stage: the only account of the bytes of activations, gradients and scratch
// memory. It determines where tensors are stored, and all choices within a memory limit use it
// (stages, recompute, the order of zb-auto).
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/flat_map.h"
#include "lowering/stage_work.h"
#include "schedule/lock_step.h"
#include "tensor/byte_count.h"

namespace weft {

// Of the tensors of a graph, as they are stored, and what its calls need while they run; aligned.
struct GraphBytes {
  std::vector<int64_t> tensors, calls;
};

// The inferred shapes of every node for a full and for the short micro-batch.
class Shapes {
 public:
  Shapes() = default;
  Shapes(const Model& model, const PlanConfig& config, const Schedule& train);
  const Inferred& of(NodeId node, size_t variant) const {
    return inferred_[variant][static_cast<size_t>(node)];
  }
  // As the tensor is stored.
  Desc desc(const StepGraph& graph, TensorId t, size_t variant) const;
  GraphBytes bytes(const StepGraph& graph) const;
  RowBlocks row_blocks(const StepGraph& graph, const StepCall& call) const;
  // These parts, aligned.
  int64_t op_scratch(const StepCall& call) const;
  int64_t packed_scratch(const StepCall& call) const;
  // Of the copy of an operand, if the call does not use the type in which it is stored; otherwise
  // 0.
  int64_t bytes_of_copy(const StepGraph& graph, const StepCall& call, const Desc& stored,
                        bool written) const;

 private:
  Desc computed(const StepTensor& tensor, size_t variant) const;
  // Whether the call is a product of bf16 tensors.
  bool takes_bf16(const StepCall& call) const;
  // Whether it sums over rows of tensors that are all bf16, as they are.
  bool sums_bf16(const StepGraph& graph, const StepCall& call) const;
  // Whether the call can be made for some rows at a time; how many there are, and in a block.
  bool is_by_rows(const Node& node) const;
  bool is_by_rows(const StepCall& call) const;
  int64_t rows_of(const StepCall& call) const;
  int64_t rows_of_block(const StepGraph& graph, const StepCall& call) const;
  int64_t bytes_of_part(const StepGraph& graph, const StepCall& call) const;
  // The memory that a call needs while it runs: that of its op, a packed weight that is not kept,
  // and copies of operands; by blocks of rows, so much for each part.
  int64_t scratch(const StepGraph& graph, const StepCall& call) const;

  const Model* model_ = nullptr;
  DType values_ = DType::f32;
  int32_t together_ = 1;  // the most micro-batches whose W can run at once
  std::vector<Inferred> inferred_[2];
  std::vector<bool> by_rows_;       // per node: of its op, with bf16 values
  std::vector<bool> keeps_packed_;  // per node: its first weight
};

// The most micro-batches whose W can run at once, whatever their order is.
int32_t most_together(const Schedule& train, int32_t micro_batches);

// Tensors of a stage that are acquired and released together. They have one slot for each
// micro-batch between both.
struct Holding {
  enum class Kind : uint8_t {
    feed,     // from the controller
    landing,  // from another rank
    kept,     // made here, and used here in a later phase
    shared,  // made here, and used by other ranks, by the controller or by other stages of the rank
  };
  struct Tensor {
    TensorId id;
    bool again;  // of the recomputed tensor (StageWork::remade)
    int64_t offset;
  };
  struct Reader {
    int32_t stage, phase;
  };
  Kind kind;
  int32_t first, last;  // phases of the stage that acquire and release them
  std::vector<Tensor> tensors;
  std::vector<Reader> readers;  // shared: also held until these have run
  int64_t bytes = 0;            // of a slot
};

// Whether such tensors can arrive during the step before theirs.
inline bool arrives_early(const PlanConfig& config, Mode mode, Holding::Kind kind) {
  return (kind == Holding::Kind::feed || kind == Holding::Kind::landing) &&
         config.can_overlap(mode);
}
// The slots of a holding that needs so many, on a rank with so many micro-batches; 0: none.
inline int32_t slots_in(int32_t needed, int32_t own, bool arrives_early) {
  return std::max(std::min(needed, own), arrives_early && needed > 0 ? 2 : 0);
}

struct StageHoldings {
  std::vector<Holding> list;
  // Scratch memory: tensors that exist within one phase, packed by lifetime.
  int64_t scratch = 0;  // bytes
  FlatMap<std::pair<bool, TensorId>, int64_t>
      temporaries;  // offsets; key: whether it is recomputed, tensor
  std::map<std::pair<const StepCall*, int32_t>, int64_t>
      call_scratch;  // offsets of the scratch memory of a call in a phase
};

// The tensors that enter or leave a stage.
struct StageTraffic {
  std::vector<TensorId> arrivals;  // from other ranks and from the controller
  std::map<TensorId, std::vector<Holding::Reader>>
      shared;  // made here: the last phases of the stages that use them
};

StageHoldings holdings_of(const StageWork& work, const StageTraffic& traffic, const Model& model,
                          const StepGraph& graph, const GraphBytes& bytes);

// The number of slots of a holding of this stage of the pipeline, as its readers. Tensors that
// arrive have `slack` more, so that the next message can arrive while the rank computes. Every
// `turn`-th micro-batch is on one rank.
int32_t slots_of(const Holding& holding, int32_t stage, const std::vector<Holding::Reader>& readers,
                 const StageTimes& times, int32_t slack, int32_t turn);

}  // namespace weft
