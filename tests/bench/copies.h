// Benchmarks over several processes: copies of the program that serve as other ranks.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/config.h"
#include "weft.h"

extern char** environ;

namespace weft::bench {

inline void must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "benchmark: %s\n", what);
  std::exit(1);
}

inline void must(weft_status status, const weft_error& err) { must(status >= 0, err.text); }

inline pid_t start_copy(const char* flag, const char* argument) {
  std::string self = "/proc/self/exe", first = flag, second = argument;
  char* args[] = {self.data(), first.data(), second.data(), nullptr};
  pid_t child = 0;
  must(posix_spawn(&child, self.c_str(), nullptr, nullptr, args, environ) == 0,
       "cannot start a process");
  return child;
}

// What such a copy does: serves as a rank until the run ends.
inline int join(const char* endpoint) {
  weft_error err = sized<weft_error>();
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint;
  weft_mesh* mesh = nullptr;
  must(weft_mesh_join(&config, &mesh, &err), err);
  must(weft_run_serve(mesh, nullptr, nullptr, nullptr, &err), err);
  weft_mesh_free(mesh);
  return 0;
}

}  // namespace weft::bench
