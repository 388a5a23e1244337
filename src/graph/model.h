// A model: a DAG of ops over named parameters. Built node by node; shapes are inferred at once, a
// mismatch names the node, the port and both shapes. A node has one output, so that the node
// identifies its value; inputs are nodes without an op.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "graph/axes.h"
#include "graph/named_list.h"
#include "graph/piece.h"
#include "ops/op.h"

namespace weft {

using NodeId = int32_t;
using ParamId = int32_t;

constexpr int32_t kMaxShards = 4096;

enum class InitKind : uint8_t { zeros = 0, constant = 1, normal = 2 };

// Initial value of a parameter: a constant, or normal(0, value) by (seed, name, element).
struct Init {
  InitKind kind = InitKind::zeros;
  double value = 0;
  friend bool operator==(const Init&, const Init&) = default;
};

// Names of nodes, parameters and ops have 1 to 200 bytes without spaces and control characters.
// Errors contain `what`.
Status check_name(std::string_view name, const char* what);
Status check_sizes(const Inferred& made);  // of all its tensors

// How a plan trains a parameter. Does not belong to the model that users build.
struct Training {
  bool frozen = false;    // has no gradient and no update: by a group, or the loss has none for it
  bool off_loss = false;  // the loss has none, and no group freezes it
  double rate_factor = 1, decay_factor = 1;  // of the learning rate, of the weight decay
};

struct Param {
  std::string name;
  Shape shape;
  Shape local;  // the shape that nodes use: in an SPMD model, the piece of a coordinate
  Init init;
  struct Use {
    NodeId node;
    int port;     // index into Node::weights
    int32_t sum;  // the accumulator of its gradient
  };
  std::vector<Use> uses;  // ascending by node, then port
  double average = 0;     // what its nodes say, see Op::average
  int32_t sums = 0;       // accumulators, in the order of their first uses
  bool shares = false;    // uses at one coordinate have one accumulator; decides rounding
  ParamPiece piece;
  std::vector<AxisCut> cuts = {};  // ascending by dimension
  Training training = {};

  Desc desc() const { return {DType::f32, local}; }
  // Whether an optimizer moves it by a gradient. A moving average has none.
  bool has_gradient() const { return !training.frozen && average == 0; }
  int32_t sum_of(NodeId node, int port) const;  // of that use
  NodeId first_node(int32_t sum) const;         // of its uses
};

// The node of the unsharded model that a node is, or computes a piece of, or moves data for.
struct NodeOrigin {
  NodeId node = -1;
  int32_t shard = 0;
};

struct Node {
  std::string name;
  NodeId origin = -1;      // the node of the unsharded model, see NodeOrigin
  const Op* op = nullptr;  // null: a model input
  Attrs attrs;
  std::vector<NodeId> in;
  std::vector<ParamId> weights;
  Inferred one;  // for one sample
  bool batched = false;
  bool batched_stash = false;  // of an op of the caller: the stash grows with the samples
  bool wants_grad = false;     // inputs: the caller reads its gradient
  // A gradient flows into its output, if the loss depends on it; with the training of a plan, it
  // does.
  bool needs_grad = false;
  bool f32 = false;   // with precision bf16, too: see stored_as()
  int32_t shard = 0;  // the shard of a model that is cut into shards. Does not affect arithmetic
  std::vector<AxisCut> cuts = {};  // of an input or a delivered output, ascending by dimension
  struct Use {
    NodeId node;
    int port;  // index into Node::in
  };
  std::vector<Use> uses;  // ascending by node, then port

  bool is_input() const { return op == nullptr; }
  // In which type the node multiplies, and its output and the gradient of that are stored.
  DType stored_as(DType values) const {
    return f32 || (op && op->keeps_f32()) ? DType::f32 : values;
  }
};

class Model {
 public:
  // Dimension 0 of an input counts samples and must be 1 here, for example [1, 128]. By default an
  // origin or a piece is the node or parameter itself.
  Result<NodeId> add_input(std::string name, Desc one_sample, bool wants_grad,
                           NodeOrigin origin = {});
  Result<ParamId> add_param(std::string name, Shape shape, Init init, ParamPiece piece = {});
  // Whether add_param accepts the name.
  Status check_param_name(const std::string& name) const;
  // Inputs and weights in port order. An empty name is replaced by "<op>_<number>".
  Result<NodeId> add_node(std::string name, const Op* op, const Attrs& attrs,
                          std::span<const NodeId> in, std::span<const ParamId> weights,
                          NodeOrigin origin = {});
  // 0 until it is set.
  void set_shard(NodeId node, int32_t shard);
  // The node whose output is delivered after a forward-only step. May be called for several nodes.
  Status add_output(NodeId node);
  // With an axis, the model is an SPMD program (axes.h), and expand() converts it to the model to
  // run. Inputs and parameters are cut before a node uses them; `dim` is that of the whole tensor.
  Status add_axis(std::string name, int32_t size);
  Status cut_input(NodeId node, AxisCut cut);
  Status cut_param(ParamId param, AxisCut cut);
  // Before a node uses the parameter: see Param::shares.
  Status share_gradient(ParamId param);
  Status cut_output(NodeId node, AxisCut cut);
  // An op of the caller; the model holds a reference.
  Result<const Op*> adopt_op(std::shared_ptr<const Op> op);
  // Holds references to the ops of the caller that `other` holds.
  void share_ops(const Model& other);

  // Of each parameter of the unsharded model; pieces are trained like their wholes.
  void set_training(std::span<const Training> of_whole);
  std::vector<Training> training() const;
  // Per node: whether the loss has a gradient for it, if one is needed; without a loss none has.
  std::vector<bool> nodes_below_loss() const;
  // Per parameter: whether the loss has a gradient for it in at least one use.
  std::vector<bool> params_below_loss() const;
  // Nodes of the unsharded model; what computes or moves their pieces is like them.
  void set_f32(const std::vector<bool>& of_whole);
  std::vector<bool> f32() const;

  // Whether the model is complete: at least one node, a loss or an output, and a gradient for every
  // weight below a loss.
  Status check() const;
  // From here on the model cannot be changed: other objects use it. It must have been checked.
  void freeze() { frozen_ = true; }
  // Both.
  Status finish();

  const std::vector<Node>& nodes() const { return nodes_.items(); }
  const std::vector<Param>& params() const { return params_.items(); }
  const std::vector<NodeId>& inputs() const { return inputs_; }
  const std::vector<NodeId>& outputs() const { return outputs_; }
  NodeId loss() const { return loss_; }  // -1: none
  const std::vector<ModelAxis>& axes() const { return axes_; }
  int32_t shards() const { return std::max(shards_, Coordinates(axes_).count()); }
  Desc whole_desc(NodeId id) const;  // of an input or a delivered output, of one sample
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  const Param& param(ParamId id) const { return params_[static_cast<size_t>(id)]; }
  NodeId find_node(std::string_view name) const { return nodes_.find(name); }     // -1: none
  ParamId find_param(std::string_view name) const { return params_.find(name); }  // -1: none

  // Whether every node accepts this number of samples, with the same shapes as for one. Ops of the
  // caller are called only here and in add_node.
  Status check_samples(int64_t samples) const;
  // Shapes of one node for a micro-batch of that many samples, which check_samples() has accepted.
  Inferred infer(NodeId id, int64_t samples) const;
  Desc desc(NodeId id, int64_t samples) const;

  // A hash of everything that affects arithmetic: ops with versions, attributes, edges, shapes,
  // names of parameters.
  Digest hash() const;

 private:
  Status check_open(const char* what) const;
  bool has_gradient(const Node& node) const;
  Status check_gradients() const;
  Status check_cut(const std::vector<AxisCut>& cuts, const AxisCut& cut) const;
  Status set_axis(Attrs& attrs) const;
  void record_uses(NodeId node, int32_t shard);
  std::vector<Operand> operands(std::span<const NodeId> in, int64_t samples) const;

  NamedList<Node> nodes_;
  NamedList<Param> params_;
  std::vector<NodeId> inputs_, outputs_;
  std::vector<ModelAxis> axes_;
  std::vector<std::shared_ptr<const Op>> adopted_;
  NodeId loss_ = -1;
  int32_t shards_ = 1;
  bool frozen_ = false;
};

}  // namespace weft
