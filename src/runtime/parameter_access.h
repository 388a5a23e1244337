// The tensors of a parameter in a rank's memory.
#pragma once

#include <memory>
#include <span>

#include "runtime/run.h"
#include "runtime/worker.h"

namespace weft {

// A range of such a tensor as floats: in the rank's memory, or in a buffer if the memory has bf16,
// a packed form or a copy.
class PartRange {
 public:
  PartRange() = default;
  // `offset` and `count` in elements. Fails if the parameter has no such tensor.
  static Result<PartRange> find(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                                Part part, uint64_t offset, uint64_t count);

  // The values. Valid as long as this object.
  std::span<const float> read();
  // Where to write all values, for store(). They are undefined before.
  std::span<float> floats();
  void store();

 private:
  std::span<float> span();

  float* at_ = nullptr;  // null: weight_
  StoredWeight weight_;
  ParamId param_ = -1;
  InitialValues* initial_ = nullptr;  // null: the range has values
  uint64_t offset_ = 0, count_ = 0;
  std::unique_ptr<float[]> buffer_;
};

// XXH3-128 over the values of that tensor, as floats.
Result<Digest> hash_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part);

}  // namespace weft
