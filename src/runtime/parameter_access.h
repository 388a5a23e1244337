// The addresses of the tensors of a parameter in a rank's memory.
#pragma once

#include "runtime/run.h"
#include "runtime/worker.h"

namespace weft {

// The tensor `part` of a parameter's memory, or an error if the parameter has no such tensor.
Result<float*> find_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

// XXH3-128 over the bytes of that tensor.
Result<Digest> hash_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

}  // namespace weft
