// A writer killed at any moment leaves a whole checkpoint, and the next writer clears up after it.
// Between two system calls nothing on the disk changes, so a child is stopped at each of its calls
// in turn and killed there: every moment there is, in a known order.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <set>

#include "checkpoints.h"
#include "io/source_files.h"
#include "support/cases.h"

namespace {

bool refuses_exchange = false;

// From now on the parent can stop and kill this child.
void await_kill() {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0 || raise(SIGSTOP) != 0) _exit(2);
}

}  // namespace

// Stands before that of the C library. Some file systems cannot exchange names; what comes before
// is the same with all.
extern "C" int renameat2(int from_fd, const char* from, int to_fd, const char* to,
                         unsigned int flags) noexcept {
  if (!refuses_exchange || (flags & RENAME_EXCHANGE) == 0)
    return static_cast<int>(syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
  await_kill();
  errno = EINVAL;
  return -1;
}

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::check_checkpoint;
using test::Directory;
using test::fine;
using test::write_checkpoint;

// Runs a child that writes and kills it at the stop-th entry to or exit from a system call. Says
// whether it was killed; if not, it was through.
bool kill_at(int stop, const std::function<Status()>& write) {
  const pid_t child = fork();
  if (child == 0) {
    if (!refuses_exchange) await_kill();
    _exit(write().ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  for (int stops = 0; WIFSTOPPED(status); ++stops) {
    if (stops == stop) kill(child, SIGKILL);
    // Fails where the child is gone already, which is what waitpid then says.
    (void)ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    EXPECT_EQ(waitpid(child, &status, 0), child);
  }
  if (WIFSIGNALED(status)) return true;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child failed on its own";
  return false;
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(path))
    out.insert(entry.path().filename().string());
  return out;
}

// Kills at each moment of writing `step` into a copy of `before`; then reads, writes the step
// after, and looks at what is left.
void kill_everywhere(const std::string& before, uint64_t step, uint64_t previous,
                     const std::set<std::string>& after_recovery) {
  int kills = 0;
  std::set<uint64_t> seen;
  const Directory directory;
  const std::string dir = directory / "d";
  for (int stop = 0;; stop += test::kEvery) {
    fs::remove_all(dir);
    fs::copy(before, dir, fs::copy_options::recursive);
    const bool killed = kill_at(stop, [&] { return write_checkpoint(dir, step).status(); });
    auto opened = Checkpoint::open(dir);
    ASSERT_TRUE(fine(opened.status())) << "killed at stop " << stop;
    ASSERT_TRUE(fine(check_checkpoint(opened.value()))) << "killed at stop " << stop;
    const uint64_t found = opened.value().manifest().step;
    ASSERT_TRUE(found == step || found == previous) << found;
    seen.insert(found);
    ASSERT_TRUE(fine(write_checkpoint(dir, step + 10).status())) << "killed at stop " << stop;
    const auto left = names_in(dir);
    ASSERT_TRUE(left == after_recovery ||
                left.contains("step-" + std::to_string(100000000 + step).substr(1)))
        << "killed at stop " << stop;
    ASSERT_EQ(left.size(), 3u) << "killed at stop " << stop;
    if (!killed) break;
    ++kills;
  }
  EXPECT_GT(kills, 50 / test::kEvery);
  EXPECT_EQ(seen, (std::set<uint64_t>{previous, step}));
}

TEST(Crash, AtAnyMomentOfANewStep) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 20).status()));
  kill_everywhere(directory.path(), 30, 20, {"latest", "step-00000020", "step-00000040"});
}

TEST(Crash, AtAnyMomentOfReplacingAStep) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 20).status()));
  for (const bool refuses : {false, true}) {
    refuses_exchange = refuses;
    kill_everywhere(directory.path(), 20, 20, {"latest", "step-00000020", "step-00000030"});
  }
  refuses_exchange = false;
}

TEST(Crash, AtAnyMomentOfReplacingTheSourceOfAModel) {
  const Directory directory;
  const std::string source = directory / "model", kept = directory / "kept";
  fs::create_directory(source);
  test::spill(source + "/config.json", "{}");
  ASSERT_TRUE(fine(keep_source(kept, source, "")));
  const std::string checkpoint = kept + "/step-00000010";
  fs::create_directory(checkpoint);
  refuses_exchange = true;
  for (int stop = 0; kill_at(stop, [&] { return keep_source(kept, source, ""); }); ++stop) {
    const std::string found = source_of(checkpoint);
    ASSERT_EQ(test::slurp(found + "/config.json"), "{}") << "killed at stop " << stop;
  }
  refuses_exchange = false;
  EXPECT_EQ(names_in(kept), (std::set<std::string>{"source", "step-00000010"}));
}

}  // namespace
}  // namespace weft
