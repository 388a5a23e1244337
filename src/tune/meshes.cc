#include "tune/meshes.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "graph/shard.h"

namespace weft {

namespace {

// Replicas divide the groups by the rules of check_config.
bool divides(int32_t data, int32_t groups) {
  return data == groups || (std::has_single_bit(static_cast<uint32_t>(data)) && groups % data == 0);
}

}  // namespace

std::string MeshSizes::text() const {
  return cat("data=", data, ",stage=", stage, ",tensor=", tensor);
}

Result<std::vector<MeshSizes>> meshes_of(const PlanConfig& config) {
  if (config.ranks < 1 || config.ranks > kMaxStages)
    return Status(Code::invalid, cat("ranks is ", config.ranks, ", expected 1 to ", kMaxStages));
  const int32_t pieces = config.tensor > 0 ? config.tensor : kMostShards;
  std::vector<MeshSizes> out;
  for (int32_t tensor = 1; tensor <= std::min(pieces, config.ranks); ++tensor)
    for (int32_t data = 1; data <= config.ranks / tensor; ++data) {
      const int32_t groups = config.gradient_groups > 0 ? config.gradient_groups : data;
      if (config.ranks % (tensor * data) != 0 || data > config.micro_batches ||
          !divides(data, groups))
        continue;
      out.push_back({.data = data, .stage = config.ranks / tensor / data, .tensor = tensor});
    }
  return out;
}

PlanConfig with_mesh(const PlanConfig& config, const MeshSizes& mesh) {
  PlanConfig out = config;
  out.data = mesh.data;
  out.shard_ranks = mesh.tensor;
  if (out.gradient_groups == 0) out.gradient_groups = mesh.data;
  if (out.tensor == 0) out.tensor = mesh.tensor;
  return out;
}

}  // namespace weft
