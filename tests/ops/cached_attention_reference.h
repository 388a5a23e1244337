// The plain forward of cached_attention, for calls that have all tokens of each sequence.
#pragma once

#include "ops/reference.h"

namespace weft::test {

std::vector<double> ref_cached_attention(const RefCall& c);

}  // namespace weft::test
