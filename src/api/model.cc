#include <algorithm>
#include <cmath>

#include "api/handles.h"
#include "api/user_op.h"

using namespace weft;
using namespace weft::api;

namespace {

Result<InitKind> init_kind(weft_init init) {
  switch (init) {
    case WEFT_INIT_ZEROS: return InitKind::zeros;
    case WEFT_INIT_CONSTANT: return InitKind::constant;
    case WEFT_INIT_NORMAL: return InitKind::normal;
  }
  return Status(Code::invalid, cat("init is ", uint32_t{init},
                                   ", expected WEFT_INIT_ZEROS, _CONSTANT or _NORMAL"));
}

Result<const Op*> op_of(const weft_model& model, const char* name) {
  WEFT_TRY(require(name, "op"));
  for (const Op* op : model.user_ops)
    if (op->name() == name) return op;
  if (const Op* op = find_op(name)) return op;
  std::string known;
  for (const auto& table : {all_ops(), all_collectives()})
    for (const Op* op : table) known += cat(known.empty() ? "" : ", ", op->name());
  return Status(Code::not_found, cat("op '", name, "' is not known; there are ", known));
}

Result<int32_t> axis_of(const Model& model, const char* name) {
  WEFT_TRY(require(name, "axis"));
  std::string known;
  for (size_t a = 0; a < model.axes().size(); ++a) {
    if (model.axes()[a].name == name) return static_cast<int32_t>(a);
    known += cat(known.empty() ? "" : ", ", model.axes()[a].name);
  }
  return Status(Code::not_found, cat("axis ", shown(name), " is not known; the model has ",
                                     known.empty() ? "none" : known));
}

Result<Over> over_of(const weft_node_config& c, const Model& model) {
  Over over;
  if (c.axis_name) {
    WEFT_TRY_ASSIGN(over.axis, axis_of(model, c.axis_name));
  }
  if (c.n_coordinates > 0) WEFT_TRY(require(c.coordinates, "coordinates"));
  if (c.n_coordinates > kMostCoordinates)
    return Status(Code::invalid, cat("n_coordinates is ", c.n_coordinates, ", expected at most ",
                                     kMostCoordinates));
  over.coordinates.assign(c.coordinates, c.coordinates + c.n_coordinates);
  return over;
}

// A cut along the axis with that name.
Result<AxisCut> cut_of(const Model& model, uint32_t dim, const char* axis, uint32_t flags) {
  if (flags & ~uint32_t{WEFT_CUT_DROP})
    return Status(Code::invalid, cat("flags are ", flags, ", expected 0 or WEFT_CUT_DROP"));
  if (dim >= WEFT_MAX_DIMS)
    return Status(Code::invalid, cat("dimension is ", dim, ", expected 0 to ", WEFT_MAX_DIMS - 1));
  WEFT_TRY_ASSIGN(const int32_t over, axis_of(model, axis));
  return AxisCut{
      .dim = static_cast<int32_t>(dim), .axis = over, .drop = (flags & WEFT_CUT_DROP) != 0};
}

Result<Attrs> attrs_of(const weft_node_config& c, const Model& model) {
  if (c.n_dims > WEFT_MAX_DIMS)
    return Status(Code::invalid, cat("weft_node_config.n_dims is ", c.n_dims, ", expected at most ",
                                     WEFT_MAX_DIMS));
  constexpr uint32_t kFlags = WEFT_NODE_TANH | WEFT_NODE_CAUSAL | WEFT_NODE_OUT_IN |
                              WEFT_NODE_POSITIONS | WEFT_NODE_BF16_CACHE | WEFT_NODE_UNIT_OFFSET;
  if (c.flags & ~kFlags)
    return Status(Code::invalid, cat("node config: unknown flags ", c.flags & ~kFlags));
  Attrs attrs;
  attrs.axis = c.axis;
  attrs.heads = c.heads;
  attrs.flags = c.flags;
  attrs.begin = c.begin;
  attrs.end = c.end;
  attrs.factor = c.factor;
  attrs.cap = c.cap;
  attrs.momentum = c.momentum;
  attrs.dims = Shape(std::span<const int64_t>(c.dims, c.n_dims));
  WEFT_TRY_ASSIGN(attrs.over, over_of(c, model));
  if (c.n_frequencies > 0) WEFT_TRY(require(c.frequencies, "weft_node_config.frequencies"));
  attrs.frequencies.assign(c.frequencies, c.frequencies + c.n_frequencies);
  return attrs;
}

}  // namespace

weft_status weft_model_new(weft_model** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    *out = new weft_model;
    return {};
  });
}

void weft_model_free(weft_model* model) { delete model; }

weft_status weft_model_add_input(weft_model* model, const char* name, const weft_desc* sample,
                                 uint32_t flags, weft_value* out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(require(name, "input name"));
    if (flags & ~uint32_t{WEFT_INPUT_WANT_GRAD})
      return Status(Code::invalid, cat("input '", name, "': unknown flags ", flags));
    WEFT_TRY_ASSIGN(const Desc desc, to_desc(sample).within(cat("input '", name, "'")));
    WEFT_TRY_ASSIGN(const NodeId id,
                    model->model->add_input(name, desc, flags & WEFT_INPUT_WANT_GRAD));
    *out = to_value(id);
    return {};
  });
}

weft_status weft_model_add_param(weft_model* model, const char* name, const weft_desc* desc,
                                 weft_init init, double value, weft_param* out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(require(name, "parameter name"));
    WEFT_TRY_ASSIGN(const Desc inner, to_desc(desc).within(cat("parameter '", name, "'")));
    if (inner.dtype != DType::f32)
      return Status(Code::invalid, cat("parameter '", name, "': dtype must be WEFT_F32, got ",
                                       dtype_name(inner.dtype)));
    WEFT_TRY_ASSIGN(const InitKind kind, init_kind(init));
    if (!std::isfinite(static_cast<float>(value)) || (init == WEFT_INIT_NORMAL && value < 0))
      return Status(
          Code::invalid,
          cat("parameter '", name,
              "': ", init == WEFT_INIT_NORMAL ? "standard deviation" : "first value", " is ", value,
              ", expected ", init == WEFT_INIT_NORMAL ? "a finite f32 from 0" : "a finite f32"));
    WEFT_TRY_ASSIGN(const ParamId id, model->model->add_param(name, inner.shape, {kind, value}));
    *out = to_param(id);
    return {};
  });
}

Status weft::api::add_node(weft_model* model, const weft_node_config* config, weft_value* out) {
  WEFT_TRY(require(model, "model"));
  WEFT_TRY(require(config, "config"));
  WEFT_TRY(require(out, "out"));
  weft_node_config c;
  WEFT_TRY(read_config(config, "weft_node_config", c));
  if (c.name) WEFT_TRY(check_name(c.name, "node"));
  WEFT_TRY_ASSIGN(const Op* op, op_of(*model, c.op));
  WEFT_TRY_ASSIGN(const Attrs attrs, attrs_of(c, *model->model));
  if (c.n_inputs) WEFT_TRY(require(c.inputs, "inputs"));
  if (c.n_params) WEFT_TRY(require(c.params, "params"));
  if (c.n_inputs > 1024 || c.n_params > 1024)
    return Status(Code::invalid, "a node has at most 1024 inputs and 1024 parameters");
  std::vector<NodeId> in;
  std::vector<ParamId> params;
  for (uint32_t i = 0; i < c.n_inputs; ++i) in.push_back(node_of(c.inputs[i]));
  for (uint32_t i = 0; i < c.n_params; ++i) params.push_back(param_of(c.params[i]));
  WEFT_TRY_ASSIGN(const NodeId id,
                  model->model->add_node(c.name ? c.name : "", op, attrs, in, params));
  *out = to_value(id);
  return {};
}

weft_status weft_model_add_node(weft_model* model, const weft_node_config* config, weft_value* out,
                                weft_error* err) {
  return guard(err, [&] { return add_node(model, config, out); });
}

weft_status weft_model_add_output(weft_model* model, weft_value value, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    return model->model->add_output(node_of(value));
  });
}

weft_status weft_model_add_axis(weft_model* model, const char* name, uint32_t size,
                                weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(name, "axis name"));
    return model->model->add_axis(name, static_cast<int32_t>(std::min<uint32_t>(size, INT32_MAX)));
  });
}

weft_status weft_model_cut_input(weft_model* model, weft_value input, uint32_t dim,
                                 const char* axis, uint32_t flags, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY_ASSIGN(const AxisCut cut, cut_of(*model->model, dim, axis, flags));
    return model->model->cut_input(node_of(input), cut);
  });
}

weft_status weft_model_cut_param(weft_model* model, weft_param param, uint32_t dim,
                                 const char* axis, uint32_t flags, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY_ASSIGN(const AxisCut cut, cut_of(*model->model, dim, axis, flags));
    return model->model->cut_param(param_of(param), cut);
  });
}

weft_status weft_model_share_gradient(weft_model* model, weft_param param, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    return model->model->share_gradient(param_of(param));
  });
}

weft_status weft_model_cut_output(weft_model* model, weft_value output, uint32_t dim,
                                  const char* axis, uint32_t flags, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY_ASSIGN(const AxisCut cut, cut_of(*model->model, dim, axis, flags));
    return model->model->cut_output(node_of(output), cut);
  });
}

weft_status weft_model_add_op(weft_model* model, const weft_op* op, void* payload,
                              weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(op, "op"));
    weft_op inner;
    WEFT_TRY(read_config(op, "weft_op", inner));
    WEFT_TRY_ASSIGN(auto made, make_user_op(inner, payload));
    for (const Op* known : model->user_ops)
      if (known->name() == made->name())
        return Status(Code::invalid, cat("op '", made->name(), "' is registered already"));
    if (find_op(made->name()))
      return Status(Code::invalid, cat("op '", made->name(), "' is built in"));
    model->user_ops.reserve(model->user_ops.size() + 1);
    WEFT_TRY_ASSIGN(const Op* adopted, model->model->adopt_op(made));
    model->user_ops.push_back(adopted);
    made->take_payload();
    return {};
  });
}

int64_t weft_model_parameters(const weft_model* model) {
  int64_t elements = 0;
  if (model)
    for (const Param& p : model->model->params())
      if (__builtin_add_overflow(elements, p.shape.elements(), &elements)) return INT64_MAX;
  return elements;
}
