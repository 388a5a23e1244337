#include "graph/division.h"

#include <algorithm>

#include "base/text.h"
#include "graph/adapters.h"

namespace weft {

namespace {

using enum Along;

// In order of preference. `last` of an input matches an input that is cut so, or that has
// only this dimension besides the batch. Inputs that are cut by the second dimension do not move.
// "adapter" is a linear node with A or B of an adapter: only what has few columns moves.
// clang-format off
constexpr ShardRule kRules[] = {
    // op                    mask        flags        inputs              weights             output
    {"add",                  0,          0,           {input, input},     {},                 input},
    {"div",                  0,          0,           {input, input},     {},                 input},
    {"dropout",              0,          0,           {input, input},     {},                 input},
    {"exp",                  0,          0,           {input, input},     {},                 input},
    {"gelu",                 0,          0,           {input, input},     {},                 input},
    {"log",                  0,          0,           {input, input},     {},                 input},
    {"log_softmax",          0,          0,           {second, nothing},  {},                 input},
    {"mul",                  0,          0,           {input, input},     {},                 input},
    {"neg",                  0,          0,           {input, input},     {},                 input},
    {"relu",                 0,          0,           {input, input},     {},                 input},
    {"scale",                0,          0,           {input, input},     {},                 input},
    {"sigmoid",              0,          0,           {input, input},     {},                 input},
    {"silu",                 0,          0,           {input, input},     {},                 input},
    {"softcap",              0,          0,           {input, input},     {},                 input},
    {"softplus",             0,          0,           {input, input},     {},                 input},
    {"sqrt",                 0,          0,           {input, input},     {},                 input},
    {"sub",                  0,          0,           {input, input},     {},                 input},
    {"tanh",                 0,          0,           {input, input},     {},                 input},
    {"layer_norm",           0,          0,           {second, nothing},  {nothing, nothing}, input},
    {"rms_norm",             0,          0,           {groups, nothing},  {nothing, nothing}, input},
    {"rms_norm",             0,          0,           {second, nothing},  {nothing, nothing}, input},
    {"rope",                 0,          0,           {heads, nothing},   {},                 heads},
    {"softmax",              0,          0,           {second, nothing},  {},                 input},
    {"linear",               kOutIn,     0,           {last, nothing},    {first, once},      sum},
    {"linear",               kOutIn,     0,           {nothing, nothing}, {last, first},      last},
    {"linear",               kOutIn,     kOutIn,      {last, nothing},    {last, once},       sum},
    {"linear",               kOutIn,     kOutIn,      {nothing, nothing}, {first, first},     last},
    {"adapter",              0,          0,           {last, nothing},    {last, once},       sum},
    {"adapter",              0,          0,           {nothing, nothing}, {first, first},     last},
    {"adapter",              0,          0,           {second, nothing},  {nothing, nothing}, input},
    {"attention",            0,          0,           {heads, heads},     {},                 heads},
    {"cached_attention",     0,          0,           {heads, heads},     {},                 heads},
    {"embedding",            kPositions, 0,           {nothing, nothing}, {first, nothing},   sum},
    {"embedding",            kPositions, kPositions,  {second, nothing},  {nothing, nothing}, input},
    {"softmax_cross_entropy", 0,         0,           {last, nothing},    {},                 loss},
};
// clang-format on

class Divider {
 public:
  Divider(const Model& model, int32_t shards) : model_(model), whole_(model.nodes().size(), false) {
    out_.shards = shards;
  }

  Result<Division> run() {
    for (bool agreed = false; !agreed;) {
      out_.nodes.assign(model_.nodes().size(), {});
      out_.params.assign(model_.params().size(), {});
      for (NodeId id = 0; id < static_cast<NodeId>(out_.nodes.size()); ++id)
        WEFT_TRY(divide_node(id));
      agreed = divide_params();
    }
    return std::move(out_);
  }

 private:
  Shape shape_of(NodeId id) const { return model_.node(id).one.out.shape; }
  const Cut& cut_of(NodeId id) const { return out_.nodes[static_cast<size_t>(id)].output; }

  Status divide_node(NodeId id) {
    const Node& node = model_.node(id);
    if (node.is_input() || whole_[static_cast<size_t>(id)]) {
      keep_whole(id);
      return {};
    }
    for (const ShardRule& rule : kRules) {
      if (rule.op != name_of(node) || (node.attrs.flags & rule.mask) != rule.flags) continue;
      if (rule.output == loss && node.attrs.factor != 0) continue;  // pieces do not smooth labels
      NodeDivision tried{.rule = &rule, .inputs = {}, .weights = {}, .output = {}};
      WEFT_TRY_ASSIGN(const bool fits, apply(rule, id, tried));
      if (!fits) continue;
      out_.nodes[static_cast<size_t>(id)] = std::move(tried);
      return {};
    }
    keep_whole(id);
    return {};
  }

  std::string_view name_of(const Node& node) const {
    if (node.is_input()) return "";
    // Not what a program has given such a name in another form.
    const bool adapter = node.op->name() == "linear" && node.weights.size() == 1 &&
                         (node.attrs.flags & kOutIn) != 0 &&
                         is_adapter(model_.param(node.weights.front()).name);
    return adapter ? "adapter" : node.op->name();
  }

  void keep_whole(NodeId id) {
    const Node& node = model_.node(id);
    NodeDivision& division = out_.nodes[static_cast<size_t>(id)];
    division.inputs.resize(node.in.size());
    division.weights.resize(node.weights.size());
  }

  // False: a dimension is too short, or an input is divided in another way.
  Result<bool> apply(const ShardRule& rule, NodeId id, NodeDivision& out) const {
    const Node& node = model_.node(id);
    if (rule.inputs[0] == input && !element_by_element(node)) return false;
    for (size_t i = 0; i < node.in.size(); ++i) {
      // Positions, and other numbers of rows, are not cut.
      const bool numbers = i > 0 && model_.node(node.in[i]).one.out.dtype == DType::i32;
      const Along along = numbers ? nothing : rule.inputs[i > 0];
      WEFT_TRY_ASSIGN(Cut cut, input_cut(along, node, node.in[i]));
      if (cut.whole() != (along == nothing)) return false;
      out.inputs.push_back(std::move(cut));
    }
    const Cut in = out.inputs.empty() ? Cut() : out.inputs.front();
    out.output = output_cut(rule.output, id, in);
    if (out.output.whole() && rule.output != sum && rule.output != loss) return false;
    for (size_t w = 0; w < node.weights.size(); ++w) {
      const Along along = rule.weights[w];
      const Shape& shape = model_.param(node.weights[w]).shape;
      Cut cut;
      if (along == first || along == last) {
        const int axis = along == first ? 0 : shape.rank - 1;
        cut = even(axis, shape[axis]);
        if (cut.whole()) return false;
        // A piece of the weight belongs to a piece of the output or of the input.
        if (rule.output == last) cut.pieces = out.output.pieces;
        if (!in.whole()) cut.pieces = in.pieces;
      }
      out.weights.push_back(std::move(cut));
    }
    return true;
  }

  // Every operand has the elements of the output: nothing is broadcast.
  bool element_by_element(const Node& node) const {
    return node.weights.empty() && std::all_of(node.in.begin(), node.in.end(), [&](NodeId from) {
             return shape_of(from) == node.one.out.shape;
           });
  }

  // Whole if the dimension is too short.
  Cut even(int axis, int64_t extent) const {
    return extent < out_.shards ? Cut() : even_cut(axis, extent, out_.shards);
  }
  Cut even(const Shape& shape, int axis) const {
    return axis < 1 || axis >= shape.rank ? Cut() : even(axis, shape[axis]);
  }

  Result<Cut> input_cut(Along along, const Node& node, NodeId from) const {
    const Shape shape = shape_of(from);
    const Cut& lies = cut_of(from);
    switch (along) {
      case second: {
        // An op that works along the last dimension needs all of it.
        const bool last_too = shape.rank == 2 && node.one.out.shape.rank == 2;
        return last_too ? Cut() : even(shape, 1);
      }
      case last:
        if (!lies.whole() && lies.axis == shape.rank - 1) return lies;
        return lies.whole() && shape.rank == 2 ? even(shape, 1) : Cut();
      case heads: return heads_cut(node, shape);
      case groups: return groups_cut(lies, shape, model_.param(node.weights[0]).shape.last());
      case input:
        for (NodeId other : node.in)
          if (!cut_of(other).whole()) return cut_of(other);
        return Cut();
      default: return Cut();
    }
  }

  static Cut groups_cut(const Cut& lies, const Shape& shape, int64_t size) {
    if (lies.whole() || lies.axis != shape.rank - 1) return Cut();
    for (const Ranges& ranges : lies.pieces)
      for (const Range& range : ranges)
        if (range.begin % size != 0 || range.end % size != 0) return Cut();
    return lies;
  }

  // Of an attention: 1 if queries, keys and values lie side by side, otherwise 3.
  int64_t tensors_of(const Node& node) const {
    return std::count_if(node.in.begin(), node.in.end(), [this](NodeId from) {
      return model_.node(from).one.out.dtype == DType::f32;
    });
  }

  // `shape` is that of an input: queries, keys and values, or one of these.
  Result<Cut> heads_cut(const Node& node, const Shape& shape) const {
    const int32_t groups = is_attention(node) && tensors_of(node) == 1 ? 3 : 1;
    const int64_t size = shape_of(node.in.front()).last() / groups / node.attrs.heads;
    const int64_t heads = shape.last() / groups / size;
    if (heads % out_.shards != 0)
      return Status(Code::invalid, cat("node '", node.name, "' has ", heads,
                                       " heads, expected a multiple of tensor, ", out_.shards));
    return even_cut(shape.rank - 1, shape.last(), out_.shards, groups, size);
  }

  static bool is_attention(const Node& node) {
    return node.op->name() == "attention" || node.op->name() == "cached_attention";
  }
  static bool has_heads(const Node& node) {
    return is_attention(node) || node.op->name() == "rope";
  }

  // Of a node whose output nothing else reads, and which is divided; otherwise -1.
  NodeId only_user(NodeId id) const {
    const Node& node = model_.node(id);
    const auto& outputs = model_.outputs();
    const bool is_output = std::find(outputs.begin(), outputs.end(), id) != outputs.end();
    if (node.uses.size() != 1 || is_output) return -1;
    const NodeId user = node.uses.front().node;
    return whole_[static_cast<size_t>(user)] ? -1 : user;
  }

  bool adds_adapter(const Node& node) const {
    return node.op->name() == "add" && name_of(model_.node(node.in.back())) == "adapter";
  }

  // The columns of what the output of an adapter is added to; whole if that is not cut so.
  Cut columns_beside(NodeId id) const {
    const NodeId user = only_user(id);
    if (user < 0 || !adds_adapter(model_.node(user))) return {};
    const Cut& beside = cut_of(model_.node(user).in.front());
    return beside.axis == model_.node(id).one.out.shape.rank - 1 ? beside : Cut();
  }

  Cut output_cut(Along along, NodeId id, const Cut& in) const {
    const Node& node = model_.node(id);
    const Shape& shape = node.one.out.shape;
    switch (along) {
      case input: return in;
      case sum: return even(shape, 1);
      case heads: return even_cut(shape.rank - 1, shape.last(), out_.shards);
      case last: {
        if (name_of(node) == "adapter") return columns_beside(id);
        // As its only user reads it: a piece has the same heads of queries, keys and values.
        NodeId reader = only_user(id);
        if (reader >= 0 && adds_adapter(model_.node(reader))) reader = only_user(reader);
        if (reader >= 0 && has_heads(model_.node(reader)))
          if (const auto cut = heads_cut(model_.node(reader), shape); cut.ok()) return cut.value();
        return even(shape, shape.rank - 1);
      }
      default: return {};
    }
  }

  // A parameter is cut in one way. Nodes that use one differently are computed whole.
  bool divide_params() {
    std::vector<bool> seen(out_.params.size(), false), disputed = seen;
    for (NodeId id = 0; id < static_cast<NodeId>(out_.nodes.size()); ++id) {
      const Node& node = model_.node(id);
      for (size_t w = 0; w < node.weights.size(); ++w) {
        const auto p = static_cast<size_t>(node.weights[w]);
        const Cut& cut = out_.nodes[static_cast<size_t>(id)].weights[w];
        if (seen[p] && !(out_.params[p] == cut)) disputed[p] = true;
        seen[p] = true;
        out_.params[p] = cut;
      }
    }
    bool agreed = true;
    for (size_t p = 0; p < disputed.size(); ++p) {
      if (!disputed[p]) continue;
      agreed = false;
      for (const Param::Use& use : model_.params()[p].uses)
        whole_[static_cast<size_t>(use.node)] = true;
    }
    return agreed;
  }

  const Model& model_;
  std::vector<bool> whole_;  // nodes that disagree on a parameter
  Division out_;
};

}  // namespace

Result<Division> divide(const Model& model, int32_t shards) { return Divider(model, shards).run(); }

}  // namespace weft
