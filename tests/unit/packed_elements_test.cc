// Elements of packed matrices, in float32 and bf16, against packing of the whole matrix.
#include "kernels/packed_elements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/bf16_pack.h"
#include "kernels/large.h"
#include "kernels/packed.h"
#include "support/bf16_reference.h"
#include "support/simd_targets.h"

namespace weft::kernels {
namespace {

constexpr int64_t kShapes[][2] = {{1, 1},   {16, 16}, {32, 32},  {33, 31},  {5, 100},
                                  {64, 16}, {96, 17}, {127, 65}, {31, 300}, {130, 600}};

struct Case {
  DType dtype;
  int64_t k, n;
  bool transposed;
};

template <typename F>
void for_cases(F&& body) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [k, n] : kShapes)
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(dtype) << ' ' << k << 'x' << n << ", transposed " << transposed);
        body(Case{dtype, k, n, transposed});
      }
}

// Any bits, so that a write which computes shows. As bf16, a NaN is rounded to one of them.
std::vector<float> any_floats(int64_t count, uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(std::bit_cast<float>(static_cast<uint32_t>(draw())));
  return out;
}

struct alignas(kPackedAlign) Line {
  std::byte bytes[kPackedAlign] = {};
};

// A packed matrix and its memory.
struct Memory {
  std::vector<Line> lines;
  PackedMatrix matrix;

  explicit Memory(const Case& c) {
    const int64_t bytes = c.dtype == DType::bf16
                              ? packed_bf16_bytes(c.k, c.n)
                              : packed_floats(c.k, c.n) * static_cast<int64_t>(sizeof(float));
    lines.resize(static_cast<size_t>((bytes + kPackedAlign - 1) / kPackedAlign));
    matrix = {c.dtype, c.k, c.n, c.transposed, lines.data()};
  }
  bool operator==(const Memory& other) const {
    return std::memcmp(lines.data(), other.lines.data(), lines.size() * sizeof(Line)) == 0;
  }
};

Memory packed(const Case& c, const std::vector<float>& x) {
  SerialTiles tiles;
  Memory out(c);
  const int64_t stride = c.transposed ? c.k : c.n;
  if (c.dtype == DType::bf16)
    pack_bf16(PackBf16<float>{c.k, c.n, x.data(), stride, c.transposed,
                              static_cast<Bf16*>(out.matrix.data)},
              tiles);
  else
    pack({x.data(), stride, c.transposed}, c.k, c.n, static_cast<float*>(out.matrix.data), tiles);
  return out;
}

std::vector<uint32_t> bits_of(const std::vector<float>& x, DType dtype) {
  std::vector<uint32_t> out;
  for (const float value : x)
    out.push_back(std::bit_cast<uint32_t>(dtype == DType::bf16 ? test::widened(test::rounded(value))
                                                               : value));
  return out;
}

// Pieces of any length, which begin anywhere, make the packed form of the whole matrix.
TEST(PackedElements, AreWrittenAndReadInPieces) {
  test::for_each_target([](int64_t) {
    for_cases([](const Case& c) {
      const int64_t all = c.k * c.n, row = c.transposed ? c.k : c.n;
      const std::vector<float> x = any_floats(all, 4);
      const Memory expected = packed(c, x);
      for (const int64_t piece : {int64_t{1}, int64_t{7}, int64_t{33}, 16 * row, 32 * row, all}) {
        Memory memory(c);
        std::vector<float> out(x.size() + 1, 42);
        for (int64_t first = 0; first < all; first += piece) {
          const auto count = static_cast<size_t>(std::min(piece, all - first));
          const auto at = static_cast<size_t>(first);
          write_packed(memory.matrix, first, std::span(x).subspan(at, count));
          read_packed(memory.matrix, first, std::span(out).subspan(at, count));
        }
        EXPECT_TRUE(memory == expected) << piece;
        EXPECT_EQ(out.back(), 42);
        out.pop_back();
        EXPECT_TRUE(bits_of(out, DType::f32) == bits_of(x, c.dtype)) << piece;
      }
    });
  });
}

// So large that what is written goes past the caches.
TEST(PackedElements, OfLargeMatricesAreWrittenInPieces) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transposed : {false, true}) {
      const Case c{dtype, 530, 501, transposed};
      ASSERT_TRUE(is_large(c.k * c.n) || !is_large(int64_t{1} << 40)) << "where anything is large";
      const int64_t all = c.k * c.n, piece = 64 * (transposed ? c.k : c.n);
      const std::vector<float> x = any_floats(all, 7);
      Memory memory(c);
      for (int64_t first = 0; first < all; first += piece)
        write_packed(memory.matrix, first,
                     std::span(x).subspan(static_cast<size_t>(first),
                                          static_cast<size_t>(std::min(piece, all - first))));
      EXPECT_TRUE(memory == packed(c, x));
      std::vector<float> out(x.size());
      read_packed(memory.matrix, 0, out);
      EXPECT_TRUE(bits_of(out, DType::f32) == bits_of(x, dtype));
    }
}

// All forms of one matrix at once; the first shape is so large that they go past the caches.
TEST(PackedElements, AreWrittenToSeveralForms) {
  std::vector<std::array<int64_t, 2>> shapes = {{530, 501}};
  for (const auto& [rows, columns] : kShapes) shapes.push_back({rows, columns});
  test::for_each_target([&](int64_t) {
    for (const auto& [rows, columns] : shapes) {
      const int64_t all = rows * columns;
      const std::vector<float> x = any_floats(all, 8);
      for (const int64_t piece : {33 * columns - 1, 64 * columns}) {
        std::vector<Memory> memory, expected;
        std::vector<PackedMatrix> forms;
        for (const DType dtype : {DType::f32, DType::bf16})
          for (const bool transposed : {false, true}) {
            const Case c{dtype, transposed ? columns : rows, transposed ? rows : columns,
                         transposed};
            expected.push_back(packed(c, x));
            forms.push_back(memory.emplace_back(c).matrix);
          }
        for (int64_t first = 0; first < all; first += piece)
          write_packed(forms, first,
                       std::span(x).subspan(static_cast<size_t>(first),
                                            static_cast<size_t>(std::min(piece, all - first))));
        EXPECT_TRUE(memory == expected) << rows << 'x' << columns << ", pieces of " << piece;
      }
    }
  });
}

TEST(PackedElements, RangesLeaveTheOthersUnchanged) {
  std::mt19937 draw(5);
  for_cases([&draw](const Case& c) {
    const int64_t all = c.k * c.n;
    std::vector<float> x = any_floats(all, 6);
    Memory memory = packed(c, x);
    for (uint32_t turn = 0; turn < 40; ++turn) {
      const auto first = static_cast<int64_t>(draw() % static_cast<uint64_t>(all));
      const auto count = 1 + static_cast<int64_t>(draw() % static_cast<uint64_t>(all - first));
      const std::vector<float> values = any_floats(count, turn);
      std::memcpy(x.data() + first, values.data(), values.size() * sizeof(float));
      write_packed(memory.matrix, first, values);
      ASSERT_TRUE(memory == packed(c, x)) << first << " + " << count;
    }
  });
}

}  // namespace
}  // namespace weft::kernels
