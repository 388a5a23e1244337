#include "plan/profile_times.h"

#include <map>

#include "base/text.h"
#include "io/names.h"

namespace weft {

namespace {

// Of a profile or a plan.
template <typename T>
std::string precision_text(const T& of) {
  if (of.f32_nodes.empty()) return cat("precision ", of.precision);
  return cat("precision ", of.precision, " and f32_nodes ", shown(of.f32_nodes));
}

}  // namespace

Result<std::vector<NodeTimes>> times_of(const Profile& profile, const Model& model,
                                        const PlanConfig& config) {
  const int64_t micro_batch_size = config.micro_batch_size;
  if (profile.precision != config.precision || profile.f32_nodes != config.f32_nodes)
    return Status(Code::invalid, cat("the profile was made with ", precision_text(profile),
                                     ", the plan has ", precision_text(config)));
  if (profile.micro_batch_size != static_cast<uint64_t>(micro_batch_size))
    return Status(Code::invalid,
                  cat("the profile was made with micro-batches of ", profile.micro_batch_size,
                      ", the plan has micro-batches of ", micro_batch_size));
  std::map<std::string, const ProfileNode*> found;
  for (const ProfileNode& node : profile.nodes)
    if (!found.emplace(node.name, &node).second)
      return Status(Code::invalid, cat("node ", shown(node.name), " occurs twice in the profile"));
  std::vector<std::string> missing, surplus;
  std::vector<NodeTimes> out(model.nodes().size());
  Status differs;
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id) {
    const Node& node = model.node(id);
    if (node.is_input()) continue;
    const auto it = found.find(node.name);
    if (it == found.end()) {
      missing.push_back(node.name);
      continue;
    }
    const ProfileNode& p = *it->second;
    out[static_cast<size_t>(id)] = {p.forward, p.input, p.weight, p.weight_together};
    if (const uint64_t bytes = model.desc(id, micro_batch_size).bytes();
        p.output_bytes != bytes && differs.ok())
      differs = Status(Code::invalid, cat("node ", shown(node.name), " makes ", p.output_bytes,
                                          " bytes in the profile (", shown(profile.model), ", ",
                                          profile.seq_len, " tokens), in the model ", bytes));
    found.erase(it);
  }
  for (const auto& [name, node] : found) surplus.push_back(name);
  if (missing.empty() && surplus.empty())
    return differs.ok() ? Result<std::vector<NodeTimes>>(std::move(out)) : differs;
  return Status(Code::invalid, cat("the profile is of other nodes than the model",
                                   missing.empty() ? "" : "; missing: ", listed(missing),
                                   surplus.empty() ? "" : "; surplus: ", listed(surplus)));
}

}  // namespace weft
