// Copies between places of a cache: numbers below -1 in the input `sequences` of cached_attention.
// They need no other input of a decoder, and take their turn among the tokens of a micro-batch.
#pragma once

#include <cstdint>

namespace weft {

struct CacheCopy {
  int64_t from, to;
};

// With more places, an i32 does not have a number for each copy.
constexpr int64_t kMostCopyPlaces = 46340;

// Of a cache with so many places.
constexpr int32_t number_of(const CacheCopy& copy, int64_t places) {
  return static_cast<int32_t>(-2 - (copy.from * places + copy.to));
}

constexpr bool is_copy(int32_t sequence) { return sequence < -1; }

constexpr CacheCopy copy_of(int32_t sequence, int64_t places) {
  const int64_t number = -2 - int64_t{sequence};
  return {number / places, number % places};
}

}  // namespace weft
