// What is written past the caches: results that are read much later, if they are large. The caches
// would not keep them, and a line that is written whole need not be read before. Other processors
// than x86 have no such stores here.
#pragma once

#include <cstdint>

namespace weft::kernels {

#if defined(__x86_64__)
constexpr bool is_large(int64_t elements) { return elements >= int64_t{1} << 18; }
#else
constexpr bool is_large(int64_t) { return false; }
#endif

}  // namespace weft::kernels
