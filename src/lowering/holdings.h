// What a stage holds: the one account of the bytes of activations, gradients and scratch memory.
// Tensors get their places by it, and what is chosen under a limit of bytes (stages, recompute, the
// order of zb-auto) is chosen by it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "lowering/stage_work.h"
#include "schedule/lock_step.h"

namespace weft {

// What every node infers for a full and for the short micro-batch.
class Shapes {
 public:
  Shapes() = default;
  Shapes(const Model& model, const PlanConfig& config);
  const Inferred& of(NodeId node, size_t variant) const {
    return inferred_[variant][static_cast<size_t>(node)];
  }
  Desc desc(const StepGraph& graph, TensorId t, size_t variant) const;

 private:
  std::vector<Inferred> inferred_[2];
};

// Tensors of a stage that are taken and left together. They have a place for each micro-batch
// between the two.
struct Holding {
  enum class Kind : uint8_t {
    feed,     // from the controller
    landing,  // from another rank
    kept,     // made here, and used here in a later phase
    shared,  // made here, and used by other ranks, by the controller or by other stages of the rank
  };
  struct Tensor {
    TensorId id;
    bool again;  // as it is made again (StageWork::remade)
    int64_t offset;
  };
  struct Reader {
    int32_t stage, phase;
  };
  Kind kind;
  int32_t first, last;  // phases of the stage that take and leave them
  std::vector<Tensor> tensors;
  std::vector<Reader> readers;  // shared: held until these have run, too
  int64_t bytes = 0;            // of a place
};

struct StageHoldings {
  std::vector<Holding> list;
  // Scratch memory: what lives within one phase, packed by lifetime.
  int64_t scratch = 0;  // bytes
  std::map<std::pair<bool, TensorId>, int64_t>
      temporaries;  // offsets; whether it is made again, tensor
  std::map<std::pair<const StepCall*, int32_t>, int64_t>
      call_scratch;  // offsets of what a call needs in a phase
};

// What crosses the borders of a stage.
struct StageTraffic {
  std::vector<TensorId> arrivals;  // from other ranks and from the controller
  std::map<TensorId, std::vector<Holding::Reader>>
      shared;  // made here: when the stages that use it have done so
};

StageHoldings holdings_of(const StageWork& work, const StageTraffic& traffic, const Model& model,
                          const StepGraph& graph, const Shapes& shapes);

// Places of the holding of that stage. What arrives has `slack` more, so that the next message can
// land while the rank computes. Every `turn`-th micro-batch is on one rank.
int32_t places_of(const Holding& holding, int32_t stage, const StageTimes& times, int32_t slack,
                  int32_t turn);

}  // namespace weft
