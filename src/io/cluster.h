// A cluster: machines and links for predictions; they need not exist. A JSON file; weft-plan(1)
// describes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

struct ClusterLink {
  double latency = 0;    // seconds, one way, per message
  double bandwidth = 0;  // bytes a second, each way; 0: no limit
  friend bool operator==(const ClusterLink&, const ClusterLink&) = default;
};

// Equal machines: "name" if there is one, otherwise "name-0", "name-1", ...
struct ClusterMachines {
  std::string name, group;        // group: empty or shared by several
  uint64_t count = 1, ranks = 1;  // ranks of each machine
  double speed = 1;               // of a rank, in units of this machine
  uint64_t memory = 0;            // memory limit of a rank for tensors; 0: no limit
};

// Between the machines of two names or groups, or, if both are the same, between those of one.
struct ClusterOverride {
  std::string a, b;
  ClusterLink link;
};

// The time between two kernels on a rank, measured with one job given out ahead: 9 to 10
// microseconds.
constexpr double kActionOverhead = 10e-6;

struct Cluster {
  std::vector<ClusterMachines> machines;
  ClusterLink within, between;             // ranks of one machine, of different machines
  std::vector<ClusterOverride> overrides;  // the last one that matches counts
  double overhead = kActionOverhead;       // seconds of a rank per action

  int64_t ranks() const;
  // Ranks are counted machine by machine. Expects a rank of the cluster.
  double speed(int64_t rank) const { return machines[at(rank).kind].speed; }
  int64_t memory(int64_t rank) const {
    return static_cast<int64_t>(machines[at(rank).kind].memory);
  }
  std::string machine(int64_t rank) const;
  ClusterLink link(int64_t from, int64_t to) const;

 private:
  struct Machine {
    size_t kind;     // index into machines
    int64_t number;  // which of them
  };
  Machine at(int64_t rank) const;
  bool named(const Machine& machine, const std::string& name) const;
};

// Errors name the field, what was expected and what was found.
Result<Cluster> parse_cluster(std::string_view text);
Result<Cluster> read_cluster(const std::string& path);

}  // namespace weft
