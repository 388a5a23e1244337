#include "runtime/parameter_access.h"

#include <algorithm>

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

Status read_local(const Plan& plan, LocalRanks& ranks, ParamId param, Part part,
                  std::span<float> out) {
  const int32_t owner = plan.owner_of_param[static_cast<size_t>(param)];
  WEFT_TRY_ASSIGN(const float* from,
                  find_part(plan, ranks.worker(owner).param(param), param, part));
  std::copy(from, from + out.size(), out.data());
  return {};
}

Result<Digest> hash_local(const Plan& plan, LocalRanks& ranks, ParamId param, Part part) {
  const int32_t owner = plan.owner_of_param[static_cast<size_t>(param)];
  return hash_part(plan, ranks.worker(owner).param(param), param, part);
}

Status trace_local(const Plan& plan, LocalRanks& ranks, size_t jobs) {
  for (int32_t r = 0; r < plan.config.ranks; ++r) WEFT_TRY(ranks.worker(r).trace(jobs));
  return {};
}

Status write_local(const Plan& plan, LocalRanks& ranks, ParamId param, Part part,
                   std::span<const float> in) {
  const int32_t owner = plan.owner_of_param[static_cast<size_t>(param)];
  WEFT_TRY_ASSIGN(float* to, find_part(plan, ranks.worker(owner).param(param), param, part));
  std::copy(in.begin(), in.end(), to);
  if (part != Part::value) return {};
  for (int32_t r = 0; r < plan.config.ranks; ++r)  // copies of a tied parameter
    if (float* weight = ranks.worker(r).param(param).weight)
      std::copy(in.begin(), in.end(), weight);
  return {};
}

}  // namespace weft
