#include "cli/mesh_option.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cli/lists.h"

namespace weft::cli {

namespace {

struct Mesh {
  uint32_t data = 1, stage = 1, tensor = 1;
};

// Returns a fault, or an empty string.
std::string read_mesh(const std::string& text, Mesh& out) {
  if (text == kAuto) return "";
  std::map<std::string, uint32_t*> axes = {
      {"data", &out.data}, {"stage", &out.stage}, {"tensor", &out.tensor}};
  for (const std::string& item : split(text)) {
    const size_t at = item.find('=');
    const std::string name = item.substr(0, at);
    const auto axis = axes.find(name);
    if (axis == axes.end() || !axis->second)
      return "'" + name + "' is " + (axis == axes.end() ? "no axis" : "there twice") +
             ", expected data=D,stage=P,tensor=T";
    uint32_t size = 0;
    if (at == std::string::npos || !read_value(item.substr(at + 1), &size) || size < 1 ||
        size > kMostRanks)
      return "'" + item + "', expected " + name + "=N with N from 1 to " +
             std::to_string(kMostRanks);
    *std::exchange(axis->second, nullptr) = size;
  }
  return "";
}

}  // namespace

void add_mesh_option(StoredOptions& settings, PlanOptions& options) {
  settings
      .add("--mesh", options.mesh,
           "Replicas, pipeline ranks and ranks per stage: data=D,stage=P,tensor=T. Replaces "
           "--ranks, which is stage=P. Or auto: all meshes of --ranks, for 'weft plan --compare'")
      .type("AXES")
      .check([](const std::string& text) {
        Mesh ignored;
        return read_mesh(text, ignored);
      });
}

Outcome settle_mesh(const StoredOptions& settings, PlanOptions& options, bool compares) {
  if (options.mesh == kAuto) {
    if (!compares)
      return {kUsage, "--mesh auto requires 'weft plan --compare'",
              "choose one of the meshes that it shows"};
    options.data = options.shard_ranks = 0;  // a mesh is to be selected
    if (!settings.given("shard")) options.shard = kAuto;
    return {};
  }
  if (settings.given("mesh") && settings.given("ranks"))
    return not_combined("--ranks", "--mesh, which contains it");
  if (settings.given("ranks")) options.mesh.clear();  // from a checkpoint
  options.data = 1;
  options.shard_ranks = 1;
  if (!options.mesh.empty()) {
    Mesh mesh;
    if (const std::string fault = read_mesh(options.mesh, mesh); !fault.empty())
      return {kUsage, "--mesh: " + fault, ""};
    const uint64_t ranks = uint64_t{mesh.data} * mesh.stage * mesh.tensor;
    if (ranks > kMostRanks)
      return {kUsage,
              "--mesh makes " + std::to_string(ranks) + " ranks, expected at most " +
                  std::to_string(kMostRanks),
              ""};
    options.data = mesh.data;
    options.shard_ranks = mesh.tensor;
    options.ranks = static_cast<uint32_t>(ranks);
  } else if (!options.stage_replicas.empty() && settings.given("stage-replicas") &&
             !settings.given("ranks")) {
    options.ranks = ranks_of(options.stage_replicas);
  }
  if (options.tensor == 0) options.tensor = options.shard_ranks;
  if (options.gradient_groups == 0) options.gradient_groups = options.data;
  return {};
}

}  // namespace weft::cli
