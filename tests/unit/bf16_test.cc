// Conversions of bf16 and the packed form, against scalar code, on every SIMD target.
#include "kernels/bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/bf16_pack.h"
#include "support/bf16_reference.h"
#include "support/simd_targets.h"
#include "support/threaded_tiles.h"

namespace weft::kernels {
namespace {

using test::for_each_target;
using test::Numbers;

std::vector<float> floats_to_round() {
  std::vector<float> out;
  for (uint64_t bits = 0; bits < 0x100000000ull; bits += 2039)
    out.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (uint32_t upper = 0; upper < 0x10000; ++upper)  // ties and their neighbours
    for (uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      out.push_back(std::bit_cast<float>(upper << 16 | lower));
  return out;
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  const std::vector<float> x = floats_to_round();
  std::vector<Bf16> expected;
  for (float v : x) expected.push_back(test::rounded(v));
  for_each_target([&](int64_t) {
    std::vector<Bf16> out(x.size());
    to_bf16(x.data(), out.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], expected[i]) << x[i];
  });
}

TEST(Bf16, WidensExactly) {
  std::vector<Bf16> x;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) x.push_back(static_cast<Bf16>(bits));
  for_each_target([&](int64_t) {
    std::vector<float> out(x.size());
    from_bf16(x.data(), out.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), uint32_t{x[i]} << 16);
  });
}

TEST(Bf16, ConversionsTouchOnlyTheirElements) {
  const std::vector<Bf16> x = test::random_bf16s(Numbers::usual, 80, 1);
  for_each_target([&](int64_t) {
    for (size_t n = 0; n <= 70; ++n) {
      std::vector<float> wide(x.size(), -7);
      from_bf16(x.data() + 3, wide.data() + 1, static_cast<int64_t>(n));
      std::vector<Bf16> back(x.size(), 42);
      to_bf16(wide.data() + 1, back.data() + 3, static_cast<int64_t>(n));
      EXPECT_TRUE(
          std::equal(back.begin() + 3, back.begin() + 3 + static_cast<long>(n), x.begin() + 3));
      EXPECT_EQ(wide[0], -7);
      EXPECT_EQ(wide[n + 1], -7);
      EXPECT_EQ(back[2], 42);
      EXPECT_EQ(back[n + 3], 42);
    }
  });
}

constexpr int64_t kShapes[][2] = {{1, 1},   {32, 32},  {33, 31},  {5, 100},  {64, 16},
                                  {96, 17}, {127, 65}, {31, 300}, {130, 600}};

// As packed_bf16_index() describes; zeros elsewhere.
template <typename T>
std::vector<Bf16> expected_pack(const PackBf16<T>& pack, const std::vector<Bf16>& values) {
  std::vector<Bf16> out(static_cast<size_t>(packed_bf16_bytes(pack.k, pack.n) / 2));
  for (int64_t p = 0; p < pack.k; ++p)
    for (int64_t j = 0; j < pack.n; ++j) {
      const int64_t at = pack.transposed ? j * pack.stride + p : p * pack.stride + j;
      out[static_cast<size_t>(packed_bf16_index(pack.k, p, j))] = values[static_cast<size_t>(at)];
    }
  return out;
}

template <typename T>
void check_pack(PackBf16<T> pack, const std::vector<Bf16>& values, Tiles& tiles) {
  const std::vector<Bf16> expected = expected_pack(pack, values);
  std::vector<Bf16> out(expected.size() + 1, 42);
  pack.out = out.data();
  pack_bf16(pack, tiles);
  EXPECT_EQ(out.back(), 42);
  out.pop_back();
  EXPECT_TRUE(out == expected) << pack.k << 'x' << pack.n << " transposed " << pack.transposed;
}

TEST(PackBf16, HoldsEachElementAndZeros) {
  test::ThreadedTiles tiles(2);
  for_each_target([&](int64_t) {
    for (const auto& [k, n] : kShapes)
      for (const bool transposed : {false, true}) {
        const int64_t stride = (transposed ? k : n) + 3, lines = transposed ? n : k;
        const std::vector<Bf16> halves = test::random_bf16s(Numbers::any_bits, lines * stride, 2);
        check_pack(PackBf16<Bf16>{k, n, halves.data(), stride, transposed}, halves, tiles);

        std::vector<float> floats;
        std::vector<Bf16> rounded;
        for (size_t i = 0; i < halves.size(); ++i) {
          floats.push_back(test::widened(halves[i]) * 1.003f);
          rounded.push_back(test::rounded(floats.back()));
        }
        check_pack(PackBf16<float>{k, n, floats.data(), stride, transposed}, rounded, tiles);
      }
  });
  EXPECT_GE(tiles.most, 3) << "no matrix was split";
}

TEST(PackBf16, IndicesFillTheBytes) {
  for (const auto& [k, n] : kShapes) {
    std::vector<int64_t> at;
    for (int64_t p = 0; p < bf16_chunks(k) * kBf16Chunk; ++p)
      for (int64_t j = 0; j < bf16_panels(n) * kBf16Panel; ++j)
        at.push_back(packed_bf16_index(k, p, j));
    std::sort(at.begin(), at.end());
    EXPECT_EQ(static_cast<int64_t>(at.size()) * 2, packed_bf16_bytes(k, n));
    for (size_t i = 0; i < at.size(); ++i) ASSERT_EQ(at[i], static_cast<int64_t>(i));
  }
}

TEST(TransposeBf16, PadsRowsToChunks) {
  SerialTiles tiles;
  for_each_target([&](int64_t) {
    for (const auto& [rows, columns] : kShapes) {
      const int64_t stride = columns + 5, width = bf16_chunks(rows) * kBf16Chunk;
      const std::vector<Bf16> x = test::random_bf16s(Numbers::any_bits, rows * stride, 3);
      std::vector<Bf16> out(static_cast<size_t>(columns * width + 1), 42);
      transpose_bf16(rows, columns, x.data(), stride, out.data(), width, tiles);
      EXPECT_EQ(out.back(), 42);
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = 0; i < width; ++i)
          ASSERT_EQ(out[static_cast<size_t>(j * width + i)],
                    i < rows ? x[static_cast<size_t>(i * stride + j)] : 0)
              << rows << 'x' << columns << " at " << i << ',' << j;
    }
  });
}

}  // namespace
}  // namespace weft::kernels
