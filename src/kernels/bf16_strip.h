// Sums of a block of a bf16 product in float32, before they become its result.
#pragma once

#include <cstdint>

#include "kernels/bf16_product.h"

namespace weft::kernels {

// Rows i .. i + rows - 1 and columns j .. j + columns - 1 of a product; a row of sums has `row`
// floats.
struct Bf16Strip {
  int64_t i, rows, j, columns;
  float* sums;
  int64_t row;
};

// What the sums begin with: C if the product is added, otherwise 0; up to whole panels.
void begin_strip(const Bf16Product& product, const Bf16Strip& strip);

// Adds the bias and stores C.
void end_strip(const Bf16Product& product, const Bf16Strip& strip);

}  // namespace weft::kernels
