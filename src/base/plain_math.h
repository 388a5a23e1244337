// Elementary functions that use only IEEE arithmetic: the results of libm differ between versions.
// For scalars outside the hot path.
#pragma once

#include <cstdint>

namespace weft {

// Natural logarithm of a positive, normal number.
double plain_log(double x);
// e to the power of x, for |x| up to 700.
double plain_exp(double x);
// sin and cos of 2 pi u for u in [0, 1).
void plain_sincos_turn(double u, double& sine, double& cosine);
// base to the power of exponent, by squaring.
double plain_power(double base, uint64_t exponent);

}  // namespace weft
