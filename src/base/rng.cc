#include "base/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/hash.h"
#include "base/plain_math.h"

namespace weft {

namespace {

uint64_t key_of(std::string_view purpose, uint64_t seed) {
  return hash64(purpose.data(), purpose.size(), seed);
}

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
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(high_), static_cast<uint32_t>(high_ >> 32)},
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

// A Feistel network permutes the numbers of twice `half` bits. One that is not less than `count` is
// permuted again, until it is.
uint64_t Stream::shuffled(uint64_t index, uint64_t count) const {
  constexpr uint64_t kRounds = 6;
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t left = index >> half, right = index & mask;
  do {
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (draw(round << 32 | right)[0] & mask);
      left = std::exchange(right, mixed);
    }
  } while ((left << half | right) >= count);
  return left << half | right;
}

}  // namespace weft
