// Checks of i32 inputs.
#pragma once

#include "base/text.h"
#include "ops/op.h"

namespace weft {

// From `first` to `last`. `exception` describes the numbers below 0 in errors.
inline Status check_range(const View& input, int port, int64_t first, int64_t last,
                          std::string_view exception = "") {
  for (int64_t i = 0; i < input.desc.elements(); ++i)
    if (const int32_t value = input.i32()[i]; value < first || value > last)
      return Status(Code::data, cat("input ", port, ": element ", i, " is ", value,
                                    ", expected 0 to ", last, exception));
  return {};
}

inline Status check_indices(const View& indices, int port, int64_t count) {
  return check_range(indices, port, 0, count - 1);
}

}  // namespace weft
