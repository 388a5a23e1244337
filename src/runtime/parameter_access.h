// Where the tensors of a parameter lie in a rank's memory.
#pragma once

#include "runtime/run.h"
#include "runtime/worker.h"

namespace weft {

// The tensor that `part` names of a parameter's memory, or an error that says that there is none.
Result<float*> find_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

// XXH3-128 over the bytes of that tensor.
Result<Digest> hash_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

}  // namespace weft
