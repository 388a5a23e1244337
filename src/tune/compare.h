// Choosing by prediction: every schedule that a configuration allows is planned and simulated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/cluster.h"
#include "plan/plan.h"
#include "sim/predict.h"
#include "tune/meshes.h"

namespace weft {

inline constexpr std::string_view kAutoSchedule = "auto";
constexpr int32_t kAutoWarmUp = -1;

struct Candidate {
  MeshSizes mesh = {};  // if the mesh was selected
  std::string schedule;
  int32_t chunks = 1;              // stages per rank
  int32_t warm_up = 0, group = 0;  // forwards ahead per later rank; micro-batches whose weight
                                   // gradients follow one another; 0: the schedule has no such
                                   // choice
  Status refused;     // the reason if there is no plan; the other fields are then empty
  bool over = false;  // a rank exceeds its memory limit
  Prediction prediction;
  PlanConfig config;  // makes the same plan again, without a search
};

struct Comparison {
  std::vector<Candidate> candidates;  // in the order of the table of schedules, or of meshes
  int32_t best =
      -1;  // the fastest one that fits; of those within 0.1 % of its time the smallest; -1: none
};

// `config.schedule` may be kAutoSchedule, which stands for all of them, and `config.warm_up`
// kAutoWarmUp. If config.data is kAutoMesh, there is a candidate for each mesh, with the best of
// its schedules. If config.shard is kAutoShard, too, replicas keep parameters in parts
// where no schedule fits otherwise. `cluster` may be null. A rank may take config.memory_limit,
// or what the cluster gives it.
Result<Comparison> compare_schedules(const std::shared_ptr<const Model>& model,
                                     const PlanConfig& config, const Cluster* cluster);

// The configuration with the selected values.
Result<PlanConfig> choose(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                          const Cluster* cluster);

}  // namespace weft
