#include "support/weft_memory.h"

#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool has(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) >= begin && reinterpret_cast<uintptr_t>(at) < end;
  }
};

struct Modules {
  Range weft, cxx;
};

int add_module(dl_phdr_info* info, size_t, void* to) {
  auto& modules = *static_cast<Modules*>(to);
  Range* range = std::strstr(info->dlpi_name, "/libweft.so")     ? &modules.weft
                 : std::strstr(info->dlpi_name, "/libstdc++.so") ? &modules.cxx
                                                                 : nullptr;
  if (range == nullptr) return 0;
  range->begin = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      range->end = std::max<uintptr_t>(
          range->end, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  return 0;
}

const Modules& modules() {
  static const Modules found = [] {
    Modules out;
    dl_iterate_phdr(add_module, &out);
    void* frame[1];
    backtrace(frame, 1);  // its first call loads a library
    return out;
  }();
  return found;
}

// Whether the module that asked, or on whose behalf the C++ library did, is weft.
bool is_weft(const void* caller) {
  const Modules& of = modules();
  if (of.weft.has(caller)) return true;
  if (!of.cxx.has(caller)) return false;
  void* frames[32];
  const int count = backtrace(frames, 32);
  void** const end = frames + count;
  void** const first = std::find(frames, end, caller);
  void** const at = std::find_if(first, end, [&](const void* frame) { return !of.cxx.has(frame); });
  return at != end && of.weft.has(*at);
}

std::atomic<int64_t> live_count = 0, until_failure = INT64_MAX, failures = 0;
std::atomic<bool> failed = false;

// Before each piece of memory.
struct Head {
  void* start;
  bool weft;
};
static_assert(sizeof(Head) == 16);

void* allocate(size_t size, size_t alignment, const void* caller) {
  const bool weft = is_weft(caller);
  if (weft && until_failure.fetch_sub(1) <= 0 && failures.fetch_sub(1) > 0) {
    failed = true;
    throw std::bad_alloc();
  }
  alignment = std::max(alignment, sizeof(Head));
  auto* const start = static_cast<char*>(std::malloc(size + 2 * alignment));
  if (start == nullptr) throw std::bad_alloc();
  const uintptr_t first = reinterpret_cast<uintptr_t>(start) + sizeof(Head);
  char* const at = start + sizeof(Head) + (alignment - first % alignment) % alignment;
  new (at - sizeof(Head)) Head{start, weft};
  if (weft) live_count.fetch_add(1);
  return at;
}

void release(void* at) {
  if (at == nullptr) return;
  const Head head = *reinterpret_cast<Head*>(static_cast<char*>(at) - sizeof(Head));
  if (head.weft) live_count.fetch_sub(1);
  std::free(head.start);
}

}  // namespace

void* operator new(size_t size) { return allocate(size, 0, __builtin_return_address(0)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* at) noexcept { release(at); }
void operator delete(void* at, size_t) noexcept { release(at); }
void operator delete(void* at, std::align_val_t) noexcept { release(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { release(at); }

namespace test::memory {

int64_t live() { return live_count; }

void fail(int64_t n, int64_t count) {
  failed = false;
  failures = count;
  until_failure = n;
}

bool stop_failing() {
  until_failure = INT64_MAX;
  failures = 0;
  return failed;
}

}  // namespace test::memory
