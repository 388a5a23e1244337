// The type and shape of a tensor (Desc) and its memory (view). Plain values; row-major, dense.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/result.h"

namespace weft {

enum class DType : uint8_t {
  f32 = 1,
  i32 = 2,
  f64 = 3,   // sums of losses only
  bf16 = 4,  // values and gradients between nodes, with precision bf16
};

constexpr size_t size_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::bf16 ? 2 : 4;
}
const char* dtype_name(DType dtype);

constexpr int kMaxRank = 8;

struct Shape {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};

  Shape() = default;
  Shape(std::initializer_list<int64_t> list)
      : Shape(std::span<const int64_t>(list.begin(), list.size())) {}
  explicit Shape(std::span<const int64_t> list);

  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims[static_cast<size_t>(i)]; }
  int64_t last() const { return rank ? dims[static_cast<size_t>(rank - 1)] : 1; }
  int64_t elements() const;                    // 1 without dimensions
  int64_t elements(int begin, int end) const;  // product of dims [begin, end)
  std::string text() const;                    // "[4,128]"
  friend bool operator==(const Shape&, const Shape&) = default;
};

// At most 8 dimensions of 0 or more, and a byte size of any part of them that fits into int64.
Status check_shape(std::span<const int64_t> dims, DType dtype);

struct Desc {
  DType dtype = DType::f32;
  Shape shape;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  std::string text() const;  // "f32[4,128]"
  friend bool operator==(const Desc&, const Desc&) = default;
};

// "f32[4,128], i32[4]", or "none".
std::string texts_of(std::span<const Desc> descs);

// Borrowed memory of a tensor. data is null if a call neither reads nor writes it.
struct View {
  void* data = nullptr;
  Desc desc;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  float* f32() const { return as<float>(); }
  int32_t* i32() const { return as<int32_t>(); }
  uint16_t* bf16() const { return as<uint16_t>(); }  // the bits
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace weft
