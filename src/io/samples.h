// Samples of tokens with their targets, for training and for evaluation.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace weft {

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // Samples of one pass over the part for training.
  virtual int64_t trainings() const = 0;
  // Samples that training never uses.
  virtual int64_t evaluations() const = 0;
  // The place in the source of one of the `samples` samples of a training step. It depends only on
  // these numbers, so that a resumed run continues with the same data.
  virtual int64_t training(uint64_t seed, uint64_t step, int64_t sample, int64_t samples) const = 0;
  // That of one of the samples for evaluation, 0 <= index < evaluations().
  virtual int64_t evaluation(int64_t index) const = 0;

  // Writes the row of tokens at a place, and that of targets.
  virtual Status read(int64_t place, int32_t* tokens, int32_t* targets) const = 0;
  // The position of each token in its sequence.
  virtual void positions(int64_t place, int32_t* out) const = 0;
};

}  // namespace weft
