// A directory of checkpoints has one writer at a time.
#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoints.h"

namespace weft {
namespace {

using test::Directory;
using test::fine;
using test::manifest_of;
using test::says;
using test::spill;
using test::write_checkpoint;

// What is asked without the lock may be another's answer when the lock is had: the other may commit
// in between.
TEST(CheckpointLock, WhetherItMayWriteIsAskedUnderTheLock) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  const auto other = CheckpointWriter::begin(directory.path(), manifest_of(20), {}, {});
  ASSERT_TRUE(fine(other.status()));
  EXPECT_TRUE(says(CheckpointWriter::begin(directory.path(), manifest_of(5), {}, {}).status(),
                   {directory.path(), "another writer"}));
}

TEST(CheckpointLock, OneWriterAtATime) {
  const Directory directory;
  auto first = CheckpointWriter::begin(directory.path(), manifest_of(1), {}, {});
  ASSERT_TRUE(fine(first.status()));
  EXPECT_TRUE(says(CheckpointWriter::begin(directory.path(), manifest_of(2), {}, {}).status(),
                   {directory.path(), "another writer"}));
  EXPECT_TRUE(fine(first.value().commit().status()));
}

// `weft train` holds this lock for a run. The file outlives a command that was killed.
TEST(CheckpointLock, TheLockOfARunIsThatOfItsProcess) {
  const Directory directory;
  const auto begin = [&] {
    return CheckpointWriter::begin(directory.path(), manifest_of(1), {}, {}).status();
  };
  const std::string path = directory / ".weft.lock", own = std::to_string(getpid()) + "\n",
                    other = std::to_string(getppid()) + "\n";
  {
    spill(path, other);
    auto run = File::open(path);
    ASSERT_TRUE(fine(run.status()));
    ASSERT_TRUE(fine(run.value().lock("")));
    EXPECT_TRUE(says(begin(), {directory.path(), "another writer uses this directory"}));
    EXPECT_EQ(begin().code(), Code::state);
    spill(path, own);
    EXPECT_TRUE(fine(begin()));
  }
  spill(path, other);
  EXPECT_TRUE(fine(begin()));
}

}  // namespace
}  // namespace weft
