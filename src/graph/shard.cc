#include "graph/shard.h"

#include "base/text.h"
#include "graph/division.h"
#include "graph/movement.h"

namespace weft {

namespace {

class Sharder {
 public:
  Sharder(const Model& whole, Division division)
      : whole_(whole),
        division_(std::move(division)),
        model_(std::make_shared<Model>()),
        names_(whole),
        movement_(whole, *model_, names_) {}

  Result<std::shared_ptr<const Model>> run() {
    for (ParamId p = 0; p < static_cast<ParamId>(whole_.params().size()); ++p)
      WEFT_TRY(add_param(p));
    for (NodeId id = 0; id < static_cast<NodeId>(whole_.nodes().size()); ++id) {
      Pieces made;
      WEFT_TRY_ASSIGN(made, add(id));
      values_.push_back(std::move(made));
    }
    for (NodeId id : whole_.outputs()) {
      WEFT_TRY_ASSIGN(const NodeId output, movement_.fetch(value(id), {}, 0, id));
      WEFT_TRY(model_->add_output(output));
    }
    model_->set_training(whole_.training());
    model_->set_f32(whole_.f32());
    WEFT_TRY(model_->finish());
    return std::shared_ptr<const Model>(model_);
  }

 private:
  const Pieces& value(NodeId id) const { return values_[static_cast<size_t>(id)]; }
  const NodeDivision& division(NodeId id) const { return division_.nodes[static_cast<size_t>(id)]; }

  Status add_param(ParamId id) {
    const Param& param = whole_.param(id);
    const Cut& cut = division_.params[static_cast<size_t>(id)];
    ParamPiece piece{.whole = id, .name = param.name, .shape = param.shape};
    std::vector<ParamId>& pieces = params_.emplace_back();
    for (int32_t c = 0; c < (cut.whole() ? 1 : division_.shards); ++c) {
      Shape shape = param.shape;
      std::string name = param.name;
      if (!cut.whole()) {
        const Ranges& ranges = cut.pieces[static_cast<size_t>(c)];
        piece.parts = {{cut.axis, ranges}};
        shape[cut.axis] = length_of(ranges);
        name = names_.piece(param.name, c);
      }
      WEFT_TRY_ASSIGN(const ParamId made, model_->add_param(name, shape, param.init, piece));
      if (param.shares) WEFT_TRY(model_->share_gradient(made));
      pieces.push_back(made);
    }
    return {};
  }

  Result<Pieces> add(NodeId id) {
    const Node& node = whole_.node(id);
    if (!node.is_input()) return division(id).rule ? add_pieces(id) : add_whole(id);
    WEFT_TRY_ASSIGN(const NodeId made,
                    model_->add_input(node.name, node.one.out, node.wants_grad, {id, 0}));
    return Pieces{.cut = {}, .nodes = {made}};
  }

  Result<Pieces> add_whole(NodeId id) {
    const Node& node = whole_.node(id);
    std::vector<NodeId> in;
    for (NodeId from : node.in) {
      WEFT_TRY_ASSIGN(const NodeId made, movement_.fetch(value(from), {}, 0, id));
      in.push_back(made);
    }
    std::vector<ParamId> weights;
    for (ParamId w : node.weights) weights.push_back(params_[static_cast<size_t>(w)].front());
    WEFT_TRY_ASSIGN(const NodeId made,
                    model_->add_node(node.name, node.op, node.attrs, in, weights, {id, 0}));
    return Pieces{.cut = {}, .nodes = {made}};
  }

  Result<Pieces> add_pieces(NodeId id) {
    const Node& node = whole_.node(id);
    const NodeDivision& how = division(id);
    const auto shards = static_cast<size_t>(division_.shards);
    std::vector<std::vector<NodeId>> in(shards);
    for (size_t i = 0; i < node.in.size(); ++i)
      for (size_t c = 0; c < shards; ++c) {
        WEFT_TRY_ASSIGN(const NodeId from, movement_.fetch(value(node.in[i]), how.inputs[i],
                                                           static_cast<int32_t>(c), id));
        in[c].push_back(from);
      }
    const bool loss = how.rule->output == Along::loss;
    std::vector<NodeId> made;
    for (size_t c = 0; c < shards; ++c) {
      const auto coordinate = static_cast<int32_t>(c);
      WEFT_TRY_ASSIGN(const NodeId piece,
                      model_->add_node(names_.piece(node.name, coordinate),
                                       loss ? &cross_entropy_part_op() : node.op, attrs_of(id, c),
                                       in[c], weights_of(id, c), {id, coordinate}));
      made.push_back(piece);
    }
    if (how.rule->output == Along::sum) return movement_.add(made, how.output, id);
    if (!loss) return Pieces{.cut = how.output, .nodes = std::move(made)};
    made.insert(made.begin(), value(node.in[1]).nodes.front());  // the targets
    WEFT_TRY_ASSIGN(const NodeId whole, model_->add_node(node.name, &cross_entropy_of_parts_op(),
                                                         {}, made, {}, {id, 0}));
    return Pieces{.cut = {}, .nodes = {whole}};
  }

  std::vector<ParamId> weights_of(NodeId id, size_t coordinate) const {
    const Node& node = whole_.node(id);
    std::vector<ParamId> out;
    for (size_t w = 0; w < node.weights.size(); ++w) {
      const std::vector<ParamId>& pieces = params_[static_cast<size_t>(node.weights[w])];
      const bool here = coordinate == 0 || division(id).rule->weights[w] != Along::once;
      if (here) out.push_back(pieces.size() > 1 ? pieces[coordinate] : pieces.front());
    }
    return out;
  }

  Attrs attrs_of(NodeId id, size_t coordinate) const {
    const Node& node = whole_.node(id);
    const NodeDivision& how = division(id);
    Attrs attrs = node.attrs;
    if (how.rule->output == Along::heads) attrs.heads /= division_.shards;
    const bool moved = how.rule->output == Along::sum || how.rule->output == Along::loss;
    const bool of_input = !how.inputs.front().whole();
    const Cut& cut = !moved ? how.output : of_input ? how.inputs.front() : how.weights.front();
    const Shape& shape = !moved     ? node.one.out.shape
                         : of_input ? whole_.node(node.in.front()).one.out.shape
                                    : whole_.param(node.weights.front()).shape;
    attrs.section = {
        .axis = cut.axis, .begin = cut.pieces[coordinate].front().begin, .whole = shape[cut.axis]};
    return attrs;
  }

  const Model& whole_;
  const Division division_;
  std::shared_ptr<Model> model_;
  PieceNames names_;
  Movement movement_;
  std::vector<std::vector<ParamId>> params_;  // per parameter of the whole model: its pieces
  std::vector<Pieces> values_;                // per node of the whole model
};

}  // namespace

Result<std::shared_ptr<const Model>> shard(const std::shared_ptr<const Model>& whole,
                                           int32_t shards) {
  if (shards < 1 || shards > kMostShards)
    return Status(Code::invalid, cat("shards is ", shards, ", expected 1 to ", kMostShards));
  if (shards == 1) return whole;
  WEFT_TRY_ASSIGN(Division division, divide(*whole, shards));
  return Sharder(*whole, std::move(division)).run();
}

}  // namespace weft
