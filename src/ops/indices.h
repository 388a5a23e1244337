// The numbers that an op takes from an i32 input.
#pragma once

#include "base/text.h"
#include "ops/op.h"

namespace weft {

// Numbers that cross_entropy_part passes on for each target.
constexpr int64_t kCrossEntropyFields = 3;

// The targets of cross entropy are class numbers, or -1: not counted.
inline IndexRange targets_of(int64_t classes) { return {-1, classes - 1}; }

inline Status outside_status(std::string_view where, int64_t element, int32_t value,
                             IndexRange range) {
  return Status(Code::data,
                cat(where, ": element ", element, " is ", value, ", expected 0 to ", range.last,
                    range.first < 0 ? ", or -1 for a target that does not count" : ""));
}

// The first of these that is outside; null: none.
inline const int32_t* find_outside(std::span<const int32_t> values, IndexRange range) {
  for (const int32_t& value : values)
    if (value < range.first || value > range.last) return &value;
  return nullptr;
}

// The inputs of the model are checked before a step, see InputRanges; this finds what other nodes
// compute.
inline Status check_indices(const Call& call, int port, IndexRange range) {
  const View& view = call.in[static_cast<size_t>(port)];
  const std::span values(view.i32(), static_cast<size_t>(view.desc.elements()));
  const int32_t* outside = find_outside(values, range);
  return outside ? outside_status(cat("input ", port), outside - values.data(), *outside, range)
                 : Status();
}

// An invalid target is counted, so that the check of the targets refuses it by name.
inline double count_targets(const View& targets) {
  int64_t counted = 0;
  for (int64_t i = 0; i < targets.desc.elements(); ++i) counted += targets.i32()[i] != -1;
  return static_cast<double>(counted);
}

}  // namespace weft
