// Element-wise kernels that no op uses, and sums of long rows.
#include "kernels/elementwise.h"
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/simd_targets.h"

namespace weft::kernels {
namespace {

TEST(Elementwise, ClearsItsElementsOnly) {
  struct alignas(64) Line {
    float floats[16];
  };
  test::for_each_target([](int64_t) {
    std::vector<Line> lines(8);
    float* const x = lines.front().floats;
    for (const int64_t begin : {0, 1, 16})
      for (const int64_t count : {0, 1, 15, 16, 70}) {
        for (int64_t i = 0; i < 128; ++i) x[i] = 1;
        clear_past_caches(x + begin, count);
        for (int64_t i = 0; i < 128; ++i)
          ASSERT_EQ(x[i], i >= begin && i < begin + count ? 0 : 1) << begin << " + " << count;
      }
  });
}

TEST(Elementwise, AddsZero) {
  test::for_each_target([](int64_t) {
    for (const int64_t count : {1, 15, 16, 70}) {
      std::vector<float> x(128, -0.0f);
      for (size_t i = 0; i < x.size(); i += 3) x[i] = -1;
      add_zero(x.data(), count);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(x[i], i % 3 == 0 ? -1 : 0);
        ASSERT_EQ(std::signbit(x[i]), i % 3 == 0 || static_cast<int64_t>(i) >= count) << i;
      }
    }
  });
}

// In one float32 sum of so many equal numbers, all roundings would have the same direction.
TEST(RowSums, OfManyEqualNumbersRoundInPartsOnly) {
  test::for_each_target([](int64_t) {
    for (const int64_t n : {1, 4096, 4097, 1'000'003}) {
      const std::vector<float> x(static_cast<size_t>(2 * n), 0.1f);
      float sums[2];
      row_sums(x.data(), 2, n, sums);
      const double exact = static_cast<double>(n) * static_cast<double>(0.1f);
      for (const float sum : sums) EXPECT_NEAR(sum / exact, 1, 1e-5) << n;
    }
  });
}

}  // namespace
}  // namespace weft::kernels
