#include "graph/adapters.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace weft {

namespace {

constexpr std::string_view kDown = ".lora_A", kUp = ".lora_B", kScale = ".lora_scale",
                           kDropout = ".lora_dropout", kBase = ".base_layer", kWeight = ".weight";

// Those that PEFT adapts by default.
constexpr std::string_view kUsual[] = {"q_proj", "v_proj", "c_attn", "query_key_value", "qkv_proj"};

bool is_linear(const Node& node) { return node.op && node.op->name() == "linear"; }

bool is_target(std::string_view target, std::string_view name) {
  return name == target ||
         (name.ends_with(target) && name.substr(0, name.size() - target.size()).ends_with('.'));
}

bool has_target(const Model& model, std::string_view target) {
  return std::any_of(model.nodes().begin(), model.nodes().end(), [target](const Node& node) {
    return is_linear(node) && is_target(target, node.name);
  });
}

Status check_options(const AdapterOptions& options) {
  constexpr int64_t kMostRank = 1 << 16;
  if (options.rank < 1 || options.rank > kMostRank)
    return Status(Code::invalid,
                  cat("the rank of the adapters is ", options.rank, ", expected 1 to ", kMostRank));
  constexpr double kMostAlpha = 1e30;
  if (!(options.alpha > 0 && options.alpha <= kMostAlpha))
    return Status(Code::invalid, cat("alpha of the adapters is ", options.alpha,
                                     ", expected a number above 0, at most ", kMostAlpha));
  constexpr double kMostDropout = 0.99;
  if (options.dropout >= 0 && options.dropout <= kMostDropout) return {};
  return Status(Code::invalid, cat("dropout of the adapters is ", options.dropout,
                                   ", expected a number from 0 to ", kMostDropout));
}

Status check_model(const Model& model) {
  if (!model.axes().empty())
    return Status(Code::unsupported, cat("a model with axes cannot have adapters, and this one ",
                                         "has the axis '", model.axes().front().name, "'"));
  for (const Param& param : model.params())
    if (is_adapter(param.name))
      return Status(Code::invalid,
                    cat("the model already has adapters: parameter '", param.name, "'"));
  return model.check();
}

Status choose_targets(const Model& model, std::vector<std::string>& targets) {
  if (targets.empty())
    for (const std::string_view usual : kUsual)
      if (has_target(model, usual)) targets.emplace_back(usual);
  if (targets.empty()) {
    std::string usual;
    for (const std::string_view name : kUsual) usual += cat(usual.empty() ? "" : ", ", name);
    return Status(Code::not_found, cat("no linear node has one of the names that have adapters by ",
                                       "default: ", usual, ". Name the targets"));
  }
  for (const std::string& target : targets) {
    if (target == kAllLinear && targets.size() == 1) return {};
    if (!has_target(model, target))
      return Status(Code::not_found, cat("target ", shown(target), " of the adapters: no linear ",
                                         "node has this name, or '.' and it at its end"));
  }
  return {};
}

class Adapting {
 public:
  Adapting(const Model& model, const AdapterOptions& options)
      : model_(model), options_(options), out_(std::make_shared<Model>()) {}

  Result<std::shared_ptr<Model>> run() {
    out_->share_ops(model_);
    for (const Param& param : model_.params()) {
      WEFT_TRY_ASSIGN(const ParamId made, out_->add_param(param.name, param.shape, param.init));
      if (param.shares) WEFT_TRY(out_->share_gradient(made));
    }
    for (NodeId id = 0; id < static_cast<NodeId>(model_.nodes().size()); ++id) {
      WEFT_TRY_ASSIGN(const NodeId made, add(id));
      made_.push_back(made);
    }
    for (const NodeId output : model_.outputs())
      WEFT_TRY(out_->add_output(made_[static_cast<size_t>(output)]));
    WEFT_TRY(out_->finish());
    return out_;
  }

 private:
  bool has_adapter(NodeId id) const {
    const Node& node = model_.node(id);
    if (!is_linear(node)) return false;
    if (options_.targets.front() == kAllLinear) {
      const auto& outputs = model_.outputs();
      return std::none_of(outputs.begin(), outputs.end(),
                          [&](NodeId output) { return linear_of(output) == id; });
    }
    return std::any_of(options_.targets.begin(), options_.targets.end(),
                       [&](const std::string& target) { return is_target(target, node.name); });
  }

  // What an output is made of by ops without parameters, such as a cap.
  NodeId linear_of(NodeId output) const {
    const Node* node = &model_.node(output);
    while (!node->is_input() && node->in.size() == 1 && node->weights.empty()) {
      output = node->in.front();
      node = &model_.node(output);
    }
    return output;
  }

  Result<NodeId> add(NodeId id) {
    const Node& node = model_.node(id);
    if (node.is_input()) return out_->add_input(node.name, node.one.out, node.wants_grad);
    std::vector<NodeId> in;
    for (const NodeId from : node.in) in.push_back(made_[static_cast<size_t>(from)]);
    if (has_adapter(id)) return add_adapted(node, in);
    return out_->add_node(node.name, node.op, node.attrs, in, node.weights);
  }

  // The scale is applied where a sample has the fewest elements.
  Result<NodeId> add_adapted(const Node& node, const std::vector<NodeId>& in) {
    const Shape& shape = model_.param(node.weights.front()).shape;
    const bool out_in = (node.attrs.flags & kOutIn) != 0;
    const int64_t columns = shape[out_in ? 1 : 0], rows = shape[out_in ? 0 : 1];
    // The variance that PEFT's uniform distribution has.
    const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(columns));
    WEFT_TRY_ASSIGN(const NodeId base,
                    out_->add_node(cat(node.name, kBase), node.op, node.attrs, in, node.weights));
    WEFT_TRY_ASSIGN(const NodeId x, add_dropout(cat(node.name, kDropout), in.front()));
    WEFT_TRY_ASSIGN(const NodeId down, add_linear(cat(node.name, kDown), x, columns, options_.rank,
                                                  {InitKind::normal, deviation}));
    Attrs scale;
    scale.factor = options_.alpha / static_cast<double>(options_.rank);
    WEFT_TRY_ASSIGN(const NodeId scaled,
                    add_node(cat(node.name, kScale), "scale", {down}, {}, scale));
    WEFT_TRY_ASSIGN(const NodeId up,
                    add_linear(cat(node.name, kUp), scaled, options_.rank, rows, {}));
    return add_node(node.name, "add", {base, up}, {}, {});
  }

  Result<NodeId> add_dropout(const std::string& name, NodeId x) {
    if (options_.dropout == 0) return x;
    Attrs attrs;
    attrs.factor = options_.dropout;
    return add_node(name, "dropout", {x}, {}, attrs);
  }

  Result<NodeId> add_linear(const std::string& name, NodeId x, int64_t columns, int64_t rows,
                            Init init) {
    WEFT_TRY_ASSIGN(const ParamId weight,
                    out_->add_param(cat(name, kWeight), {rows, columns}, init));
    Attrs attrs;
    attrs.flags = kOutIn;
    return add_node(name, "linear", {x}, {weight}, attrs);
  }

  Result<NodeId> add_node(const std::string& name, std::string_view op, std::vector<NodeId> in,
                          std::vector<ParamId> weights, const Attrs& attrs) {
    return out_->add_node(name, find_op(op), attrs, in, weights);
  }

  const Model& model_;
  const AdapterOptions& options_;
  std::shared_ptr<Model> out_;
  std::vector<NodeId> made_;  // per node of the model
};

}  // namespace

Result<std::shared_ptr<Model>> adapt(const Model& model, AdapterOptions& options) {
  WEFT_TRY(check_options(options));
  WEFT_TRY(check_model(model));
  WEFT_TRY(choose_targets(model, options.targets));
  return Adapting(model, options).run();
}

std::vector<Adapter> adapters_of(const Model& model) {
  std::vector<Adapter> out;
  for (const Node& node : model.nodes()) {
    const NodeId base = model.find_node(cat(node.name, kBase)),
                 scale = model.find_node(cat(node.name, kScale));
    const ParamId a = model.find_param(cat(node.name, kDown, kWeight)),
                  b = model.find_param(cat(node.name, kUp, kWeight));
    if (base < 0 || scale < 0 || a < 0 || b < 0 || !is_linear(model.node(base))) continue;
    out.push_back({.name = node.name,
                   .weight = model.node(base).weights.front(),
                   .a = a,
                   .b = b,
                   .out_in = (model.node(base).attrs.flags & kOutIn) != 0,
                   .scale = model.node(scale).attrs.factor});
  }
  return out;
}

bool is_adapter(std::string_view param) {
  return param.ends_with(cat(kDown, kWeight)) || param.ends_with(cat(kUp, kWeight));
}

}  // namespace weft
