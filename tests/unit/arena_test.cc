// The memory of a rank's tensors.
#include "runtime/arena.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft {
namespace {

TEST(Arena, HasZeroedBytesFromAPageOn) {
  auto arena = Arena::make(100000);
  ASSERT_TRUE(arena.ok()) << arena.status().text();
  std::byte* data = arena.value().data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
  EXPECT_EQ(std::count(data, data + 100000, std::byte{0}), 100000);
  std::fill(data, data + 100000, std::byte{1});
  EXPECT_EQ(arena.value().resident().value(), 100000);
}

TEST(Arena, AModelWithoutTensorsHasOneAsWell) {
  const auto arena = Arena::make(0);
  ASSERT_TRUE(arena.ok()) << arena.status().text();
  EXPECT_NE(arena.value().data(), nullptr);
}

// A plan whose size has wrapped round would otherwise be given a byte, and its first write would
// end the process.
TEST(Arena, ANegativeSizeIsAFault) {
  const auto arena = Arena::make(-64);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.status().code(), Code::internal);
  EXPECT_NE(arena.status().text().find("-64 bytes"), std::string::npos) << arena.status().text();
}

TEST(Arena, MoreThanThereAreAddressesIsRefused) {
  const auto arena = Arena::make(int64_t{1} << 60);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.status().code(), Code::no_memory);
}

}  // namespace
}  // namespace weft
