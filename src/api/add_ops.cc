// Common nodes in one call: with new parameters, or without a configuration.
#include <algorithm>

#include "api/handles.h"

using namespace weft;
using namespace weft::api;

namespace {

struct NewParam {
  const char* suffix;
  Shape shape;
  Init init;
};

// A node with one input and new parameters NAME.SUFFIX. The op is tried before the parameters are
// added, because they cannot be removed.
Status add_with_params(Model& m, const char* name, const char* op_name, const Attrs& attrs,
                       NodeId in, std::span<const NewParam> params, weft_value& out) {
  const Op* op = find_op(op_name);
  std::vector<Desc> descs;
  for (const NewParam& p : params) descs.push_back({DType::f32, p.shape});
  const std::string where = cat("node '", name, "' (", op_name, ")");
  for (const int64_t samples : {1, 2}) {
    const Operand operand{m.desc(in, samples), m.node(in).batched};
    WEFT_TRY_ASSIGN(const Inferred made, op->infer(attrs, {&operand, 1}, descs).within(where));
    const Desc& y = made.out;
    WEFT_TRY(check_shape({y.shape.dims.data(), static_cast<size_t>(y.shape.rank)}, y.dtype)
                 .within(cat(where, ": output")));
  }
  for (const NewParam& p : params) WEFT_TRY(m.check_param_name(cat(name, ".", p.suffix)));
  std::vector<ParamId> ids;
  for (const NewParam& p : params) {
    WEFT_TRY_ASSIGN(const ParamId id, m.add_param(cat(name, ".", p.suffix), p.shape, p.init));
    ids.push_back(id);
  }
  WEFT_TRY_ASSIGN(const NodeId id, m.add_node(name, op, attrs, {&in, 1}, ids));
  out = to_value(id);
  return {};
}

// The arguments that these nodes have in common.
Result<NodeId> check_node(const weft_model* model, const char* name, weft_value x,
                          const weft_value* out) {
  WEFT_TRY(require(model, "model"));
  WEFT_TRY(require(out, "out"));
  WEFT_TRY(require(name, "node name"));
  WEFT_TRY(check_name(name, "node"));
  const NodeId in = node_of(x);
  if (in < 0 || in >= static_cast<NodeId>(model->model->nodes().size()))
    return Status(Code::invalid, cat("node '", name, "': x is not a value of this model"));
  if (model->model->find_node(name) >= 0)
    return Status(Code::invalid, cat("node '", name, "': the name is taken"));
  return in;
}

weft_node_config node_config(const char* name, const char* op, std::span<const weft_value> inputs) {
  weft_node_config out = defaults<weft_node_config>();
  out.size = sizeof out;
  out.name = name;
  out.op = op;
  out.inputs = inputs.data();
  out.n_inputs = static_cast<uint32_t>(inputs.size());
  return out;
}

// The call that adds nodes of an op with its settings and parameters.
std::string call_for(std::string_view op) {
  for (const char* own :
       {"linear", "layer_norm", "batch_norm", "embedding", "attention", "dropout"})
    if (op == own) return cat("weft_model_add_", own);
  return "weft_model_add_node";
}

// A node without settings and parameters. For an op that has some, an error names the call for
// them: without its factor, for example, `scale` would return zeros.
Status add_plain(weft_model* model, const char* name, const char* op,
                 std::span<const weft_value> inputs, weft_value* out) {
  const Op* known = op ? find_op(op) : nullptr;
  const bool plain = !known || known->is_loss() || (known->reads() & ~uint32_t{kTanh}) == 0;
  if (!plain)
    return Status(Code::invalid,
                  cat(name ? cat("node '", name, "'") : "a node", " (", op, "): ", call_for(op),
                      " adds the op with its settings and parameters"));
  const weft_node_config config = node_config(name, op, inputs);
  return add_node(model, &config, out);
}

// With momentum, it has running moments as well.
Status add_norm(weft_model* model, const char* name, const char* op, double momentum, weft_value x,
                weft_value* out) {
  WEFT_TRY_ASSIGN(const NodeId in, check_node(model, name, x, out));
  const int64_t width = model->model->desc(in, 1).shape.last();
  Attrs attrs;
  attrs.factor = 1e-5;
  attrs.momentum = momentum;
  const Init one = {InitKind::constant, 1};
  const NewParam params[] = {{"weight", {width}, one},
                             {"bias", {width}, {}},
                             {"running_mean", {width}, {}},
                             {"running_var", {width}, one}};
  return add_with_params(*model->model, name, op, attrs, in,
                         std::span(params).first(momentum > 0 ? 4 : 2), *out);
}

}  // namespace

weft_status weft_model_add_linear(weft_model* model, const char* name, weft_value x,
                                  int64_t out_features, weft_value* out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY_ASSIGN(const NodeId in, check_node(model, name, x, out));
    if (out_features < 1)
      return Status(Code::invalid, cat("node '", name, "': out_features is ", out_features,
                                       ", expected 1 or more"));
    Model& m = *model->model;
    const NewParam params[] = {
        {"weight", {m.desc(in, 1).shape.last(), out_features}, {InitKind::normal, 0.02}},
        {"bias", {out_features}, {}}};
    return add_with_params(m, name, "linear", {}, in, params, *out);
  });
}

weft_status weft_model_add_layer_norm(weft_model* model, const char* name, weft_value x,
                                      weft_value* out, weft_error* err) {
  return guard(err, [&] { return add_norm(model, name, "layer_norm", 0, x, out); });
}

weft_status weft_model_add_batch_norm(weft_model* model, const char* name, weft_value x,
                                      weft_value* out, weft_error* err) {
  return guard(err, [&] { return add_norm(model, name, "batch_norm", 0.1, x, out); });
}

weft_status weft_model_add_embedding(weft_model* model, const char* name, weft_value ids,
                                     int64_t rows, int64_t width, uint32_t flags, weft_value* out,
                                     weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY_ASSIGN(const NodeId in, check_node(model, name, ids, out));
    if (rows < 1 || width < 1)
      return Status(Code::invalid, cat("node '", name, "': rows is ", rows, " and width is ", width,
                                       ", expected 1 or more"));
    if (flags & ~uint32_t{WEFT_NODE_POSITIONS})
      return Status(Code::invalid, cat("node '", name, "': flags is ", flags,
                                       ", expected 0 or WEFT_NODE_POSITIONS"));
    Attrs attrs;
    attrs.flags = flags;
    const NewParam params[] = {{"weight", {rows, width}, {InitKind::normal, 0.02}}};
    return add_with_params(*model->model, name, "embedding", attrs, in, params, *out);
  });
}

weft_status weft_model_add_unary(weft_model* model, const char* name, const char* op, weft_value x,
                                 weft_value* out, weft_error* err) {
  return guard(err, [&] { return add_plain(model, name, op, {&x, 1}, out); });
}

weft_status weft_model_add_binary(weft_model* model, const char* name, const char* op, weft_value a,
                                  weft_value b, weft_value* out, weft_error* err) {
  const weft_value inputs[] = {a, b};
  return guard(err, [&] { return add_plain(model, name, op, inputs, out); });
}

weft_status weft_model_add_attention(weft_model* model, const char* name, weft_value qkv,
                                     int32_t heads, uint32_t flags, weft_value* out,
                                     weft_error* err) {
  weft_node_config config = node_config(name, "attention", {&qkv, 1});
  config.heads = heads;
  config.flags = flags;
  return weft_model_add_node(model, &config, out, err);
}

weft_status weft_model_add_dropout(weft_model* model, const char* name, weft_value x,
                                   double probability, weft_value* out, weft_error* err) {
  weft_node_config config = node_config(name, "dropout", {&x, 1});
  config.factor = probability;
  return weft_model_add_node(model, &config, out, err);
}
