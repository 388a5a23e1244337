// What is written past the caches: results that are read much later, if they are large. The caches
// would not keep them, and a line that is written whole need not be read before.
#pragma once

#include <cstdint>

namespace weft::kernels {

constexpr bool is_large(int64_t elements) { return elements >= int64_t{1} << 18; }

}  // namespace weft::kernels
