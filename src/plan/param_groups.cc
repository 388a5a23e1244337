#include "plan/param_groups.h"

#include <algorithm>

#include "base/patterns.h"
#include "base/text.h"
#include "optim/optim.h"

namespace weft {

namespace {

Status check_factors(const ParamGroup& group) {
  for (const auto& [name, factor] : {std::pair("rate_factor", group.rate_factor),
                                     std::pair("weight_decay_factor", group.weight_decay_factor)})
    if (!is_amount(factor))
      return Status(Code::invalid, cat(name, " of the parameter group ", shown(group.pattern),
                                       " is ", factor, ", expected a finite float of 0 or more"));
  return {};
}

Status check_gradients(const Model& model) {
  for (const Param& param : model.params())
    if (!param.training.frozen) return {};
  for (const NodeId input : model.inputs())
    if (model.node(input).wants_grad) return {};
  return Status(Code::invalid,
                "the parameter groups freeze all parameters that the loss depends on, and no "
                "gradient of an input is wanted: there is nothing to train");
}

// Weight decay and old moments would move a parameter without a gradient. Returns whether there is
// one. A model without a loss is not trained.
bool freeze_without_gradient(const Model& model, std::vector<Training>& training) {
  if (model.loss() < 0) return false;
  const std::vector<bool> has_gradient = model.params_below_loss();
  for (size_t p = 0; p < training.size(); ++p)
    if (!has_gradient[p] && !training[p].frozen) training[p].frozen = training[p].off_loss = true;
  return std::find(has_gradient.begin(), has_gradient.end(), false) != has_gradient.end();
}

}  // namespace

Result<std::shared_ptr<const Model>> with_groups(const std::shared_ptr<const Model>& model,
                                                 std::span<const ParamGroup> groups, bool trains) {
  std::vector<Training> training(model->params().size());
  for (const ParamGroup& group : groups) {
    WEFT_TRY(check_factors(group));
    bool any = false;
    for (size_t p = 0; p < training.size(); ++p) {
      if (!matches(group.pattern, model->params()[p].name)) continue;
      training[p] = {.frozen = group.frozen,
                     .rate_factor = group.rate_factor,
                     .decay_factor = group.weight_decay_factor};
      any = true;
    }
    if (!any)
      return Status(
          Code::not_found,
          training.empty()
              ? cat("pattern ", shown(group.pattern), " of a parameter group: the model ",
                    "has no parameters")
              : cat("pattern ", shown(group.pattern), " of a parameter group matches ",
                    "none of the ", training.size(), " parameters, from '",
                    model->params().front().name, "' to '", model->params().back().name, "'"));
  }
  if (!freeze_without_gradient(*model, training) && groups.empty()) return model;
  auto out = std::make_shared<Model>(*model);
  out->set_training(training);
  if (trains && !groups.empty()) WEFT_TRY(check_gradients(*out));
  return std::shared_ptr<const Model>(out);
}

}  // namespace weft
