// Each op on every SIMD target of this machine. Targets with fused multiply-add agree bit for bit;
// the portable path rounds twice where they round once, so it only comes near.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>

#include "ops/problem.h"

namespace weft::test {
namespace {

constexpr int64_t kFused = HWY_AVX3 | HWY_AVX2 | HWY_NEON;

class Target {
 public:
  explicit Target(int64_t target) { use(target); }
  ~Target() { use(0); }

 private:
  static void use(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

void expect_near(const Bytes& got, const Bytes& expected, DType dtype, double tolerance,
                 const std::string& what) {
  const std::vector<double> a = numbers(got, dtype), b = numbers(expected, dtype);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::fabs(a[i] - b[i]), tolerance * std::max(1.0, std::fabs(b[i])))
        << what << ", element " << i;
}

TEST(Targets, AgreeOnEachOp) {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  int compared = 0;
  for (const OpCase& c : op_cases()) {
    SCOPED_TRACE(c.name);
    const Problem p = problem_of(c);
    ASSERT_TRUE(p.op);
    const Results best = run(p, {});
    for (int64_t rest = targets; rest; rest &= rest - 1) {
      const int64_t bit = rest & -rest;
      SCOPED_TRACE(hwy::TargetName(bit));
      const Target target(bit);
      const Results r = run(p, {});
      ASSERT_EQ(r.error, "");
      expect_near(r.out, best.out, p.inferred.out.dtype, c.tolerance, "out");
      for (size_t i = 0; i < r.din.size(); ++i)
        expect_near(r.din[i], best.din[i], DType::f32, c.tolerance,
                    "gradient of input " + std::to_string(i));
      for (size_t i = 0; i < r.acc.size(); ++i)
        expect_near(r.acc[i], best.acc[i], DType::f32, c.tolerance,
                    "gradient of weight " + std::to_string(i));
      if (!(bit & kFused) || !(targets & kFused)) continue;
      ++compared;
      EXPECT_TRUE(r.out == best.out && r.stash == best.stash && r.din == best.din &&
                  r.acc == best.acc)
          << "bits differ";
    }
  }
  EXPECT_TRUE(compared > 0 || !(targets & kFused));
}

}  // namespace
}  // namespace weft::test
