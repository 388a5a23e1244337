// Adding a node: what it reads must exist, and the op infers what it makes.
#include <algorithm>

#include "base/text.h"
#include "graph/model.h"

namespace weft {

namespace {

// The results of infer() for one and for two samples show whether a tensor is batched, and that
// samples do not mix.
Status check_batching(const char* what, const Desc& one, const Desc& two, bool& batched) {
  batched = !(one == two);
  if (!batched) return {};
  Desc expected = one;
  if (expected.shape.rank > 0) expected.shape[0] *= 2;
  if (!(two == expected))
    return Status(Code::invalid, cat(what, " mixes samples: ", one.text(), " for one sample, ",
                                     two.text(), " for two"));
  return {};
}

Status check_output(const Desc& one, const Desc& two, bool any_batched, bool& batched) {
  WEFT_TRY(check_batching("output", one, two, batched));
  if (any_batched && !batched)
    return Status(Code::invalid,
                  cat("output ", one.text(), " does not keep the batch in dimension 0"));
  return {};
}

Status check_stash(const Inferred& one, const Inferred& two, bool& batched) {
  if (one.stash.size() != two.stash.size())
    return Status(Code::invalid,
                  "the stash depends on the number of samples: there is one only for "
                  "one sample, or only for two");
  for (size_t i = 0; i < one.stash.size(); ++i)
    WEFT_TRY(check_batching("stash", one.stash[i], two.stash[i], batched));
  return {};
}

Status check_inputs(const Model& model, std::span<const NodeId> in) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] < 0 || in[i] >= static_cast<NodeId>(model.nodes().size()))
      return Status(Code::invalid, cat("input ", i, " is not a value of this model"));
    if (const Op* op = model.node(in[i]).op; op && op->is_loss())
      return Status(Code::invalid, cat("input ", i, " is a loss; a loss ends the model"));
  }
  return {};
}

Status check_weight(const Model& model, size_t port, std::span<const ParamId> weights,
                    double average) {
  const ParamId id = weights[port];
  if (id < 0 || id >= static_cast<ParamId>(model.params().size()))
    return Status(Code::invalid, cat("weight ", port, " is not a parameter of this model"));
  const Param& weight = model.param(id);
  if (!weight.uses.empty() && weight.average != average)
    return Status(Code::invalid,
                  cat("weight ", port, ", '", weight.name,
                      "', is a moving average in one node, and in another one it is not, or has "
                      "another momentum"));
  if (average > 0 && std::count(weights.begin(), weights.end(), id) > 1)
    return Status(Code::invalid, cat("weight ", port, ", '", weight.name,
                                     "', is a moving average, and also another weight"));
  return {};
}

Status check_targets(const Model& model, const Op& op, std::span<const NodeId> in) {
  const Node& targets = model.node(in[static_cast<size_t>(op.target_port())]);
  if (targets.is_input()) return {};
  return Status(Code::invalid, cat("input ", op.target_port(),
                                   " is the targets, which must be an input of the model, got ",
                                   "node '", targets.name, "'"));
}

// `one` and `two` are the inputs with so many samples.
Status infer_node(const Op& op, std::span<const Operand> one, std::span<const Operand> two,
                  std::span<const Desc> weights, Node& made) {
  WEFT_TRY_ASSIGN(made.one, op.infer(made.attrs, one, weights));
  WEFT_TRY(check_sizes(made.one));
  if (op.is_loss()) return {};
  WEFT_TRY_ASSIGN(const Inferred twice, op.infer(made.attrs, two, weights));
  WEFT_TRY(check_sizes(twice));
  const bool any_batched =
      std::any_of(one.begin(), one.end(), [](const Operand& operand) { return operand.batched; });
  WEFT_TRY(check_output(made.one.out, twice.out, any_batched, made.batched));
  return op.of_caller() ? check_stash(made.one, twice, made.batched_stash) : Status();
}

}  // namespace

Result<NodeId> Model::add_node(std::string name, const Op* op, const Attrs& attrs,
                               std::span<const NodeId> in, std::span<const ParamId> weights,
                               NodeOrigin origin) {
  WEFT_TRY(check_open("nodes"));
  const NodeId id = static_cast<NodeId>(nodes_.size());
  if (name.empty()) {
    NodeId number = id;
    do name = cat(op->name(), "_", number++);
    while (find_node(name) >= 0);
  }
  WEFT_TRY(check_name(name, "node"));
  const std::string where = cat("node '", name, "' (", op->name(), ")");
  if (find_node(name) >= 0) return Status(Code::invalid, where + ": the name is taken");
  WEFT_TRY(check_inputs(*this, in).within(where));
  std::vector<Desc> weight_descs;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double average = op->average(attrs, static_cast<int>(i));
    WEFT_TRY(check_weight(*this, i, weights, average).within(where));
    weight_descs.push_back(param(weights[i]).desc());
  }
  if (op->is_loss() && loss_ >= 0)
    return Status(Code::invalid,
                  cat(where, ": the model already has the loss '", node(loss_).name, "'"));

  Node made;
  made.attrs = attrs;
  WEFT_TRY(check_reads(*op, attrs).within(where));
  WEFT_TRY(set_axis(made.attrs).within(where));
  WEFT_TRY(infer_node(*op, operands(in, 1), operands(in, 2), weight_descs, made).within(where));
  if (op->is_loss()) WEFT_TRY(check_targets(*this, *op, in).within(where));
  made.name = std::move(name);
  made.origin = origin.node < 0 ? id : origin.node;
  made.op = op;
  made.in.assign(in.begin(), in.end());
  made.weights.assign(weights.begin(), weights.end());
  nodes_.add(std::move(made));
  record_uses(id, origin.shard);
  Node& added = nodes_[static_cast<size_t>(id)];
  added.needs_grad = has_gradient(added);
  if (op->is_loss()) loss_ = id;
  set_shard(id, origin.shard);
  return id;
}

void Model::record_uses(NodeId id, int32_t shard) {
  const Node& made = node(id);
  for (size_t i = 0; i < made.in.size(); ++i)
    nodes_[static_cast<size_t>(made.in[i])].uses.push_back({id, static_cast<int>(i)});
  for (size_t i = 0; i < made.weights.size(); ++i) {
    Param& param = params_[static_cast<size_t>(made.weights[i])];
    int32_t sum = param.sums;
    for (const Param::Use& use : param.uses)
      if (param.shares && (use.node == id || node(use.node).shard == shard)) sum = use.sum;
    param.average = made.op->average(made.attrs, static_cast<int>(i));
    param.sums = std::max(param.sums, sum + 1);
    param.uses.push_back({id, static_cast<int>(i), sum});
  }
}

}  // namespace weft
