// The reader of cluster files: any text is either refused or read, and what was read has an answer
// for each of its ranks.
#include <cstdio>
#include <cstdlib>

#include "io/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = weft::parse_cluster({reinterpret_cast<const char*>(data), size});
  if (!read.ok()) return 0;
  const weft::Cluster& cluster = read.value();
  const int64_t last = cluster.ranks() - 1;
  const weft::ClusterLink there = cluster.link(0, last), back = cluster.link(last, 0);
  if (last >= 0 && cluster.speed(last) > 0 && cluster.memory(last) >= 0 &&
      !cluster.machine(last).empty() && there == back && there.latency >= 0)
    return 0;
  std::fprintf(stderr, "a cluster of %lld ranks was read that cannot be\n",
               static_cast<long long>(last + 1));
  std::abort();
}
