// Normal numbers by vectors against those of a stream, one by one.
#include "kernels/normal.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "kernels/fpenv.h"
#include "support/simd_targets.h"

namespace weft::kernels {
namespace {

void expect_those_of(const Stream& stream, double deviation, int64_t first, int64_t n) {
  constexpr float kUntouched = 77;
  std::vector<float> found(static_cast<size_t>(n) + 1, kUntouched);
  draw_normal(stream, deviation, first, n, found.data());
  for (int64_t i = 0; i < n; ++i) {
    const double normal =
        stream.normal(static_cast<uint64_t>((first + i) / 2))[static_cast<size_t>((first + i) % 2)];
    const float expected = static_cast<float>(deviation * normal);
    ASSERT_EQ(std::bit_cast<uint32_t>(found[static_cast<size_t>(i)]),
              std::bit_cast<uint32_t>(expected))
        << "element " << first + i << ", " << n << " from " << first;
  }
  EXPECT_EQ(found.back(), kUntouched);
}

TEST(Normal, HasTheBitsOfTheStreamOnEachTarget) {
  const ComputeScope scope;
  const Stream stream = Stream::initial(3, "h.0.attn.c_attn.weight");
  test::for_each_target([&](int64_t) {
    for (int64_t first = 0; first < 5; ++first)
      for (int64_t n = 0; n < 40; ++n) expect_those_of(stream, 0.02, first, n);
    expect_those_of(stream, 1.5, (int64_t{1} << 33) - 7, 100);
    expect_those_of(Stream::initial(4, "wte.weight"), 0.02, 0, 300'000);
  });
}

}  // namespace
}  // namespace weft::kernels
