// Saves that are queued among steps: each takes its turn, under every driver; steps go on while
// files are written; a save that fails ends with its event and disturbs nothing.
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "api/drivers.h"

namespace {

namespace fs = std::filesystem;

// Holds files that are written before they are on the disk.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;
  void set(bool close) {
    const std::lock_guard lock(mutex);
    closed = close;
    changed.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !closed; });
  }
};
Gate& gate() {
  static Gate one;
  return one;
}

}  // namespace

// Stands before that of the C library.
extern "C" int fsync(int fd) {
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) gate().pass();
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"))(fd);
}

namespace {

struct Trainer : TwoRanks {
  explicit Trainer(const Driver& driver)
      : TwoRanks(new_plan(small_model(), plan_config(2)), driver) {}

  // The i-th step, with different data for each.
  void submit(int i) {
    const auto seed = static_cast<uint32_t>(2 * i);
    data.push_back(noise({6, 6}, seed + 1));
    data.push_back(noise({6, 3}, seed + 2));
    Error err;
    weft_tensor* const inputs[] = {data[data.size() - 2].get(), data.back().get()};
    EXPECT_EQ(weft_run_submit(run.get(), inputs, 2, WEFT_TRAIN, static_cast<uint64_t>(i), &err),
              WEFT_OK)
        << err.text;
  }
  weft_status queue_save(const std::string& directory, uint64_t tag, Error& err) {
    weft_save_config config = defaults(weft_save_config_init);
    config.directory = directory.c_str();
    config.flags = WEFT_SAVE_QUEUE;
    config.tag = tag;
    return weft_run_save(run.get(), &config, &err);
  }
  void queue_save(const std::string& directory, uint64_t tag) {
    Error err;
    EXPECT_EQ(queue_save(directory, tag, err), WEFT_OK) << err.text;
  }

  std::vector<TensorPtr> data;
};

// A final event, with what it borrows.
struct Final {
  uint32_t kind;
  uint64_t tag, step;
  weft_status status;
  std::string text, path;
};

// The next final event.
Final next(const RunPtr& run) {
  weft_event event = sized<weft_event>();
  while (weft_run_poll(run.get(), &event, -1, nullptr) == 1) {
    if (event.kind == WEFT_EVENT_MICRO_BATCH || event.kind == WEFT_EVENT_UPDATE) continue;
    return {event.kind,
            event.tag,
            event.step,
            event.status,
            event.text ? event.text : "",
            event.path ? event.path : ""};
  }
  ADD_FAILURE() << "no final event";
  return {};
}

std::vector<Final> rest(const RunPtr& run, size_t count) {
  std::vector<Final> out;
  for (size_t i = 0; i < count; ++i) out.push_back(next(run));
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(run.get(), &event, 0, nullptr), 0) << "one final event too many";
  return out;
}

constexpr int kSteps = 5;

// After so many steps that nothing came between.
const std::vector<std::string>& digests() {
  static const std::vector<std::string> all = [] {
    Trainer alone(kInline);
    std::vector<std::string> out = {digest(alone.run)};
    for (int i = 0; i < kSteps; ++i) {
      alone.submit(i);
      (void)rest(alone.run, 1);
      out.push_back(digest(alone.run));
    }
    return out;
  }();
  return all;
}

std::string step_path(const std::string& directory, int step) {
  return directory + "/step-0000000" + std::to_string(step);
}

class QueuedSave : public testing::TestWithParam<Driver> {
 protected:
  Directory directory_;
};

TEST_P(QueuedSave, HasTheStepsBeforeItAndNoLaterOnes) {
  Trainer trainer(GetParam());
  trainer.queue_save(directory_.path(), 100);
  trainer.submit(0);
  trainer.submit(1);
  trainer.queue_save(directory_.path(), 102);
  trainer.submit(2);
  trainer.queue_save(directory_.path(), 103);
  trainer.submit(3);
  trainer.submit(4);
  std::map<uint64_t, Final> by_tag;
  size_t steps = 0;
  for (const Final& final : rest(trainer.run, 8)) {
    EXPECT_EQ(final.status, WEFT_OK) << final.text;
    by_tag[final.tag] = final;
    if (final.kind == WEFT_EVENT_DONE) {
      EXPECT_EQ(final.tag, steps++);
    }
    // All events of the steps before it come first.
    if (final.kind == WEFT_EVENT_SAVED) {
      EXPECT_LE(final.tag - 100, steps);
    }
  }
  for (const int step : {0, 2, 3}) {
    const Final& saved = by_tag[static_cast<uint64_t>(100 + step)];
    EXPECT_EQ(saved.kind, static_cast<uint32_t>(WEFT_EVENT_SAVED));
    EXPECT_EQ(saved.step, static_cast<uint64_t>(step));
    EXPECT_EQ(saved.path, step_path(directory_.path(), step));
  }
  EXPECT_EQ(digest(trainer.run), digests()[kSteps]);
  EXPECT_EQ(digest(open_checkpoint(step_path(directory_.path(), 2))), digests()[2]);
  EXPECT_EQ(digest(open_checkpoint(directory_.path())), digests()[3]);

  // With the optimizer's state and the number of steps: it goes on bit for bit.
  Trainer resumed(kInline);
  Error err;
  const CheckpointPtr checkpoint = open_checkpoint(step_path(directory_.path(), 2));
  EXPECT_EQ(weft_run_load(resumed.run.get(), checkpoint.get(), WEFT_LOAD_ALL, &err), WEFT_OK)
      << err.text;
  for (int i = 2; i < kSteps; ++i) resumed.submit(i);
  (void)rest(resumed.run, kSteps - 2);
  EXPECT_EQ(digest(resumed.run), digests()[kSteps]);
}

// Not where one thread does everything.
class QueuedSaveBeside : public QueuedSave {};

TEST_P(QueuedSaveBeside, LetsStepsGoOnWhileFilesAreWritten) {
  Trainer trainer(GetParam());
  gate().set(true);
  trainer.submit(0);
  trainer.queue_save(directory_.path(), 100);
  trainer.submit(1);
  trainer.submit(2);
  for (uint64_t tag = 0; tag < 3; ++tag) {
    const Final done = next(trainer.run);
    EXPECT_EQ(done.kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
    EXPECT_EQ(done.tag, tag);
  }
  EXPECT_FALSE(fs::exists(directory_.path() + "/latest"));
  // What is read and changed between steps is so between saves, too.
  Error err;
  char out[33];
  expect_error(weft_run_digest(trainer.run.get(), out, &err), err, WEFT_ESTATE, {"saves"});
  gate().set(false);
  const Final saved = rest(trainer.run, 1)[0];
  EXPECT_EQ(saved.kind, static_cast<uint32_t>(WEFT_EVENT_SAVED));
  EXPECT_EQ(saved.step, 1u);
  EXPECT_EQ(digest(open_checkpoint(directory_.path())), digests()[1]);
  EXPECT_EQ(digest(trainer.run), digests()[3]);
}

TEST_P(QueuedSave, ThatFailsLeavesTheRunAndEarlierCheckpoints) {
  Trainer trainer(GetParam());
  const std::string in_the_way = directory_.path() + "/file";
  fs::copy_file("/proc/self/exe", in_the_way);
  const std::string good = directory_.path() + "/good";
  trainer.submit(0);
  trainer.queue_save(good, 100);
  trainer.submit(1);
  trainer.queue_save(in_the_way, 101);
  trainer.submit(2);
  for (const Final& final : rest(trainer.run, 5)) {
    EXPECT_EQ(final.status, final.tag == 101 ? WEFT_EINVAL : WEFT_OK) << final.text;
    if (final.tag != 101) continue;
    EXPECT_EQ(final.kind, static_cast<uint32_t>(WEFT_EVENT_SAVED));
    EXPECT_NE(final.text.find(in_the_way), std::string::npos) << final.text;
    EXPECT_EQ(final.path, "");
    EXPECT_EQ(final.step, 2u);
  }
  rlimit before, small;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  trainer.queue_save(good, 102);
  trainer.submit(3);
  for (const Final& final : rest(trainer.run, 2)) {
    EXPECT_EQ(final.status, final.tag == 102 ? WEFT_EIO : WEFT_OK) << final.text;
    if (final.tag == 102) {
      EXPECT_NE(final.text.find("file too large"), std::string::npos);
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(digest(open_checkpoint(good)), digests()[1]);
  trainer.queue_save(good, 103);
  EXPECT_EQ(rest(trainer.run, 1)[0].path, step_path(good, 4));
  EXPECT_EQ(digest(open_checkpoint(good)), digests()[4]);
}

class QueuedSaveInAMesh : public testing::Test {
 protected:
  Directory directory_;
};

// What has left the ranks becomes a checkpoint all the same.
TEST_F(QueuedSaveInAMesh, ThatHasNotBegunFailsWithTheRun) {
  Trainer trainer(kMesh);
  gate().set(true);
  trainer.queue_save(directory_.path(), 100);
  trainer.submit(0);
  EXPECT_EQ(next(trainer.run).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  trainer.queue_save(directory_.path(), 101);
  trainer.submit(1);
  weft_mesh_cancel(trainer.mesh.get());
  const Final second = next(trainer.run), step = next(trainer.run);
  EXPECT_EQ(second.kind, static_cast<uint32_t>(WEFT_EVENT_SAVED));
  EXPECT_EQ(second.tag, 101u);
  EXPECT_EQ(second.status, WEFT_ECANCELED) << second.text;
  EXPECT_EQ(step.kind, static_cast<uint32_t>(WEFT_EVENT_ERROR));
  EXPECT_EQ(step.status, WEFT_ECANCELED) << step.text;
  gate().set(false);
  const Final first = rest(trainer.run, 1)[0];
  EXPECT_EQ(first.tag, 100u);
  EXPECT_EQ(first.path, step_path(directory_.path(), 0)) << first.text;
  EXPECT_EQ(digest(open_checkpoint(directory_.path())), digests()[0]);
  Error err;
  EXPECT_EQ(trainer.queue_save(directory_.path(), 102, err), WEFT_ECANCELED) << err.text;
}

TEST_P(QueuedSave, IsRefusedBehindSixteenOthers) {
  Trainer trainer(GetParam());
  Error err;
  for (uint64_t i = 0; i < 16; ++i) trainer.queue_save(directory_.path(), i);
  expect_error(trainer.queue_save(directory_.path(), 16, err), err, WEFT_EAGAIN,
               {"16 steps and saves"});
  for (const Final& final : rest(trainer.run, 16)) EXPECT_EQ(final.status, WEFT_OK) << final.text;
}

TEST_P(QueuedSave, MayBeUnderWayWhenTheRunIsFreed) {
  const int cycles = GetParam().mesh ? 20 : 60;
  int some = 0;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    fs::remove_all(directory_.path());
    {
      Trainer trainer(GetParam());
      trainer.interrupted = true;
      for (int i = 0; i < 1 + cycle % 3; ++i) {
        trainer.submit(i);
        trainer.queue_save(directory_.path(), 100);
      }
      weft_event event = sized<weft_event>();
      for (int polled = 0; polled < cycle % 7; ++polled)
        (void)weft_run_poll(trainer.run.get(), &event, -1, nullptr);
    }
    if (!fs::exists(directory_.path())) continue;
    size_t whole = 0;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      const std::string name = entry.path().filename();
      EXPECT_FALSE(name.starts_with(".")) << name << " is left over";
      if (!name.starts_with("step-")) continue;
      ++whole;
      EXPECT_EQ(digest(open_checkpoint(entry.path())),
                digests()[static_cast<size_t>(name.back() - '0')]);
    }
    if (fs::exists(directory_.path() + "/latest")) {
      EXPECT_GT(whole, 0u);
      ++some;
    }
  }
  EXPECT_GT(some, 0) << "no save ended";
}

TEST_P(QueuedSave, OneThatWaitsIsForTheTimeBetweenSteps) {
  Trainer trainer(GetParam());
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory_.path().c_str();
  Error err;
  trainer.submit(0);
  expect_error(weft_run_save(trainer.run.get(), &config, &err), err, WEFT_ESTATE, {"in progress"});
  (void)rest(trainer.run, 1);
  EXPECT_EQ(weft_run_save(trainer.run.get(), &config, &err), WEFT_OK) << err.text;
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(trainer.run.get(), &event, 0, nullptr), 0) << "it has no event";
  EXPECT_EQ(digest(open_checkpoint(directory_.path())), digests()[1]);
  config.flags = 2;
  expect_error(weft_run_save(trainer.run.get(), &config, &err), err, WEFT_EINVAL, {"flags is 2"});
}

std::string name_of(const testing::TestParamInfo<Driver>& row) { return row.param.name; }

INSTANTIATE_TEST_SUITE_P(Drivers, QueuedSave, testing::ValuesIn(kDrivers), name_of);
INSTANTIATE_TEST_SUITE_P(Drivers, QueuedSaveBeside, testing::Values(kThreads, kTeam, kMesh),
                         name_of);

}  // namespace
