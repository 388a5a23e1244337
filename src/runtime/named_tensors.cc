#include "runtime/named_tensors.h"

#include "runtime/optimizer_state.h"

namespace weft {

NamedTensors model_of(const Plan& plan) {
  NamedTensors out;
  for (ParamId p = 0; p < static_cast<ParamId>(plan.whole->params().size()); ++p)
    out.add({p, Part::value}, ShardPart::model, plan.whole->param(p).name);
  return out;
}

NamedTensors optimizer_of(const Plan& plan) {
  NamedTensors out;
  for (ParamId p = 0; p < static_cast<ParamId>(plan.whole->params().size()); ++p)
    (void)each_state(plan, p, [&](Part part, const std::string& name) {
      out.add({p, part}, ShardPart::optimizer, name);
      return Status();
    });
  return out;
}

std::vector<TensorSpec> specs_of(const Plan& plan, const NamedTensors& named) {
  std::vector<TensorSpec> out;
  for (size_t i = 0; i < named.tensors.size(); ++i)
    out.push_back(
        {named.places[i].name, {DType::f32, plan.whole->param(named.tensors[i].param).shape}});
  return out;
}

}  // namespace weft
