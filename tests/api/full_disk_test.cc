// A save for which there is no room, on the disk or by the limit on the size of files: the error
// names the cause and the file, the previous checkpoint stays, the run goes on, and the host hears
// of no signal.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "api/drivers.h"

namespace {

namespace fs = std::filesystem;

uint64_t step_of(const CheckpointPtr& checkpoint) {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  EXPECT_EQ(weft_checkpoint_describe(checkpoint.get(), &info), WEFT_OK);
  EXPECT_EQ(info.warning, nullptr);
  return info.step;
}

// A run with a checkpoint, one step after it.
struct Saved {
  void begin() {
    run = start(small_model(), plan_config(2), 1);
    train();
    Error err;
    ASSERT_EQ(save(err), WEFT_OK) << err.text;
    before = digest(run);
    train();
  }
  void train() {
    EXPECT_EQ(step(run, {x.get(), y.get()}).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  }
  weft_status save(Error& err) {
    weft_save_config config = defaults(weft_save_config_init);
    config.directory = directory.c_str();
    return weft_run_save(run.get(), &config, &err);
  }
  // Saves with ever more room, until a save succeeds; each that does not leaves the first
  // checkpoint as it was.
  void save_with_more_room(const char* cause, const std::function<void(uint64_t room)>& limit,
                           uint64_t more) {
    for (uint64_t room = 0; room < uint64_t{1} << 20; room += more) {
      Error err;
      limit(room);
      const weft_status status = save(err);
      limit(UINT64_MAX);
      if (status == WEFT_OK) break;
      ++failures;
      expect_error(status, err, WEFT_EIO, {directory.c_str(), cause});
      const CheckpointPtr checkpoint = open_checkpoint(directory);
      ASSERT_TRUE(checkpoint);
      EXPECT_EQ(step_of(checkpoint), 1u);
      EXPECT_EQ(digest(checkpoint), before);
    }
    EXPECT_GE(failures, 3) << "of the tensors, of the manifest and of the name of the newest";
    const CheckpointPtr checkpoint = open_checkpoint(directory);
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(step_of(checkpoint), 2u);
    EXPECT_EQ(digest(checkpoint), digest(run));
    train();
  }

  const Directory place;
  std::string directory = place.path(), before;
  TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  RunPtr run;
  int failures = 0;
};

void limit_files(uint64_t bytes) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes == UINT64_MAX ? limit.rlim_max : bytes;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

volatile sig_atomic_t raised = 0;

// What a host may have done with the signal before.
struct Host {
  const char* name;
  void (*handler)(int);
  bool blocked, pending;
};
const Host kHosts[] = {
    {"Default", SIG_DFL, false, false},
    {"Ignored", SIG_IGN, false, false},
    {"Handled", [](int) { raised = raised + 1; }, false, false},
    {"Blocked", SIG_DFL, true, false},
    {"Pending", [](int) { raised = raised + 1; }, true, true},
};

class AnyHost : public testing::TestWithParam<Host> {};

bool is_blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, SIGXFSZ) == 1;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGXFSZ) == 1;
}

TEST_P(AnyHost, KeepsItsSignalsWhenAFileBecomesTooLarge) {
  const Host& host = GetParam();
  Saved saved;
  saved.begin();
  raised = 0;
  struct sigaction action = {}, before;
  action.sa_handler = host.handler;
  ASSERT_EQ(sigaction(SIGXFSZ, &action, &before), 0);
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, SIGXFSZ);
  if (host.blocked) pthread_sigmask(SIG_BLOCK, &own, nullptr);
  if (host.pending) raise(SIGXFSZ);

  saved.save_with_more_room("file too large", limit_files, 61);
  EXPECT_EQ(is_blocked(), host.blocked);
  EXPECT_EQ(is_pending(), host.pending);
  struct sigaction found;
  ASSERT_EQ(sigaction(SIGXFSZ, nullptr, &found), 0);
  EXPECT_EQ(found.sa_handler, host.handler);
  pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  EXPECT_EQ(raised, host.pending ? 1 : 0);
  ASSERT_EQ(sigaction(SIGXFSZ, &before, nullptr), 0);
}

INSTANTIATE_TEST_SUITE_P(Save, AnyHost, testing::ValuesIn(kHosts),
                         [](const auto& row) { return std::string(row.param.name); });

// On a file system of 1 MiB, of which a file takes all but the room that is left for the save.
TEST(Save, AFullDiskLeavesThePreviousCheckpoint) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    GTEST_SKIP() << "mounts are not permitted here";
  Saved saved;
  constexpr uint64_t kDisk = 1 << 20;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", saved.directory.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "mounts are not permitted here";
  const std::string disk = saved.directory, ballast = disk + "/ballast";
  saved.directory += "/checkpoints";
  saved.begin();
  saved.save_with_more_room(
      "no space left on device",
      [&](uint64_t room) {
        fs::remove(ballast);
        if (room == UINT64_MAX) return;
        const uint64_t free = fs::space(disk).available;
        ASSERT_LT(free, kDisk);
        if (free <= room) return;
        const int file = open(ballast.c_str(), O_CREAT | O_WRONLY, 0600);
        EXPECT_EQ(posix_fallocate(file, 0, static_cast<off_t>(free - room)), 0);
        close(file);
      },
      4096);
  saved.run.reset();
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
  saved.directory = disk;
}

}  // namespace
