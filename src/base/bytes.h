// Values as bytes: little-endian, strings and lists with their length first. The reader never reads
// past the end. After the first error it returns only zeros, and ok() is false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace weft {

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  ByteWriter& number(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    append(&value, sizeof value);
    return *this;
  }
  ByteWriter& text(const std::string& value) {
    return bytes({reinterpret_cast<const std::byte*>(value.data()), value.size()});
  }
  ByteWriter& bytes(std::span<const std::byte> value) {
    number(static_cast<uint64_t>(value.size()));
    append(value.data(), value.size());
    return *this;
  }

 private:
  void append(const void* from, size_t size) {
    const size_t at = out_.size();
    out_.resize(at + size);
    if (size) std::memcpy(out_.data() + at, from, size);
  }

  std::vector<std::byte>& out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    if constexpr (std::is_same_v<T, bool>)
      return number<uint8_t>() != 0;  // another byte is not a valid bool
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_, sizeof value);
    return value;
  }
  std::string text() {
    const std::span<const std::byte> value = bytes();
    return std::string(reinterpret_cast<const char*>(value.data()), value.size());
  }
  std::span<const std::byte> bytes() {
    const uint64_t size = number<uint64_t>();
    return take(size) ? std::span<const std::byte>(taken_, size) : std::span<const std::byte>();
  }
  // The length of a list whose items have at least `item` bytes each; at most as many as the
  // remaining bytes can contain.
  uint64_t count(size_t item) {
    const uint64_t n = number<uint64_t>();
    if (n > rest_.size() / item) ok_ = false;
    return ok_ ? n : 0;
  }

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  bool take(uint64_t size) {
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) return false;
    taken_ = rest_.data();
    rest_ = rest_.subspan(size);
    return true;
  }

  std::span<const std::byte> rest_;
  const std::byte* taken_ = nullptr;
  bool ok_ = true;
};

}  // namespace weft
