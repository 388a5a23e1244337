// After its first step a run over processes allocates nothing on any rank: counted in malloc, in
// real processes, over real sockets. What ZeroMQ and libuv allocate for themselves is theirs;
// weft's is what its own code asks for, also through the C++ library.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "graph/presets.h"
#include "runtime/mesh.h"
#include "tune/make_plan.h"

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

constexpr int kRanks = 4, kFrames = 24;

// One page for all processes of a test.
struct Ledger {
  std::atomic<bool> counting;
  std::atomic<int64_t> weft[kRanks], others[kRanks];
  void* first[kRanks][kFrames];  // where the first of weft's came from; one program, one layout
  int first_frames[kRanks];
  int64_t steps;
  char failure[512];
};
Ledger* ledger = nullptr;
int self = 0;
thread_local bool inside = false;

struct Range {
  uintptr_t begin, end;
};
// The C and C++ libraries, which are on the stack between an allocation and its caller.
constexpr int kMostPassed = 16;
Range passed[kMostPassed];
int passed_count = 0;
Range program;

int take_object(dl_phdr_info* info, size_t, void*) {
  const bool own = info->dlpi_name[0] == 0;
  const char* const names[] = {"libc.so", "libstdc++", "libgcc_s", "libm.so", "ld-linux"};
  bool between = false;
  for (const char* name : names) between = between || std::strstr(info->dlpi_name, name);
  if (!own && !between) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
    const Range range = {info->dlpi_addr + part.p_vaddr,
                         info->dlpi_addr + part.p_vaddr + part.p_memsz};
    if (own)
      program = range;
    else if (passed_count < kMostPassed)
      passed[passed_count++] = range;
  }
  return 0;
}

bool in(const Range& range, void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return address >= range.begin && address < range.end;
}

[[gnu::noinline]] void count() {
  if (!ledger || inside || !ledger->counting.load(std::memory_order_relaxed)) return;
  inside = true;
  void* frames[kFrames];
  const int found = backtrace(frames, kFrames);
  int at = 2;  // beyond this function and the one that called it
  const auto passes = [&](void* frame) {
    for (int i = 0; i < passed_count; ++i)
      if (in(passed[i], frame)) return true;
    return false;
  };
  while (at < found && passes(frames[at])) ++at;
  if (at < found && in(program, frames[at])) {
    if (ledger->weft[self].fetch_add(1) == 0) {
      std::copy(frames, frames + found, ledger->first[self]);
      ledger->first_frames[self] = found;
    }
  } else {
    ledger->others[self].fetch_add(1);
  }
  inside = false;
}

}  // namespace

extern "C" {
void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  count();
  return __libc_calloc(n, size);
}
void* realloc(void* old, size_t size) {
  count();
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  count();
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}
}

namespace weft {
namespace {

constexpr int64_t kTokens = 16;

// A mesh of ranks; `shared` of them compute each stage.
struct Axes {
  int32_t ranks, data = 1, shared = 1;
  const char* shard = "optimizer";
};

std::shared_ptr<const Plan> nano_plan(const Axes& axes) {
  PlanConfig config;
  config.ranks = axes.ranks;
  config.data = axes.data;
  config.gradient_groups = 2 * axes.data;
  config.shard_ranks = axes.shared;
  config.tensor = axes.shared;
  config.shard = axes.shard;
  config.bucket_bytes = 4096;
  config.micro_batches = 6;
  config.micro_batch_size = 2;
  config.optim.clip = 1;
  return make_plan(make_preset("gpt-nano:width=32,dropout=0.1", {.seq_len = kTokens}).take().model,
                   config)
      .take();
}

void ignore(void*) {}

int fail(const Status& status) {
  std::snprintf(ledger->failure, sizeof ledger->failure, "rank %d: %s", self,
                status.text().c_str());
  return 1;
}

// Rank 0: a step of each mode, then counted ones, long enough for some heartbeats.
int control(const std::string& endpoint, const Axes& axes) {
  auto mesh = Mesh::listen({.endpoint = endpoint, .listen = {}});
  if (!mesh.ok()) return fail(mesh.status());
  auto started = start_mesh(nano_plan(axes), *mesh.value(), 2, ignore);
  if (!started.ok()) return fail(started.status());
  Run& run = *started.value();
  const int64_t samples = run.plan().config.micro_batches * run.plan().config.micro_batch_size;
  std::vector<int32_t> tokens(static_cast<size_t>(samples * kTokens), 7), targets(tokens.size(), 9);
  std::chrono::steady_clock::time_point end;
  for (int64_t n = 0; n < 12 || std::chrono::steady_clock::now() < end; ++n) {
    if (n == 3) {
      end = std::chrono::steady_clock::now() + std::chrono::milliseconds(800);
      ledger->counting = true;
    }
    Step* step = run.acquire();
    step->mode = kEveryMode[static_cast<size_t>(n % 3)];
    step->batch.samples = samples;
    step->batch.inputs.push_back(tokens.data());
    step->batch.inputs.push_back(targets.data());
    if (Status status = run.submit(step); !status.ok()) return fail(status);
    RunEvent event;
    while (run.poll(event, -1))
      if (!event.status.ok()) return fail(event.status);
    ledger->steps += ledger->counting;
  }
  ledger->counting = false;
  return 0;
}

int join(const std::string& endpoint, const Axes& axes) {
  auto mesh = Mesh::join({.endpoint = endpoint, .listen = {}, .rank = self});
  if (!mesh.ok()) return fail(mesh.status());
  if (Status status = serve(*mesh.value(), nano_plan(axes), 1, {}); !status.ok())
    return fail(status);
  return 0;
}

void expect_no_allocation(const Axes& axes) {
  void* page =
      mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ledger = new (page) Ledger{};
  dl_iterate_phdr(take_object, nullptr);
  void* frame[1];
  backtrace(frame, 1);  // its own first use allocates
  char directory[] = "/tmp/weft-test-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string endpoint = std::string("ipc://") + directory + "/rank0";
  // Forked, not spawned: one layout of memory, so this process can name the frames that another one
  // saw.
  std::vector<pid_t> children;
  for (int32_t r = 0; r < axes.ranks; ++r) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      self = r;
      alarm(60);
      _exit(r == 0 ? control(endpoint, axes) : join(endpoint, axes));
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << ledger->failure;
  }
  EXPECT_GE(ledger->steps, 9);
  for (int32_t r = 0; r < axes.ranks; ++r) {
    EXPECT_EQ(ledger->weft[r], 0) << "rank " << r << " in " << ledger->steps
                                  << " steps; the first of them below";
    EXPECT_GT(ledger->others[r], 0)
        << "ZeroMQ allocates for every message: who counts nothing looks in the wrong place";
    if (ledger->weft[r] > 0) backtrace_symbols_fd(ledger->first[r], ledger->first_frames[r], 2);
  }
  std::filesystem::remove_all(directory);
  munmap(page, sizeof(Ledger));
  ledger = nullptr;
  passed_count = 0;
}

TEST(MeshAllocation, NoneInTwoProcesses) { expect_no_allocation({.ranks = 2}); }
TEST(MeshAllocation, NoneInFourProcesses) { expect_no_allocation({.ranks = 4}); }
TEST(MeshAllocation, NoneWithReplicasAndPieces) {
  expect_no_allocation({.ranks = 4, .data = 2, .shared = 2});
  expect_no_allocation({.ranks = 4, .data = 2, .shared = 2, .shard = "parameters"});
}

}  // namespace
}  // namespace weft
