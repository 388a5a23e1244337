#include "graph/expand.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "graph/movement.h"

namespace weft {

namespace {

// Elements of one sample from which an all-reduce is faster with two exchanges than with one.
constexpr int64_t kLargeSum = 1024;

bool begins_with(const Shape& shape, const Shape& start) {
  if (start.rank > shape.rank) return false;
  for (int d = 0; d < start.rank; ++d)
    if (shape[d] != start[d]) return false;
  return true;
}

class Expander {
 public:
  explicit Expander(const Model& program)
      : program_(program),
        mesh_(program.axes()),
        model_(std::make_shared<Model>()),
        names_(program),
        movement_(program, *model_, names_) {}

  Result<std::shared_ptr<const Model>> run() {
    for (ParamId p = 0; p < static_cast<ParamId>(program_.params().size()); ++p)
      WEFT_TRY(add_param(p));
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes().size()); ++id) {
      varies_.push_back(find_varying(id));
      std::vector<NodeId> made;
      WEFT_TRY_ASSIGN(made, add(id));
      values_.push_back(std::move(made));
    }
    for (const NodeId id : program_.outputs()) WEFT_TRY(add_output(id));
    model_->set_training(program_.training());
    model_->set_f32(program_.f32());
    WEFT_TRY(model_->finish());
    return std::shared_ptr<const Model>(model_);
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  int32_t size_of_axis(int32_t axis) const {
    return program_.axes()[static_cast<size_t>(axis)].size;
  }

  // The indices of a cut dimension that belong to a coordinate.
  Range range_of(const AxisCut& cut, int64_t extent, int32_t coordinate) const {
    const int64_t piece = extent / size_of_axis(cut.axis);
    const int64_t begin = mesh_.along(coordinate, cut.axis) * piece;
    return {begin, begin + piece};
  }

  // Coordinates that differ only along uncut axes share a piece.
  Status add_param(ParamId id) {
    const Param& param = program_.param(id);
    std::map<int32_t, ParamId> made;  // key: the first coordinate that has the piece
    for (int32_t c = 0; c < mesh_.count(); ++c) {
      ParamPiece piece{.whole = id, .name = param.name, .shape = param.shape};
      int32_t first = 0;
      for (const AxisCut& cut : param.cuts) {
        first = mesh_.with(first, cut.axis, mesh_.along(c, cut.axis));
        piece.parts.push_back({cut.dim, {range_of(cut, param.shape[cut.dim], c)}});
      }
      if (first == c) {
        const std::string name = param.cuts.empty() ? param.name : names_.piece(param.name, c);
        WEFT_TRY_ASSIGN(made[c], model_->add_param(name, param.local, param.init, piece));
        if (param.shares) WEFT_TRY(model_->share_gradient(made[c]));
      }
      params_[{id, c}] = made.at(first);
    }
    return {};
  }

  Result<std::vector<NodeId>> add(NodeId id) {
    const Node& n = node(id);
    std::vector<NodeId> out(static_cast<size_t>(mesh_.count()));
    if (n.is_input()) {
      WEFT_TRY_ASSIGN(const NodeId made,
                      model_->add_input(n.name, program_.whole_desc(id), n.wants_grad, {id, 0}));
      std::fill(out.begin(), out.end(), made);
      return out;
    }
    if (id == program_.loss()) {
      WEFT_TRY_ASSIGN(out.front(), add_loss(id));
      return out;
    }
    for (int32_t c = 0; c < mesh_.count(); ++c) {
      auto& made = out[static_cast<size_t>(c)];
      WEFT_TRY_ASSIGN(made, n.op->collective() == Collective::none ? compute(id, c) : move(id, c));
    }
    return out;
  }

  // The value that a node reads at a coordinate. Each reader makes its own slice of an input, in
  // its own stage.
  Result<NodeId> value(NodeId id, int32_t coordinate, NodeId reader) {
    const NodeId made = values_[static_cast<size_t>(id)][static_cast<size_t>(coordinate)];
    const Node& n = node(id);
    if (!n.is_input() || n.cuts.empty()) return made;
    NodeId piece = made;
    for (const AxisCut& cut : n.cuts) {
      const Range range = range_of(cut, model_->node(made).one.out.shape[cut.dim], coordinate);
      NodeId& known = slices_[{reader, piece, cut.dim, range.begin}];
      if (known == 0) {
        WEFT_TRY_ASSIGN(known, movement_.slice(piece, cut.dim, range, {reader, 0}));
      }
      piece = known;
    }
    if (model_->node(piece).one.out.shape == n.one.out.shape) return piece;
    return movement_.reshape(piece, n.one.out.shape, {reader, coordinate});
  }

  // The coordinates that differ from this one only along the axis of a collective.
  Result<std::vector<NodeId>> group(NodeId id, int32_t coordinate) {
    const Over& over = node(id).attrs.over;
    std::vector<NodeId> out;
    for (int32_t i = 0; i < over.size; ++i) {
      WEFT_TRY_ASSIGN(const NodeId from,
                      value(node(id).in.front(), mesh_.with(coordinate, over.axis, i), id));
      out.push_back(from);
    }
    return out;
  }

  Result<NodeId> compute(NodeId id, int32_t coordinate) {
    const Node& n = node(id);
    std::vector<NodeId> in;
    for (const NodeId from : n.in) {
      WEFT_TRY_ASSIGN(const NodeId operand, value(from, coordinate, id));
      in.push_back(operand);
    }
    std::vector<ParamId> weights;
    for (const ParamId w : n.weights) weights.push_back(params_.at({w, coordinate}));
    Attrs attrs = n.attrs;
    const bool drops = n.op->name() == "dropout" || n.op->name() == "attention";
    if (n.op->of_caller() || (attrs.factor > 0 && drops)) {
      WEFT_TRY_ASSIGN(attrs.section, section(id, coordinate));
    }
    return model_->add_node(names_.piece(n.name, coordinate), n.op, attrs, in, weights,
                            {id, coordinate});
  }

  // At coordinate 0, of whole targets. Along an axis over which they are cut, the predictions of
  // all coordinates are joined as the targets are; their dimensions begin with those of the
  // targets.
  Result<NodeId> add_loss(NodeId id) {
    const Node& n = node(id);
    const auto port = static_cast<size_t>(n.op->target_port());
    const Node& targets = node(n.in[port]);
    std::vector<NodeId> in;
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (i == port) {
        in.push_back(values_[static_cast<size_t>(n.in[i])].front());
        continue;
      }
      const Shape& local = node(n.in[i]).one.out.shape;
      Shape piece = piece_of(n.in[port]);
      // Those of sum_loss need not go with the targets.
      if (!begins_with(local, node(n.in[port]).one.out.shape)) {
        if (!targets.cuts.empty())
          return Status(Code::unsupported,
                        cat("loss '", n.name, "': its prediction ", local.text(),
                            " does not begin with the dimensions ", targets.one.out.shape.text(),
                            " of the targets '", targets.name, "', which are cut"));
        WEFT_TRY_ASSIGN(const NodeId whole, value(n.in[i], 0, id));
        in.push_back(whole);
        continue;
      }
      if (piece.rank + local.rank - targets.one.out.shape.rank > kMaxRank)
        return Status(Code::unsupported,
                      cat("loss '", n.name, "': its predictions, joined as its targets '",
                          targets.name, "' are, have more than ", kMaxRank, " dimensions"));
      for (int d = targets.one.out.shape.rank; d < local.rank; ++d) piece[piece.rank++] = local[d];
      WEFT_TRY_ASSIGN(const NodeId whole, join({n.in[i], id, targets.cuts, piece}));
      in.push_back(whole);
    }
    return model_->add_node(n.name, n.op, n.attrs, in, {}, {id, 0});
  }

  // The piece of a coordinate, if a value differs along some axes: these pieces count as the heads,
  // or the second dimension, of one value. Dropout has one mask for this value. Coordinates with
  // the same value therefore drop the same elements, and other coordinates drop other elements. The
  // seeds of ops of the caller are alike.
  Result<Section> section(NodeId id, int32_t coordinate) const {
    const Node& n = node(id);
    const Shape& shape = n.one.out.shape;
    int64_t number = 0, count = 1;
    for (size_t a = 0; a < program_.axes().size(); ++a) {
      if (!varies_[static_cast<size_t>(id)][a]) continue;
      const auto axis = static_cast<int32_t>(a);
      number = number * size_of_axis(axis) + mesh_.along(coordinate, axis);
      count *= size_of_axis(axis);
    }
    if (count == 1) return Section{};
    const int32_t axis = n.op->name() == "dropout" ? 1 : shape.rank - 1;
    if (axis >= shape.rank)
      return Status(Code::unsupported,
                    cat("node '", n.name, "' (dropout): its value ", n.one.out.text(),
                        " differs by coordinate, expected two dimensions or more"));
    return Section{.axis = axis, .begin = number * shape[axis], .whole = count * shape[axis]};
  }

  // For each axis, whether the value may differ along it.
  std::vector<bool> find_varying(NodeId id) const {
    const Node& n = node(id);
    std::vector<bool> out(program_.axes().size());
    const auto set_cuts = [&](const std::vector<AxisCut>& cuts) {
      for (const AxisCut& cut : cuts) out[static_cast<size_t>(cut.axis)] = true;
    };
    if (n.is_input()) set_cuts(n.cuts);
    for (const NodeId from : n.in)
      for (size_t a = 0; a < out.size(); ++a)
        if (varies_[static_cast<size_t>(from)][a]) out[a] = true;
    for (const ParamId w : n.weights) set_cuts(program_.param(w).cuts);
    const Collective collective = n.op ? n.op->collective() : Collective::none;
    if (collective == Collective::none) return out;
    out[static_cast<size_t>(n.attrs.over.axis)] = collective != Collective::all_gather &&
                                                  collective != Collective::all_reduce &&
                                                  collective != Collective::broadcast;
    return out;
  }

  // The value that a collective gives to a coordinate.
  Result<NodeId> move(NodeId id, int32_t coordinate) {
    const Node& n = node(id);
    const Over& over = n.attrs.over;
    const int32_t here = mesh_.along(coordinate, over.axis);
    switch (n.op->collective()) {
      case Collective::ppermute:
        return value_of(id, coordinate, over.coordinates[static_cast<size_t>(here)]);
      case Collective::broadcast: return value_of(id, coordinate, over.coordinates.front());
      case Collective::mask: {
        const bool kept = std::find(over.coordinates.begin(), over.coordinates.end(), here) !=
                          over.coordinates.end();
        return value_of(id, coordinate, kept ? here : -1);
      }
      default: break;
    }
    WEFT_TRY_ASSIGN(const std::vector<NodeId> all, group(id, coordinate));
    switch (n.op->collective()) {
      case Collective::all_gather: return movement_.concat(all, n.attrs.axis, {id, coordinate});
      case Collective::reduce_scatter: return sum_of_slices(id, all, n.attrs.axis, coordinate);
      case Collective::all_to_all: {
        WEFT_TRY_ASSIGN(const std::vector<NodeId> parts,
                        slices(id, all, static_cast<int>(n.attrs.dims[0]), coordinate));
        return movement_.concat(parts, static_cast<int>(n.attrs.dims[1]), {id, coordinate});
      }
      default: return all_reduce(id, all, coordinate);
    }
  }

  // The value of the coordinate `from` along the axis, or zeros if it is -1.
  Result<NodeId> value_of(NodeId id, int32_t coordinate, int32_t from) {
    const Node& n = node(id);
    if (from >= 0) return value(n.in.front(), mesh_.with(coordinate, n.attrs.over.axis, from), id);
    WEFT_TRY_ASSIGN(const NodeId like, value(n.in.front(), coordinate, id));
    return movement_.zeros_like(like, {id, coordinate});
  }

  // The part of each value of a group that belongs to a coordinate, cut in the stage of the value.
  Result<std::vector<NodeId>> slices(NodeId id, const std::vector<NodeId>& all, int dim,
                                     int32_t coordinate) {
    const Over& over = node(id).attrs.over;
    const Cut cut = even_cut(dim, model_->node(all.front()).one.out.shape[dim], over.size);
    const auto here = static_cast<size_t>(mesh_.along(coordinate, over.axis));
    std::vector<NodeId> out;
    for (int32_t i = 0; i < over.size; ++i) {
      WEFT_TRY_ASSIGN(const NodeId part,
                      movement_.slice(all[static_cast<size_t>(i)], dim, cut.pieces[here].front(),
                                      {id, mesh_.with(coordinate, over.axis, i)}));
      out.push_back(part);
    }
    return out;
  }

  Result<NodeId> sum_of_slices(NodeId id, const std::vector<NodeId>& all, int dim,
                               int32_t coordinate) {
    WEFT_TRY_ASSIGN(const std::vector<NodeId> parts, slices(id, all, dim, coordinate));
    return movement_.sum(parts, {id, coordinate});
  }

  // A large value is added in pieces, which are then gathered; the bits are the same.
  Result<NodeId> all_reduce(NodeId id, const std::vector<NodeId>& all, int32_t coordinate) {
    const Over& over = node(id).attrs.over;
    const Shape& shape = node(id).one.out.shape;
    int dim = 1;
    for (int d = 2; d < shape.rank; ++d)
      if (shape[d] > shape[dim]) dim = d;
    const bool pieces =
        over.size > 2 && shape.elements() >= kLargeSum && shape.rank > 1 && shape[dim] >= over.size;
    if (!pieces) return movement_.sum(all, {id, coordinate});
    std::vector<NodeId> parts;
    for (int32_t i = 0; i < over.size; ++i) {
      const int32_t there = mesh_.with(coordinate, over.axis, i);
      NodeId& known = sums_[{id, there}];
      if (known == 0) {
        WEFT_TRY_ASSIGN(known, sum_of_slices(id, all, dim, there));
      }
      parts.push_back(known);
    }
    return movement_.concat(parts, dim, {id, coordinate});
  }

  Status add_output(NodeId id) {
    WEFT_TRY_ASSIGN(NodeId whole, join({id, id, node(id).cuts, piece_of(id)}));
    // The result of a collective may be an input or another output.
    const auto& outputs = model_->outputs();
    if (model_->node(whole).is_input() ||
        std::find(outputs.begin(), outputs.end(), whole) != outputs.end()) {
      WEFT_TRY_ASSIGN(whole, movement_.reshape(whole, model_->node(whole).one.out.shape, {id, 0}));
    }
    return model_->add_output(whole);
  }

  // The piece of a coordinate of a value with cuts, with the dimensions of the whole.
  Shape piece_of(NodeId id) const {
    Shape shape = program_.whole_desc(id).shape;
    for (const AxisCut& cut : node(id).cuts) shape[cut.dim] /= size_of_axis(cut.axis);
    return shape;
  }

  struct Joined {
    NodeId value, reader;
    const std::vector<AxisCut>& cuts;
    Shape piece;
  };

  // The value of the coordinates from one on, side by side along the cuts from one on.
  Result<NodeId> join(const Joined& of, size_t first = 0, int32_t coordinate = 0) {
    if (first == of.cuts.size()) {
      WEFT_TRY_ASSIGN(const NodeId piece, value(of.value, coordinate, of.reader));
      if (model_->node(piece).one.out.shape == of.piece) return piece;
      return movement_.reshape(piece, of.piece, {of.reader, coordinate});
    }
    const AxisCut& cut = of.cuts[first];
    std::vector<NodeId> parts;
    for (int32_t i = 0; i < size_of_axis(cut.axis); ++i) {
      WEFT_TRY_ASSIGN(const NodeId part, join(of, first + 1, mesh_.with(coordinate, cut.axis, i)));
      parts.push_back(part);
    }
    return movement_.concat(parts, cut.dim, {of.reader, coordinate});
  }

  const Model& program_;
  const Coordinates mesh_;
  std::shared_ptr<Model> model_;
  PieceNames names_;
  Movement movement_;
  std::map<std::pair<ParamId, int32_t>, ParamId> params_;  // by parameter and coordinate
  std::vector<std::vector<NodeId>> values_;                // per node: the node of each coordinate
  std::vector<std::vector<bool>> varies_;                  // per node and axis
  std::map<std::tuple<NodeId, NodeId, int32_t, int64_t>, NodeId> slices_;  // of inputs, by reader
  std::map<std::pair<NodeId, int32_t>, NodeId> sums_;  // of an all-reduce, by piece
};

}  // namespace

Result<std::shared_ptr<const Model>> expand(const Model& program) {
  return Expander(program).run();
}

}  // namespace weft
