#include "tensor/row_set.h"

#include <gtest/gtest.h>

#include <set>

namespace weft {
namespace {

std::vector<int64_t> rows_of(const RowSet& set, int64_t first, int64_t end) {
  std::vector<int64_t> out;
  set.each(first, end, [&](int64_t row) { out.push_back(row); });
  return out;
}

TEST(RowSet, HasWhatWasInserted) {
  for (const int64_t rows : {1, 63, 64, 65, 200}) {
    RowSet set(rows);
    EXPECT_EQ(std::ssize(rows_of(set, 0, rows)), rows) << "a new one has all";
    set.clear();
    EXPECT_TRUE(rows_of(set, 0, rows).empty());
    std::set<int64_t> expected;
    for (int64_t row = rows - 1; row >= 0; row -= 1 + row / 3) {
      set.insert(row);
      set.insert(row);
      expected.insert(row);
    }
    RowSet other(rows);
    other.clear();
    other.insert(0);
    other.insert(set);
    expected.insert(0);
    for (const int64_t first : {int64_t{0}, rows / 2, rows})
      for (const int64_t end : {int64_t{0}, rows / 2, rows, rows + 100}) {
        std::vector<int64_t> between;
        for (const int64_t row : expected)
          if (row >= first && row < end) between.push_back(row);
        EXPECT_EQ(rows_of(other, first, end), between) << rows << ": " << first << " to " << end;
      }
    other.insert_all();
    EXPECT_EQ(std::ssize(rows_of(other, 0, rows)), rows);
  }
}

}  // namespace
}  // namespace weft
