// The step graph: every kernel call of one step, decided from the whole model before it is
// partitioned. The later steps (partition, schedule, ranks, threads, transport) determine where and
// when a call runs. They never add, merge, split or reassociate calls.
//
// All micro-batches have the same calls. Therefore the graph contains the calls of one micro-batch
// in canonical order: forward in node order, backward in reverse node order. Sums over
// micro-batches and updates are not part of it.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "graph/model.h"

namespace weft {

enum class Mode : uint8_t {
  train,  // forward, backward, update: what the loss needs, and the outputs if they are delivered
  eval,   // forward: the same
  infer,  // forward: what the outputs need
  fill,   // forward: what the state of nodes needs, as the caches of a decoder
};
constexpr int kModes = 4;
constexpr std::array<Mode, kModes> kEveryMode = {Mode::train, Mode::eval, Mode::infer, Mode::fill};
// Whether steps have a loss.
constexpr bool has_loss(Mode mode) { return mode == Mode::train || mode == Mode::eval; }
const char* mode_name(Mode mode);

enum class CallKind : uint8_t {
  forward,
  input_grad,
  weight_grad,
  add,   // the sum of two gradients
  join,  // the gradients of slices side by side: the gradient of the value that they divide
};
// Whether the call makes a gradient from other gradients, without the kernel of an op.
constexpr bool folds(CallKind kind) { return kind == CallKind::add || kind == CallKind::join; }
// Whether the call writes StepCall::out and its stash; others read them.
constexpr bool makes_output(CallKind kind) { return kind == CallKind::forward || folds(kind); }

// Whether the call reads the values of the node's parameters.
bool reads_weights(const Node& node, CallKind kind);

using TensorId = int32_t;  // index into StepGraph::tensors

struct StepTensor {
  enum class Role : uint8_t {
    value,  // output of `node`
    stash,  // stash `index` of `node`
    grad,   // gradient with the shape of `node`'s output: of one use of it, or a partial fold of
            // several
  };
  Role role;
  NodeId node;
  int32_t index = 0;
  NodeId maker;              // the node whose stage makes it
  DType dtype = DType::f32;  // in which an f32 tensor is stored between calls: f32 or bf16
};

struct StepCall {
  CallKind kind;
  NodeId node;                    // add: the node whose gradient is folded; join: the first slice
  NodeId where;                   // the node whose stage runs it
  int32_t weight = -1;            // weight_grad: index into Node::weights
  std::vector<TensorId> in = {};  // per input port, -1 where not read; add: the two addends, later
                                  // use first; join: in order
  TensorId out = -1;  // forward, add, join: written; input_grad, weight_grad: read, or -1
  std::vector<TensorId> stash = {};  // forward: written; else read or empty
  TensorId dout = -1;  // -1: a loss, or what adds to a moving average and has no gradient
  std::vector<TensorId> din = {};  // input_grad: per input port, -1 if no gradient is needed
};

struct StepGraph {
  Mode mode = Mode::train;
  std::vector<StepTensor> tensors;
  std::vector<StepCall> calls;
  std::vector<TensorId> value;  // per node: its output, -1 where the mode does not need it
  std::vector<TensorId> grad;   // per node: the whole gradient of its output, -1: none
  std::vector<TensorId>
      sinks;  // delivered to the controller per micro-batch: outputs, the loss, gradients of inputs

  Desc desc(const Model& model, TensorId id, int64_t samples) const;
  // How the tensor is stored, if calls make and read it as `desc`.
  Desc stored(TensorId id, Desc desc) const {
    if (desc.dtype == DType::f32) desc.dtype = tensors[static_cast<size_t>(id)].dtype;
    return desc;
  }
};

// What build_step_graph() needs besides the model.
struct StepGraphOptions {
  DType values = DType::f32;  // in which values and gradients between nodes are stored, f32 or
                              // bf16; inputs, what the controller receives, and stash remain f32
  bool outputs = false;       // the controller receives the outputs of the model
};

// The calls are the same for all stages.
StepGraph build_step_graph(const Model& model, Mode mode, const std::vector<int32_t>& stage_of_node,
                           const StepGraphOptions& options);

// Calls visit(tensor, written) for each tensor of the call, without -1.
template <typename Visit>
void each_tensor(const StepCall& call, Visit&& visit) {
  const bool makes = makes_output(call.kind);
  const auto one = [&visit](TensorId t, bool written) {
    if (t >= 0) visit(t, written);
  };
  for (const TensorId t : call.in) one(t, false);
  one(call.out, makes);
  for (const TensorId t : call.stash) one(t, makes);
  one(call.dout, false);
  for (const TensorId t : call.din) one(t, true);
}

// Sets the node whose stage runs each add and join of gradients. An add runs in the stage of the
// uses if all of them so far are in one stage (one message carries their sum), otherwise in the
// stage of the value; a join in the stage of its slices if they are in one stage, otherwise in the
// stage of the value.
void place_folds(StepGraph& graph, const Model& model, const std::vector<int32_t>& stage_of_node);
// One of them, after those whose results it reads.
void place_fold(StepGraph& graph, const Model& model, StepCall& call,
                const std::function<int32_t(NodeId)>& stage_of);

}  // namespace weft
