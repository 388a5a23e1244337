// Common code of the ops with dropout: dropout and attention.
#pragma once

#include "base/rng.h"
#include "base/text.h"
#include "ops/op.h"

namespace weft {

constexpr double kDropoutFlops = 20;  // per element, approximately

inline Status check_probability(const Attrs& attrs) {
  if (attrs.factor >= 0 && attrs.factor < 1) return {};
  return Status(Code::invalid, cat("factor (probability) is ", attrs.factor,
                                   ", expected 0 or more and less than 1"));
}

inline Stream dropout_stream(const CallKey& key) {
  return Stream::dropout(key.seed, key.step, key.micro_batch, key.node);
}

}  // namespace weft
