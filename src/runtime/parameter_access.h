// Reading and writing parameters that live in this process.
#pragma once

#include "runtime/local.h"
#include "runtime/run.h"

namespace weft {

// The tensor that `part` names of a parameter's memory, or an error that says that there is none.
Result<float*> find_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

// XXH3-128 over the bytes of that tensor.
Result<Digest> hash_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

Status read_local(const Plan& plan, LocalRanks& ranks, ParamId param, Part part,
                  std::span<float> out);
Result<Digest> hash_local(const Plan& plan, LocalRanks& ranks, ParamId param, Part part);
Status trace_local(const Plan& plan, LocalRanks& ranks, size_t jobs);
Status write_local(const Plan& plan, LocalRanks& ranks, ParamId param, Part part,
                   std::span<const float> in);

}  // namespace weft
