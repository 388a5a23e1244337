// Saves do not replace or remove what others have made, nor the newest intact checkpoint.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "checkpoints.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

TEST(Foreign, DirectoriesOfOthersAreNotRemoved) {
  const Directory directory;
  const auto make = [&directory](const char* name) {
    const std::string made = directory / name;
    fs::create_directories(made);
    spill(made + "/notes.txt", "precious");
  };
  make("step-00000001");
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 2).status()));
  for (const uint64_t step : {3, 4, 5})
    ASSERT_TRUE(fine(write_checkpoint(directory.path(), step).status()));
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"latest", "step-00000001", "step-00000004", "step-00000005"}));
  make("step-00000006");
  EXPECT_TRUE(says(write_checkpoint(directory.path(), 6).status(),
                   {"step-00000006: has 'notes.txt', which weft does not write there"}));
  make(".step-00000007.tmp");
  EXPECT_TRUE(says(write_checkpoint(directory.path(), 8).status(), {".step-00000007.tmp: has"}));
  for (const char* name : {"step-00000001", "step-00000006", ".step-00000007.tmp"})
    EXPECT_EQ(slurp((directory / name) + "/notes.txt"), "precious");
}

// The commit would fail when the checkpoint is on the disk.
TEST(Foreign, NothingIsSavedIfItCannotBeNamed) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  const fs::path latest = directory / "latest";
  for (const auto& make : {+[](const fs::path& at) { fs::create_directory(at); },
                           +[](const fs::path& at) { fs::create_symlink("elsewhere", at); },
                           +[](const fs::path& at) { EXPECT_EQ(mkfifo(at.c_str(), 0600), 0); }}) {
    fs::remove(latest);
    make(latest);
    EXPECT_TRUE(says(write_checkpoint(directory.path(), 20).status(),
                     {latest.string(), "expected a", "found a"}));
    EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"latest", "step-00000010"}));
  }
}

// Its manifest and sizes are right.
TEST(Pruning, ADamagedCheckpointDoesNotTakeThePlaceOfAnIntactOne) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 3).status()));
  const auto damaged = write_checkpoint(directory.path(), 6);
  ASSERT_TRUE(fine(damaged.status()));
  const std::string file = damaged.value() + "/model-00001.safetensors";
  std::string bytes = slurp(file);
  bytes.back() ^= 1;
  spill(file, bytes);
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 8).status()));
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"latest", "step-00000003", "step-00000008"}));
}

}  // namespace
}  // namespace weft::test
