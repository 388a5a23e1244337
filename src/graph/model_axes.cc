#include "graph/model_axes.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

Status Model::add_axis(std::string name, int32_t size) {
  WEFT_TRY(check_open("axes"));
  WEFT_TRY(check_name(name, "axis"));
  if (name == "data" || name == "stage" || name == "auto")
    return Status(Code::invalid,
                  cat("axis '", name, "': the name is reserved for an axis of plans"));
  for (const ModelAxis& axis : axes_)
    if (axis.name == name)
      return Status(Code::invalid, cat("axis '", name, "': the name is taken"));
  if (size < 1 || size > kMostCoordinates)
    return Status(Code::invalid,
                  cat("axis '", name, "' has size ", size, ", expected 1 to ", kMostCoordinates));
  const int32_t before = Coordinates(axes_).count();
  if (before * size > kMaxShards)
    return Status(Code::invalid, cat("axis '", name, "' gives the model ", before * size,
                                     " coordinates, expected at most ", kMaxShards));
  axes_.push_back({std::move(name), size});
  return {};
}

Status Model::check_cut(const std::vector<AxisCut>& cuts, const AxisCut& cut) const {
  if (cut.axis < 0 || cut.axis >= static_cast<int32_t>(axes_.size()))
    return Status(Code::invalid, "not an axis of this model");
  const std::string& axis = axes_[static_cast<size_t>(cut.axis)].name;
  for (const AxisCut& other : cuts) {
    if (other.dim == cut.dim)
      return Status(Code::invalid, cat("dimension ", cut.dim, " is cut over axis '",
                                       axes_[static_cast<size_t>(other.axis)].name, "' already"));
    if (other.axis == cut.axis)
      return Status(Code::invalid, cat("axis '", axis, "' cuts dimension ", other.dim,
                                       " already, expected one dimension per axis"));
  }
  return {};
}

namespace {

std::vector<AxisCut> joined(std::vector<AxisCut> cuts, const AxisCut& cut) {
  const auto after = std::find_if(cuts.begin(), cuts.end(),
                                  [&](const AxisCut& other) { return other.dim > cut.dim; });
  cuts.insert(after, cut);
  return cuts;
}

Status check_not_samples(const AxisCut& cut) {
  if (cut.dim != 0) return {};
  return Status(Code::invalid, "dimension 0 counts samples and cannot be cut");
}

}  // namespace

Status Model::cut_input(NodeId id, AxisCut cut) {
  WEFT_TRY(check_open("cuts"));
  if (id < 0 || id >= static_cast<NodeId>(nodes_.size()) || !node(id).is_input())
    return Status(Code::invalid, "cut: not an input of this model");
  Node& input = nodes_[static_cast<size_t>(id)];
  const std::string where = cat("input '", input.name, "'");
  if (!input.uses.empty())
    return Status(Code::state, cat(where, " is already used by a node; cut it before"));
  WEFT_TRY(check_not_samples(cut).within(where));
  WEFT_TRY(check_cut(input.cuts, cut).within(where));
  std::vector<AxisCut> cuts = joined(input.cuts, cut);
  WEFT_TRY_ASSIGN(input.one.out.shape,
                  local_shape(whole_desc(id).shape, cuts, axes_).within(where));
  input.cuts = std::move(cuts);
  return {};
}

Status Model::cut_param(ParamId id, AxisCut cut) {
  WEFT_TRY(check_open("cuts"));
  if (id < 0 || id >= static_cast<ParamId>(params_.size()))
    return Status(Code::invalid, "cut: not a parameter of this model");
  Param& param = params_[static_cast<size_t>(id)];
  const std::string where = cat("parameter '", param.name, "'");
  if (!param.uses.empty())
    return Status(Code::state, cat(where, " is already used by a node; cut it before"));
  WEFT_TRY(check_cut(param.cuts, cut).within(where));
  std::vector<AxisCut> cuts = joined(param.cuts, cut);
  WEFT_TRY_ASSIGN(param.local, local_shape(param.shape, cuts, axes_).within(where));
  param.cuts = std::move(cuts);
  return {};
}

Status Model::cut_output(NodeId id, AxisCut cut) {
  WEFT_TRY(check_open("cuts"));
  if (std::find(outputs_.begin(), outputs_.end(), id) == outputs_.end())
    return Status(Code::invalid, "cut: not an output of this model");
  Node& output = nodes_[static_cast<size_t>(id)];
  const std::string where = cat("output '", output.name, "'");
  WEFT_TRY(check_not_samples(cut).within(where));
  WEFT_TRY(check_cut(output.cuts, cut).within(where));
  std::vector<AxisCut> cuts = joined(output.cuts, cut);
  WEFT_TRY_ASSIGN(const Shape shape, whole_shape(output.one.out.shape, cuts, axes_).within(where));
  WEFT_TRY(check_shape({shape.dims.data(), static_cast<size_t>(shape.rank)}, output.one.out.dtype)
               .within(where));
  output.cuts = std::move(cuts);
  return {};
}

Desc Model::whole_desc(NodeId id) const {
  const Node& n = node(id);
  return {n.one.out.dtype, whole_shape(n.one.out.shape, n.cuts, axes_).take()};
}

// The size of the axis of a collective.
Status Model::set_axis(Attrs& attrs) const {
  Over& over = attrs.over;
  if (over.axis < 0) return {};
  if (over.axis >= static_cast<int32_t>(axes_.size()))
    return Status(Code::invalid, "axis_name is not an axis of this model");
  over.size = axes_[static_cast<size_t>(over.axis)].size;
  return {};
}

void hash_axes(const Model& model, Hasher& hasher) {
  const auto number = [&](int64_t n) { hasher.number(static_cast<uint64_t>(n)); };
  const auto cuts = [&](const std::vector<AxisCut>& all) {
    number(static_cast<int64_t>(all.size()));
    for (const AxisCut& cut : all) {
      number(cut.dim);
      number(cut.axis);
      number(cut.drop);
    }
  };
  number(static_cast<int64_t>(model.axes().size()));
  for (const ModelAxis& axis : model.axes()) {
    hasher.text(axis.name);
    number(axis.size);
  }
  for (const Param& param : model.params()) cuts(param.cuts);
  for (const Node& node : model.nodes()) {
    cuts(node.cuts);
    const Over& over = node.attrs.over;
    number(over.axis);
    number(static_cast<int64_t>(over.coordinates.size()));
    for (const int32_t coordinate : over.coordinates) number(coordinate);
  }
}

}  // namespace weft
