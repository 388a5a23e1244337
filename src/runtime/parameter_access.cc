#include "runtime/parameter_access.h"

#include "base/text.h"

namespace weft {

Result<float*> find_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part) {
  float* at = part == Part::value  ? memory.weight
              : part == Part::grad ? memory.grad
                                   : memory.slots[part == Part::state0 ? 0 : 1];
  if (!at)
    return Status(Code::not_found, cat("parameter '", plan.model->param(param).name,
                                       "' has no such tensor with this model and optimizer"));
  return at;
}

Result<Digest> hash_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part) {
  WEFT_TRY_ASSIGN(const float* from, find_part(plan, memory, param, part));
  return hash_bytes(from,
                    static_cast<size_t>(plan.model->param(param).shape.elements()) * sizeof(float));
}

}  // namespace weft
