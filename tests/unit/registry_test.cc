#include <gtest/gtest.h>

#include <set>

#include "ops/op.h"

namespace weft {
namespace {

TEST(Registry, FindsEachOpByItsOwnName) {
  std::set<std::string_view> names;
  for (const Op* op : all_ops()) {
    EXPECT_TRUE(names.insert(op->name()).second) << op->name() << " is listed twice";
    EXPECT_EQ(find_op(op->name()), op);
  }
  EXPECT_GE(names.size(), 5u);
  EXPECT_EQ(find_op("no such op"), nullptr);
  EXPECT_EQ(find_op(""), nullptr);
}

}  // namespace
}  // namespace weft
