// Rotation of pairs of columns (rotary position embeddings). Serial.
#pragma once

#include <cstdint>

namespace weft::kernels {

constexpr double kTurnsPerRadian = 0.15915494309189533577;

// Cosines and sines of the angles position * frequency, times `factor`: an angle is rounded to a
// float, the rest is double.
void rotation(float position, const float* frequencies, int64_t pairs, float factor, float* cosine,
              float* sine);

// A row of `heads` heads of `size` floats. Columns i and i + pairs of a head are rotated: cosine
// and sine have `pairs` floats. The other columns are copied. The other direction, if `back`. In
// place is allowed.
void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t size,
            int64_t pairs, bool back, float* out);

}  // namespace weft::kernels
