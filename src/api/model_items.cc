// The inputs, parameters, nodes and axes of a model, as lists.
#include "api/handles.h"

using namespace weft;
using namespace weft::api;

namespace {

weft_item item_of(const Model& model, NodeId id, weft_item_kind kind) {
  const Node& node = model.node(id);
  weft_item out = {};
  out.name = node.name.c_str();
  out.op = node.is_input() ? nullptr : node.op->name().data();
  out.value = to_value(id);
  out.desc = from_desc(kind == WEFT_ITEM_NODE ? model.desc(id, 1) : model.whole_desc(id));
  return out;
}

weft_item item_of_param(const Model& model, ParamId id) {
  const Param& param = model.param(id);
  weft_item out = {};
  out.name = param.name.c_str();
  out.param = to_param(id);
  out.desc = from_desc({DType::f32, param.shape});
  return out;
}

// A node of one kind, in the order in which they were added. -1: none
NodeId node_at(const Model& model, weft_item_kind kind, size_t index) {
  if (kind != WEFT_ITEM_NODE) {
    const auto& nodes = kind == WEFT_ITEM_INPUT ? model.inputs() : model.outputs();
    return index < nodes.size() ? nodes[index] : -1;
  }
  if (index >= model.nodes().size() - model.inputs().size()) return -1;
  auto id = static_cast<NodeId>(index);
  for (NodeId input : model.inputs())  // ascending
    if (input <= id) ++id;
  return id;
}

}  // namespace

weft_status weft_model_describe(const weft_model* model, weft_item_kind kind, uint32_t index,
                                weft_item* out) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(check_result(*out));
    if (kind < WEFT_ITEM_INPUT || kind > WEFT_ITEM_OUTPUT)
      return Status(Code::invalid, cat("kind is ", uint32_t{kind}));
    const Model& m = *model->model;
    if (kind == WEFT_ITEM_PARAM) {
      if (index >= m.params().size()) return Status(Code::not_found, "no such parameter");
      fill_result(out, item_of_param(m, static_cast<ParamId>(index)));
      return {};
    }
    const NodeId node = node_at(m, kind, index);
    if (node < 0) return Status(Code::not_found, "no such node");
    fill_result(out, item_of(m, node, kind));
    return {};
  });
}

weft_status weft_model_shape(const weft_model* model, weft_value value, int64_t samples,
                             weft_desc* out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    const Model& m = *model->model;
    if (value.id == 0 || value.id > m.nodes().size())
      return Status(Code::invalid, cat("value ", value.id, " is not a value of this model"));
    if (samples < 1)
      return Status(Code::invalid, cat("samples is ", samples, ", expected 1 or more"));
    const auto node = node_of(value);
    const Desc one = m.desc(node, 1);
    if (samples > INT64_MAX / std::max<int64_t>(static_cast<int64_t>(one.bytes()), 1))
      return Status(Code::invalid, cat(samples, " samples of ", one.text(),
                                       " have more bytes than a 64-bit size can count"));
    *out = from_desc(m.desc(node, samples));
    return {};
  });
}
