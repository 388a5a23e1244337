// Samples of tokens with their targets, for training and for evaluation.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace weft {

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // Samples that training never uses.
  virtual int64_t evaluations() const = 0;
  // The sample that is drawn for these numbers. It depends only on them, so that a resumed run
  // continues with the same data. A row of tokens and one of targets are written.
  virtual Status training(uint64_t seed, uint64_t step, uint64_t sample, int32_t* tokens,
                          int32_t* targets) const = 0;
  virtual Status evaluation(int64_t index, int32_t* tokens, int32_t* targets) const = 0;
};

}  // namespace weft
