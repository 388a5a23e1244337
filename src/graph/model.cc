#include "graph/model.h"

#include <algorithm>

#include "base/text.h"
#include "graph/model_axes.h"

namespace weft {

namespace {

// Its tensors, of one sample, whose size is proportional to the samples.
std::vector<Desc> grows_of(const Node& node) {
  std::vector<Desc> out = {node.one.out};
  if (node.batched_stash) out.insert(out.end(), node.one.stash.begin(), node.one.stash.end());
  return out;
}

void hash_shape(const Shape& shape, Hasher& h) {
  h.number(static_cast<uint64_t>(shape.rank));
  for (int i = 0; i < shape.rank; ++i) h.number(static_cast<uint64_t>(shape[i]));
}

// All fields have names here: after a new one is added, this does not compile. Plans and
// checkpoints contain the hash, so it must be the same if the new field is not set. hash_axes() has
// `over`; the whole model has no section.
void hash_attrs(const Attrs& attrs, Hasher& h) {
  const auto& [axis, heads, flags, begin, end, factor, momentum, cap, dims, over, frequencies,
               section] = attrs;
  h.number(static_cast<uint64_t>(axis)).number(static_cast<uint64_t>(heads));
  h.number(uint64_t{flags}).number(static_cast<uint64_t>(begin)).number(static_cast<uint64_t>(end));
  h.number(factor);
  if (momentum != 0) h.text("momentum").number(momentum);
  if (cap != 0) h.text("cap").number(cap);
  hash_shape(dims, h);
  for (const float frequency : frequencies) h.number(double{frequency});
}

// What processes could differ in although the name and the version of an op of the caller are the
// same.
void hash_callbacks(const Node& node, Hasher& h) {
  for (const Uses& uses : {node.op->uses_input(node.attrs), node.op->uses_weight(node.attrs)})
    h.number(uint64_t{uses.in})
        .number(uint64_t{uses.out})
        .number(uint64_t{uses.stash})
        .number(uint64_t{uses.weights});
  h.number(uint64_t{node.op->trains_weights()}).text(texts_of(node.one.stash));
  h.number(uint64_t{node.batched_stash});
}

}  // namespace

Status check_sizes(const Inferred& made) {
  const auto check = [](const Desc& d) {
    return check_shape({d.shape.dims.data(), static_cast<size_t>(d.shape.rank)}, d.dtype);
  };
  WEFT_TRY(check(made.out).within("output"));
  for (const Desc& stash : made.stash) WEFT_TRY(check(stash).within("the stash for the backward"));
  for (const Desc& state : made.state) WEFT_TRY(check(state).within("the state between steps"));
  return {};
}

Status check_name(std::string_view name, const char* what) {
  if (name.empty() || name.size() > 200)
    return Status(Code::invalid, cat(what, " name must have 1 to 200 bytes, has ", name.size()));
  for (char c : name)
    if (static_cast<unsigned char>(c) <= ' ' || c == 127)
      return Status(Code::invalid,
                    cat(what, " name '", name, "' has a space or control character"));
  if (!valid_utf8(name)) return Status(Code::invalid, cat(what, " name '", name, "' is not UTF-8"));
  return {};
}

Status Model::check_open(const char* what) const {
  return frozen_
             ? Status(Code::state, cat("the model is finished; ", what, " can no longer be added"))
             : Status();
}

Result<NodeId> Model::add_input(std::string name, Desc one_sample, bool wants_grad,
                                NodeOrigin origin) {
  WEFT_TRY(check_open("nodes"));
  WEFT_TRY(check_name(name, "input"));
  if (find_node(name) >= 0)
    return Status(Code::invalid, cat("input '", name, "': the name is taken"));
  if (one_sample.shape.rank < 1 || one_sample.shape[0] != 1)
    return Status(
        Code::invalid,
        cat("input '", name, "': dimension 0 counts samples, expected 1, got ", one_sample.text()));
  WEFT_TRY(check_shape({one_sample.shape.dims.data(), static_cast<size_t>(one_sample.shape.rank)},
                       one_sample.dtype)
               .within(cat("input '", name, "'")));
  if (one_sample.dtype == DType::f64)
    return Status(Code::invalid, cat("input '", name, "': dtype is f64, expected f32 or i32"));
  if (wants_grad && one_sample.dtype != DType::f32)
    return Status(Code::invalid,
                  cat("input '", name, "': only f32 has a gradient, got ", one_sample.text()));
  if (wants_grad && find_param(name) >= 0)
    return Status(
        Code::invalid,
        cat("input '", name, "': a parameter has this name, and a gradient is read by name"));
  Node node;
  node.name = std::move(name);
  node.one.out = one_sample;
  node.batched = true;
  node.wants_grad = node.needs_grad = wants_grad;
  node.origin = origin.node < 0 ? static_cast<NodeId>(nodes_.size()) : origin.node;
  inputs_.push_back(nodes_.add(std::move(node)));
  return inputs_.back();
}

int32_t Param::sum_of(NodeId node, int port) const {
  return std::find_if(uses.begin(), uses.end(),
                      [&](const Use& use) { return use.node == node && use.port == port; })
      ->sum;
}

NodeId Param::first_node(int32_t sum) const {
  return std::find_if(uses.begin(), uses.end(), [sum](const Use& use) { return use.sum == sum; })
      ->node;
}

Status Model::check_param_name(const std::string& name) const {
  WEFT_TRY(check_name(name, "parameter"));
  if (name == "__metadata__")
    return Status(Code::invalid,
                  "parameter name '__metadata__' is reserved by the format of checkpoints");
  if (find_param(name) >= 0)
    return Status(Code::invalid, cat("parameter '", name, "': the name is taken"));
  if (const NodeId same = find_node(name); same >= 0 && node(same).wants_grad)
    return Status(
        Code::invalid,
        cat("parameter '", name, "': an input has this name, and its gradient is read by name"));
  return {};
}

Result<ParamId> Model::add_param(std::string name, Shape shape, Init init, ParamPiece piece) {
  WEFT_TRY(check_open("parameters"));
  WEFT_TRY(check_param_name(name));
  WEFT_TRY(check_shape({shape.dims.data(), static_cast<size_t>(shape.rank)}, DType::f32)
               .within(cat("parameter '", name, "'")));
  if (shape.elements() == 0)
    return Status(Code::invalid, cat("parameter '", name, "' has no element: ", shape.text()));
  Param param;
  param.name = std::move(name);
  param.shape = param.local = shape;
  param.init = init;
  const bool is_piece = piece.whole >= 0;
  param.piece = is_piece ? std::move(piece)
                         : ParamPiece{static_cast<ParamId>(params_.size()), param.name, shape};
  return params_.add(std::move(param));
}

Status Model::share_gradient(ParamId id) {
  WEFT_TRY(check_open("parameters"));
  if (id < 0 || id >= static_cast<ParamId>(params_.size()))
    return Status(Code::invalid, "shared gradient: not a parameter of this model");
  Param& param = params_[static_cast<size_t>(id)];
  if (!param.uses.empty())
    return Status(Code::state, cat("parameter '", param.name,
                                   "' has a use, expected to share its gradient before"));
  param.shares = true;
  return {};
}

std::vector<Operand> Model::operands(std::span<const NodeId> in, int64_t samples) const {
  std::vector<Operand> out;
  for (NodeId id : in) out.push_back({desc(id, samples), node(id).batched});
  return out;
}

bool Model::has_gradient(const Node& made) const {
  if (made.is_input()) return made.wants_grad;
  for (size_t i = 0; i < made.in.size(); ++i)
    if (node(made.in[i]).needs_grad && made.op->differentiable(static_cast<int>(i))) return true;
  return std::any_of(made.weights.begin(), made.weights.end(),
                     [this](ParamId w) { return param(w).has_gradient(); });
}

void Model::set_training(std::span<const Training> of_whole) {
  for (Param& param : params_) param.training = of_whole[static_cast<size_t>(param.piece.whole)];
  const std::vector<bool> reached = nodes_below_loss();
  for (size_t id = 0; id < nodes_.size(); ++id)
    nodes_[id].needs_grad = (loss_ < 0 || reached[id]) && has_gradient(nodes_[id]);
}

std::vector<bool> Model::nodes_below_loss() const {
  std::vector<bool> out(nodes_.size(), false);
  if (loss_ >= 0) out[static_cast<size_t>(loss_)] = true;
  for (size_t id = out.size(); id-- > 0;) {
    const Node& n = nodes_[id];
    if (!out[id] || n.is_input()) continue;
    for (size_t i = 0; i < n.in.size(); ++i)
      if (n.op->differentiable(static_cast<int>(i))) out[static_cast<size_t>(n.in[i])] = true;
  }
  return out;
}

std::vector<bool> Model::params_below_loss() const {
  const std::vector<bool> nodes = nodes_below_loss();
  std::vector<bool> out;
  for (const Param& param : params_)
    out.push_back(std::any_of(
        param.uses.begin(), param.uses.end(),
        [&nodes](const Param::Use& use) { return nodes[static_cast<size_t>(use.node)]; }));
  return out;
}

std::vector<Training> Model::training() const {
  std::vector<Training> out;
  for (const Param& param : params_) out.push_back(param.training);
  return out;
}

void Model::set_f32(const std::vector<bool>& of_whole) {
  for (Node& node : nodes_) node.f32 = of_whole[static_cast<size_t>(node.origin)];
}

std::vector<bool> Model::f32() const {
  std::vector<bool> out;
  for (const Node& node : nodes_) out.push_back(node.f32);
  return out;
}

void Model::set_shard(NodeId node, int32_t shard) {
  nodes_[static_cast<size_t>(node)].shard = shard;
  shards_ = std::max(shards_, shard + 1);
}

Status Model::add_output(NodeId id) {
  WEFT_TRY(check_open("outputs"));
  if (id < 0 || id >= static_cast<NodeId>(nodes_.size()))
    return Status(Code::invalid, "output: not a value of this model");
  const Node& made = node(id);
  if (made.is_input()) return Status(Code::invalid, cat("output: '", made.name, "' is an input"));
  if (!made.batched)
    return Status(Code::invalid,
                  made.op->is_loss()
                      ? cat("output: '", made.name,
                            "' is the loss, which events report; expected another value")
                      : cat("output: '", made.name, "' has no batch dimension"));
  if (std::find(outputs_.begin(), outputs_.end(), id) != outputs_.end())
    return Status(Code::invalid, cat("output: '", made.name, "' is already an output"));
  outputs_.push_back(id);
  return {};
}

Result<const Op*> Model::adopt_op(std::shared_ptr<const Op> op) {
  WEFT_TRY(check_open("ops"));
  adopted_.push_back(std::move(op));
  return adopted_.back().get();
}

void Model::share_ops(const Model& other) {
  adopted_.insert(adopted_.end(), other.adopted_.begin(), other.adopted_.end());
}

// Without this check, weights that no gradient reaches would not be trained. Gradients are summed
// as f32.
Status Model::check_gradients() const {
  std::vector<bool> leads(nodes_.size(), false);  // to the loss
  leads[static_cast<size_t>(loss_)] = true;
  for (NodeId id = loss_; id >= 0; --id) {
    const Node& n = node(id);
    if (!leads[static_cast<size_t>(id)]) continue;
    if (n.needs_grad && id != loss_ && n.one.out.dtype != DType::f32)
      return Status(Code::invalid,
                    cat("node '", n.name, "' (", n.op->name(), "): its output is ",
                        n.one.out.text(), ", expected f32: nodes below it need a gradient"));
    if (!n.weights.empty() && !n.op->trains_weights())
      return Status(Code::invalid,
                    cat("node '", n.name, "' (", n.op->name(),
                        "): has no gradient for its parameters, which need one to be trained"));
    for (size_t i = 0; i < n.in.size(); ++i) {
      leads[static_cast<size_t>(n.in[i])] = true;
      const Node& below = node(n.in[i]);
      const bool target = id == loss_ && static_cast<int>(i) == n.op->target_port();
      const bool reads = !target && !n.op->reads_shapes_only();
      if (below.needs_grad && reads && !n.op->differentiable(static_cast<int>(i)))
        return Status(Code::invalid,
                      cat("node '", n.name, "' (", n.op->name(), "): has no gradient for input ", i,
                          ", which '", below.name, "' needs to be trained"));
    }
  }
  return {};
}

Status Model::check() const {
  if (nodes_.size() == inputs_.size()) return Status(Code::invalid, "the model has no node");
  if (inputs_.empty()) return Status(Code::invalid, "the model has no input");
  if (loss_ < 0 && outputs_.empty())
    return Status(Code::invalid, "the model has neither a loss nor an output");
  for (const Param& p : params_)
    if (p.uses.empty())
      return Status(Code::invalid, cat("parameter '", p.name, "' is used by no node"));
  if (loss_ >= 0) WEFT_TRY(check_gradients());
  for (const Node& n : nodes_)
    if (loss_ >= 0 && !n.one.state.empty())
      return Status(Code::invalid,
                    cat("node '", n.name, "' (", n.op->name(), ") keeps state between forward ",
                        "steps, so the model can have no loss, got '", node(loss_).name, "'"));
  return {};
}

Status Model::finish() {
  WEFT_TRY(check());
  freeze();
  return {};
}

Desc Model::desc(NodeId id, int64_t samples) const {
  const Node& n = node(id);
  Desc out = n.one.out;
  if (n.batched) out.shape[0] *= samples;
  return out;
}

Inferred Model::infer(NodeId id, int64_t samples) const {
  const Node& n = node(id);
  if (n.is_input() || n.op->of_caller()) {
    Inferred out = n.one;
    out.out = desc(id, samples);
    if (n.batched_stash)
      for (Desc& stash : out.stash) stash.shape[0] *= samples;
    return out;
  }
  std::vector<Desc> weights;
  for (ParamId w : n.weights) weights.push_back(param(w).desc());
  return n.op->infer(n.attrs, operands(n.in, samples), weights)
      .take();  // check_samples() has accepted the number
}

Status Model::check_samples(int64_t samples) const {
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    const Node& n = node(id);
    for (const Desc& each : grows_of(n)) {
      int64_t bytes = 0;
      if (__builtin_mul_overflow(static_cast<int64_t>(each.bytes()), samples, &bytes))
        return Status(Code::invalid, cat("node '", n.name, "', ", samples,
                                         " samples: ", each.text(), " each is too large"));
    }
    if (n.is_input()) continue;
    std::vector<Desc> weights;
    for (ParamId w : n.weights) weights.push_back(param(w).desc());
    const std::string where =
        cat("node '", n.name, "' (", n.op->name(), "), ", samples, " samples");
    WEFT_TRY_ASSIGN(const Inferred made,
                    n.op->infer(n.attrs, operands(n.in, samples), weights).within(where));
    WEFT_TRY(check_sizes(made).within(where));
    if (!(made.out == desc(id, samples)))
      return Status(Code::invalid, cat(where, ": output is ", made.out.text(), ", for one sample ",
                                       n.one.out.text()));
    if (!n.op->of_caller()) continue;
    const std::vector<Desc> stash = infer(id, samples).stash;
    if (made.stash != stash)
      return Status(Code::invalid, cat(where, ": stash is ", texts_of(made.stash), ", expected ",
                                       texts_of(stash), " as for one sample"));
  }
  return {};
}

Digest Model::hash() const {
  Hasher h;
  auto count = [&h](size_t n) { h.number(static_cast<uint64_t>(n)); };
  count(params_.size());
  for (const Param& p : params_) {
    h.text(p.name).number(static_cast<uint64_t>(p.init.kind)).number(p.init.value);
    hash_shape(p.shape, h);
    if (p.shares) h.text("shares its gradient");
  }
  count(nodes_.size());
  for (const Node& n : nodes_) {
    h.text(n.name)
        .text(n.op ? n.op->name() : "input")
        .number(static_cast<uint64_t>(n.op ? n.op->version() : 0));
    hash_attrs(n.attrs, h);
    h.number(static_cast<uint64_t>(n.one.out.dtype)).number(uint64_t{n.wants_grad});
    hash_shape(n.one.out.shape, h);
    count(n.in.size());
    for (NodeId i : n.in) h.number(static_cast<uint64_t>(i));
    count(n.weights.size());
    for (ParamId w : n.weights) h.number(static_cast<uint64_t>(w));
    if (n.op && n.op->of_caller()) hash_callbacks(n, h);
  }
  count(outputs_.size());
  for (NodeId o : outputs_) h.number(static_cast<uint64_t>(o));
  if (!axes_.empty()) hash_axes(*this, h);
  return h.finish();
}

}  // namespace weft
