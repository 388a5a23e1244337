// The library changes the environment only in the thread of the caller.
#include <dlfcn.h>
#include <stdlib.h>

#include <mutex>
#include <thread>
#include <vector>

#include "api/api.h"

namespace {

std::mutex g_lock;
std::vector<std::thread::id> g_changed_by;

void record() {
  const std::lock_guard lock(g_lock);
  g_changed_by.push_back(std::this_thread::get_id());
}

}  // namespace

// In place of those of the C library, also for libweft.
extern "C" int setenv(const char* name, const char* value, int replace) noexcept {
  record();
  static const auto real =
      reinterpret_cast<int (*)(const char*, const char*, int)>(dlsym(RTLD_NEXT, "setenv"));
  return real(name, value, replace);
}

extern "C" int unsetenv(const char* name) noexcept {
  record();
  static const auto real = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_NEXT, "unsetenv"));
  return real(name);
}

namespace {

// With the first connection, the thread of a mesh uses BLIS; it must not be the first to do so.
TEST(Environment, IsChangedBeforeAMeshHasAThread) {
  Error err;
  weft_mesh* mesh = nullptr;
  ASSERT_EQ(weft_mesh_listen(nullptr, &mesh, &err), WEFT_OK) << err.text;
  const std::vector<std::thread::id> changed_by = g_changed_by;
  weft_kernels(nullptr, 0, nullptr);
  EXPECT_EQ(g_changed_by.size(), changed_by.size()) << "it is initialized later";
  for (const std::thread::id& thread : changed_by) EXPECT_EQ(thread, std::this_thread::get_id());
  weft_mesh_free(mesh);
}

}  // namespace
