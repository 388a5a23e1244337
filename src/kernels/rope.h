// Rotation of pairs of columns (rotary position embeddings). Serial.
#pragma once

#include <cstdint>

namespace weft::kernels {

// A row of `heads` heads of `size` floats. Columns i and i + pairs of a head are rotated: cosine
// and sine have `pairs` floats. The other columns are multiplied by `factor`. The other direction,
// if `back`. In place is allowed.
void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t size,
            int64_t pairs, float factor, bool back, float* out);

}  // namespace weft::kernels
