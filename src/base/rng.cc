#include "base/rng.h"

#include <bit>
#include <cmath>

#include "base/hash.h"

namespace weft {

namespace {

// Natural logarithm of x in (0, 1] by the series of atanh((m-1)/(m+1)) over m in [sqrt(1/2), sqrt(2)).
// libm's logarithm differs between versions; this one does not.
double plain_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1022;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3fe0000000000000ull);  // [0.5, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
  return 2 * t * sum + exponent * 0.69314718055994530942;
}

// sin and cos of 2 pi u for u in [0, 1): quadrant, then Taylor on [0, pi/2).
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
    case 0: sine = s; cosine = c; break;
    case 1: sine = c; cosine = -s; break;
    case 2: sine = -s; cosine = -c; break;
    default: sine = -c; cosine = s; break;
  }
}

uint64_t key_of(std::string_view purpose, uint64_t seed) { return hash64(purpose.data(), purpose.size(), seed); }

}  // namespace

Philox philox(const Philox& counter, uint64_t key) {
  Philox c = counter;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

Stream Stream::initial(uint64_t seed, std::string_view parameter) {
  return Stream(key_of("initial", seed), hash64(parameter.data(), parameter.size()));
}

Stream Stream::data(uint64_t seed, uint64_t step) { return Stream(key_of("data", seed), step); }

Stream Stream::dropout(uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t node) {
  const uint64_t fields[3] = {step, micro_batch, node};
  return Stream(key_of("dropout", seed), hash64(fields, sizeof fields));
}

Philox Stream::draw(uint64_t index) const {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(high_),
                 static_cast<uint32_t>(high_ >> 32)},
                key_);
}

std::array<double, 2> Stream::normal(uint64_t index) const {
  const Philox words = draw(index);
  const double radius = std::sqrt(-2 * plain_log(unit(words[0])));
  double sine, cosine;
  plain_sincos_turn(static_cast<double>(words[1]) * 0x1p-32, sine, cosine);
  return {radius * cosine, radius * sine};
}

uint64_t Stream::below(uint64_t index, uint64_t bound) const {
  const Philox words = draw(index);
  const uint64_t word = (uint64_t{words[0]} << 32) | words[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

}  // namespace weft
