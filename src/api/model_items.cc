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

// The nodes of one kind, in the order in which they were added.
std::vector<NodeId> nodes_of(const Model& model, weft_item_kind kind) {
  if (kind == WEFT_ITEM_INPUT) return {model.inputs().begin(), model.inputs().end()};
  if (kind == WEFT_ITEM_OUTPUT) return model.outputs();
  std::vector<NodeId> out;
  for (size_t id = 0; id < model.nodes().size(); ++id)
    if (!model.nodes()[id].is_input()) out.push_back(static_cast<NodeId>(id));
  return out;
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
    const std::vector<NodeId> nodes = nodes_of(m, kind);
    if (index >= nodes.size()) return Status(Code::not_found, "no such node");
    fill_result(out, item_of(m, nodes[index], kind));
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
