// XXH3 digests: of bytes, and of a sequence of named fields. They detect differences, but not
// forgery.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weft {

struct Digest {
  uint64_t high = 0, low = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
  std::string hex() const;  // 32 lower-case hex digits, high word first
};

Digest hash_bytes(const void* data, size_t size);
uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);

// Of an unordered container of strings, so that std::string_view finds them.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Feeds fields one after another; strings are length-prefixed so that "ab","c" and "a","bc" differ.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& bytes(const void* data, size_t size);
  Hasher& text(std::string_view text);
  Hasher& number(uint64_t value);
  Hasher& number(double value);
  Hasher& digest(const Digest& digest);
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
