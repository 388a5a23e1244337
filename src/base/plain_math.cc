#include "base/plain_math.h"

#include <bit>

namespace weft {

// The series of atanh((m-1)/(m+1)) over m in [sqrt(1/2), sqrt(2)).
double plain_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1022;
  double m =
      std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3fe0000000000000ull);  // [0.5, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
  return 2 * t * sum + exponent * 0.69314718055994530942;
}

// x = k ln 2 + r, then the Taylor series of exp(r).
double plain_exp(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  const int k = static_cast<int>(x / kLn2 + (x < 0 ? -0.5 : 0.5));
  const double r = x - k * kLn2;
  double sum = 0;
  for (int n = 16; n >= 1; --n) sum = (sum + 1) * r / n;
  return (sum + 1) * std::bit_cast<double>(static_cast<uint64_t>(1023 + k) << 52);
}

// Quadrant, then Taylor on [0, pi/2).
void plain_sincos_turn(double u, double& sine, double& cosine) {
  const double scaled = u * 4;
  const int quadrant = static_cast<int>(scaled);
  const double x = (scaled - quadrant) * 1.57079632679489661923, x2 = x * x;
  double s = 0, c = 0;
  for (int k = 21; k >= 3; k -= 2) s = (s + 1) * -x2 / (k * (k - 1));
  for (int k = 22; k >= 2; k -= 2) c = (c + 1) * -x2 / (k * (k - 1));
  s = (s + 1) * x;
  c = c + 1;
  switch (quadrant & 3) {
    case 0:
      sine = s;
      cosine = c;
      break;
    case 1:
      sine = c;
      cosine = -s;
      break;
    case 2:
      sine = -s;
      cosine = -c;
      break;
    default:
      sine = -c;
      cosine = s;
      break;
  }
}

double plain_power(double base, uint64_t exponent) {
  double result = 1;
  for (double square = base; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return result;
}

}  // namespace weft
