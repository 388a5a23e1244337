// Control messages read back as they were written; what is cut, longer or out of range is refused.
#include <algorithm>
#include <limits>

#include "node/control_codec.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

StepDescriptor sample_step() {
  StepDescriptor step;
  step.sequence = 7;
  step.step = 5;
  step.mode = Mode::eval;
  step.update = false;
  step.micro_batches = 9;
  step.short_last = true;
  step.denominator = 0.1;
  step.rate = 0.3;
  step.per_update = 4;
  step.overlaps = true;
  return step;
}

TEST(ControlCodec, ReadsWhatItWroteAndNothingElse) {
  const double sums[] = {1.5, -0.0, 3e300};
  Control begin{.kind = ControlKind::begin, .step = sample_step(), .sequence = 7, .squares = {}};
  const double counts[] = {1.5, 7, 3e300};
  begin.step.denominators = counts;
  Control ready{.kind = ControlKind::ready, .step = {}, .sequence = 8, .squares = sums};
  Control commit{
      .kind = ControlKind::commit, .step = {}, .sequence = 9, .scale = 0.25, .squares = {}};
  Control done{.kind = ControlKind::done,
               .step = {},
               .sequence = 10,
               .squares = {},
               .times = {-5, 100, 60, -9, 104}};
  for (const Control& control : {begin, ready, commit, done}) {
    std::vector<std::byte> bytes;
    std::vector<double> squares;
    encode_control(control, bytes);
    const auto read = decode_control(bytes, squares);
    ASSERT_TRUE(read.ok()) << read.status().text();
    const Control& c = read.value();
    EXPECT_EQ(c.kind, control.kind);
    EXPECT_EQ(c.sequence, control.sequence);
    EXPECT_EQ(c.scale, control.scale);
    EXPECT_TRUE(std::equal(c.squares.begin(), c.squares.end(), control.squares.begin(),
                           control.squares.end()));
    EXPECT_EQ(c.step.sequence, control.step.sequence);
    EXPECT_EQ(c.step.step, control.step.step);
    EXPECT_EQ(c.step.mode, control.step.mode);
    EXPECT_EQ(c.step.update, control.step.update);
    EXPECT_EQ(c.step.overlaps, control.step.overlaps);
    EXPECT_EQ(c.step.micro_batches, control.step.micro_batches);
    EXPECT_EQ(c.step.short_last, control.step.short_last);
    EXPECT_EQ(c.step.short_all, control.step.short_all);
    EXPECT_EQ(c.step.denominator, control.step.denominator);
    EXPECT_EQ(c.step.rate, control.step.rate);
    EXPECT_EQ(c.step.per_update, control.step.per_update);
    EXPECT_TRUE(std::equal(c.step.denominators.begin(), c.step.denominators.end(),
                           control.step.denominators.begin(), control.step.denominators.end()));
    EXPECT_EQ(c.times.begin, control.times.begin);
    EXPECT_EQ(c.times.end, control.times.end);
    EXPECT_EQ(c.times.busy, control.times.busy);
    EXPECT_EQ(c.times.begin_received, control.times.begin_received);
    EXPECT_EQ(c.times.end_sent, control.times.end_sent);
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode_control(std::span(bytes).first(size), squares).ok());
    bytes.push_back({});
    EXPECT_FALSE(decode_control(bytes, squares).ok());
  }
}

TEST(ControlCodec, RefusesSumsOfSquaresBelowZero) {
  const std::array<double, 2> sums = {0, -1e-300};
  std::vector<std::byte> bytes;
  encode_control({.kind = ControlKind::ready, .step = {}, .sequence = 8, .squares = sums}, bytes);
  std::vector<double> squares;
  EXPECT_FALSE(decode_control(bytes, squares).ok());
}

TEST(ControlCodec, RefusesValuesThatCannotBe) {
  std::vector<double> squares;
  auto refused = [&](Control control, size_t at, int value) {
    std::vector<std::byte> bytes;
    encode_control(control, bytes);
    if (value >= 0) bytes[at] = static_cast<std::byte>(value);
    const auto read = decode_control(bytes, squares);
    return !read.ok() && read.status().code() == Code::protocol;
  };
  const Control begin{
      .kind = ControlKind::begin, .step = sample_step(), .sequence = 7, .squares = {}};
  EXPECT_FALSE(refused(begin, 0, -1));
  EXPECT_TRUE(refused(begin, 0, 4));        // kind
  EXPECT_TRUE(refused(begin, 17, kModes));  // mode
  EXPECT_TRUE(refused(begin, 18, 2));       // update
  EXPECT_TRUE(refused(begin, 19, 2));       // overlaps
  EXPECT_TRUE(refused(begin, 24, 255));     // short_last
  EXPECT_TRUE(refused(begin, 44, 255));     // a negative number of micro-batches per update
  EXPECT_TRUE(refused(begin, 45, 1));       // no denominator
  constexpr double kNever[] = {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity()};
  for (const double value : kNever) {
    Control wrong = begin;
    wrong.step.denominator = value;
    EXPECT_TRUE(refused(wrong, 0, -1));
    wrong = begin;
    wrong.step.denominators = std::span(&value, 1);
    EXPECT_TRUE(refused(wrong, 0, -1));
    EXPECT_TRUE(refused(
        {.kind = ControlKind::commit, .step = {}, .sequence = 9, .scale = value, .squares = {}}, 0,
        -1));
  }
  Control no_targets = begin;
  no_targets.step.denominator = 0;
  EXPECT_TRUE(refused(no_targets, 0, -1));
  Control ready{.kind = ControlKind::ready, .step = {}, .sequence = 8, .squares = {}};
  EXPECT_TRUE(refused(ready, 16, 255));  // more sums than any message holds
  Control done{.kind = ControlKind::done,
               .step = {},
               .sequence = 8,
               .squares = {},
               .times = {10, 5, 0, 0, 0}};
  EXPECT_TRUE(refused(done, 0, -1));
  done.times = {0, 10, 11, 0, 0};
  EXPECT_TRUE(refused(done, 0, -1));
  done.times = {INT64_MIN, INT64_MAX, 0, 0, 0};
  EXPECT_TRUE(refused(done, 0, -1));
  done.times = {0, 10, 5, 0, INT64_MAX};
  EXPECT_TRUE(refused(done, 0, -1));
  done.times = {0, 10, 5, 0, 12};
  EXPECT_FALSE(refused(done, 0, -1));
}

}  // namespace
}  // namespace weft
