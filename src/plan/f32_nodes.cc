#include "plan/f32_nodes.h"

#include "base/patterns.h"
#include "base/text.h"

namespace weft {

namespace {

Status add_matches(const Model& model, std::string_view pattern, std::vector<bool>& out) {
  const std::vector<Node>& nodes = model.nodes();
  const Node* first = nullptr;
  bool any = false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].is_input()) continue;
    if (!first) first = &nodes[i];
    if (!matches(pattern, nodes[i].name)) continue;
    out[i] = true;
    any = true;
  }
  if (any) return {};
  return Status(Code::not_found,
                cat("pattern ", shown(pattern), " of f32_nodes matches none of the nodes, from '",
                    first->name, "' to '", nodes.back().name, "'"));
}

}  // namespace

Result<std::shared_ptr<const Model>> with_f32_nodes(const std::shared_ptr<const Model>& model,
                                                    const PlanConfig& config) {
  if (config.f32_nodes.empty()) return model;
  if (config.precision == "f32")
    return Status(Code::invalid, cat("f32_nodes is ", shown(config.f32_nodes),
                                     ", expected '' with precision f32"));
  std::vector<bool> f32(model->nodes().size(), false);
  WEFT_TRY(each_pattern(config.f32_nodes, [&](std::string_view pattern) {
    return add_matches(*model, pattern, f32);
  }));
  auto out = std::make_shared<Model>(*model);
  out->set_f32(f32);
  return std::shared_ptr<const Model>(out);
}

}  // namespace weft
