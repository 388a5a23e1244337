// A directory of checkpoints has one writer at a time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"

namespace {

int locks = 0;  // by flock

}  // namespace

// Stands before flock of the C library; <fcntl.h> has a struct of that name.
extern "C" int count_lock(int fd, int operation) noexcept __asm__("flock");
int count_lock(int fd, int operation) noexcept {
  ++locks;
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}

namespace weft {
namespace {

using test::Directory;
using test::fine;
using test::manifest_of;
using test::says;
using test::spill;
using test::write_checkpoint;

// As `weft train` locks its file.
class Lock {
 public:
  explicit Lock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {}
  ~Lock() { close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  bool locked() const {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(fd_, F_OFD_SETLK, &whole) == 0;
  }

 private:
  const int fd_;
};

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
    const Lock run(path);
    ASSERT_TRUE(run.locked());
    EXPECT_TRUE(says(begin(), {directory.path(), "another writer uses this directory"}));
    EXPECT_EQ(begin().code(), Code::state);
    spill(path, own);
    EXPECT_TRUE(fine(begin()));
  }
  spill(path, other);
  EXPECT_TRUE(fine(begin()));
}

// In another container, another process can have the number of this one.
TEST(CheckpointLock, ARunOfAnotherProcessWithTheSameNumberHoldsItsLock) {
  const Directory directory;
  const std::string path = directory / ".weft.lock";
  spill(path, std::to_string(getpid()) + "\n");
  int locked[2], over[2];
  ASSERT_EQ(pipe(locked), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t other = fork();
  if (other == 0) {
    close(over[1]);
    const Lock run(path);
    char byte = run.locked();
    _exit(write(locked[1], &byte, 1) == 1 && read(over[0], &byte, 1) == 0 ? 0 : 1);
  }
  ASSERT_GT(other, 0);
  char byte = 0;
  EXPECT_EQ(read(locked[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1);
  EXPECT_TRUE(says(CheckpointWriter::begin(directory.path(), manifest_of(1), {}, {}).status(),
                   {directory.path(), "another writer uses this directory"}));
  for (const int end : {over[1], over[0], locked[0], locked[1]}) close(end);
  int status = 1;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

// A run that starts at that moment would be refused.
TEST(CheckpointLock, TheLockOfARunIsNotTakenToAskForIt) {
  const Directory directory;
  const auto locked_by_a_writer = [&] {
    locks = 0;
    const auto writer = CheckpointWriter::begin(directory.path(), manifest_of(1), {}, {});
    EXPECT_TRUE(fine(writer.status()));
    return locks;
  };
  const int without_run = locked_by_a_writer();
  EXPECT_GT(without_run, 0);
  spill(directory / ".weft.lock", "1\n");
  EXPECT_EQ(locked_by_a_writer(), without_run);
}

}  // namespace
}  // namespace weft
