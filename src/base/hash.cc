#include "base/hash.h"

#include <bit>

#include "base/hex.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
// The library's own choice among SSE2, AVX2 and AVX-512 as this processor has them, with the same
// results. It is installed only with a library that has these functions.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

namespace weft {

static_assert(std::endian::native == std::endian::little,
              "digests and files are little-endian; a big-endian port must swap");

struct Hasher::State {
  XXH3_state_t xxh;
};

std::string Digest::hex() const {
  std::string out;
  for (const uint64_t word : {high, low}) append_hex(out, word, 16);
  return out;
}

Digest hash_bytes(const void* data, size_t size) {
  XXH128_hash_t h = XXH3_128bits(data, size);
  return {h.high64, h.low64};
}

uint64_t hash64(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

Hasher& Hasher::bytes(const void* data, size_t size) {
  XXH3_128bits_update(&state_->xxh, data, size);
  return *this;
}

Hasher& Hasher::text(std::string_view text) {
  return number(uint64_t{text.size()}).bytes(text.data(), text.size());
}
Hasher& Hasher::number(uint64_t value) { return bytes(&value, sizeof value); }
Hasher& Hasher::number(double value) { return number(std::bit_cast<uint64_t>(value)); }
Hasher& Hasher::digest(const Digest& digest) { return number(digest.high).number(digest.low); }

Digest Hasher::finish() const {
  XXH128_hash_t h = XXH3_128bits_digest(&state_->xxh);
  return {h.high64, h.low64};
}

}  // namespace weft
