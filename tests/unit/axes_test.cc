// Pieces of tensors: which elements of the whole a piece has, and which shape.
#include "graph/axes.h"

#include <gtest/gtest.h>

#include <random>

#include "graph/piece.h"

namespace weft {
namespace {

// The elements of the whole in the order of the piece, one by one.
std::vector<int64_t> elements_of(const ParamPiece& piece) {
  std::vector<std::vector<int64_t>> indices(static_cast<size_t>(piece.shape.rank));
  for (int axis = 0; axis < piece.shape.rank; ++axis) {
    Ranges ranges = {{0, piece.shape[axis]}};
    for (const ParamPiece::Part& part : piece.parts)
      if (part.axis == axis) ranges = part.ranges;
    for (const Range& range : ranges)
      for (int64_t i = range.begin; i < range.end; ++i)
        indices[static_cast<size_t>(axis)].push_back(i);
  }
  std::vector<int64_t> out = {0};
  for (int axis = 0; axis < piece.shape.rank; ++axis) {
    std::vector<int64_t> longer;
    for (const int64_t before : out)
      for (const int64_t index : indices[static_cast<size_t>(axis)])
        longer.push_back(before * piece.shape[axis] + index);
    out = std::move(longer);
  }
  return out;
}

TEST(Pieces, RunsAreThoseOfTheWhole) {
  std::mt19937 rng(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % uint64_t(n)); };
  int several = 0;
  for (int round = 0; round < 2000; ++round) {
    ParamPiece piece;
    piece.whole = 0;
    piece.shape.rank = static_cast<int>(1 + below(4));
    for (int axis = 0; axis < piece.shape.rank; ++axis) {
      piece.shape[axis] = 1 + below(7);
      if (below(2)) continue;
      Ranges ranges;
      for (int64_t at = below(piece.shape[axis]); at < piece.shape[axis] && ranges.size() < 3;) {
        ranges.push_back({at, at + 1 + below(piece.shape[axis] - at)});
        at = ranges.back().end + 1;
      }
      piece.parts.push_back({axis, ranges});
    }
    several += piece.parts.size() > 1;
    const std::vector<int64_t> expected = elements_of(piece);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto [in_whole, count] = piece.run_at(static_cast<int64_t>(i));
      ASSERT_EQ(in_whole, expected[i]) << "round " << round << ", element " << i;
      ASSERT_GE(count, 1);
      for (size_t k = 0; k < static_cast<size_t>(count); ++k)
        ASSERT_EQ(expected.at(i + k), in_whole + static_cast<int64_t>(k));
    }
  }
  EXPECT_GT(several, 500);
}

TEST(Axes, WholeAndLocalShapesGoTogether) {
  const std::vector<ModelAxis> axes = {{"a", 2}, {"b", 3}};
  const AxisCut cuts[] = {{.dim = 1, .axis = 1, .drop = true},
                          {.dim = 2, .axis = 0, .drop = false}};
  const Shape whole = {5, 3, 8, 7};
  EXPECT_EQ(local_shape(whole, cuts, axes).take().text(), "[5,4,7]");
  EXPECT_EQ(whole_shape({5, 4, 7}, cuts, axes).take(), whole);
}

TEST(Axes, ANumberAlongOneAxisChangesNoOther) {
  const Coordinates mesh({{"a", 2}, {"b", 3}, {"c", 4}});
  EXPECT_EQ(mesh.count(), 24);
  for (int32_t c = 0; c < 24; ++c)
    for (int32_t number = 0; number < 3; ++number) {
      const int32_t other = mesh.with(c, 1, number);
      EXPECT_EQ(mesh.along(other, 0), mesh.along(c, 0));
      EXPECT_EQ(mesh.along(other, 1), number);
      EXPECT_EQ(mesh.along(other, 2), mesh.along(c, 2));
    }
  EXPECT_EQ(mesh.along(23, 0), 1);
  EXPECT_EQ(mesh.along(1, 2), 1);
}

}  // namespace
}  // namespace weft
