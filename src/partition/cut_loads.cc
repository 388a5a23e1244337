#include "partition/cut_loads.h"

#include <algorithm>

namespace weft {

namespace {

// As the step graph stores the output of a node between calls, and its gradient.
double bytes_of(const Model& model, const PlanConfig& config, NodeId id) {
  const Node& node = model.node(id);
  Desc desc = model.desc(id, config.micro_batch_size);
  if (desc.dtype == DType::f32 && !node.is_input()) desc.dtype = node.stored_as(config.values());
  return static_cast<double>(desc.bytes());
}

}  // namespace

// Every tensor that is made before a cut and used after it counts once, as if all messages passed
// through adjacent stages. A tensor that skips stages is sent directly, so that this is an upper
// bound for a link. Links carry both directions at once.
CutLoads::CutLoads(const Model& model, const PlanConfig& config, const OpNodes& ops) {
  const size_t n = ops.ids.size();
  // Differences of whole numbers below 2^53, so that they are exact.
  std::vector<double> there(n + 1, 0.0), back(n + 1, 0.0);
  for (size_t i = 0; i < n; ++i) {
    const Node& node = model.node(ops.ids[i]);
    if (node.uses.empty()) continue;
    const auto last = static_cast<size_t>(ops.index[static_cast<size_t>(node.uses.back().node)]);
    const double bytes = bytes_of(model, config, ops.ids[i]);
    for (auto [sums, value] :
         {std::pair(&there, bytes), std::pair(&back, node.needs_grad ? bytes : 0.0)}) {
      (*sums)[i + 1] += value;
      (*sums)[last + 1] -= value;
    }
  }
  double forward = 0, backward = 0;
  for (size_t i = 0; i < n; ++i) {
    forward += there[i];
    backward += back[i];
    forward_.push_back(forward);
    backward_.push_back(backward);
  }
  for (const NodeId id : model.inputs()) {
    const Node& node = model.node(id);
    const double bytes = bytes_of(model, config, id);
    Input& input = inputs_.emplace_back(
        Input{.readers = {}, .bytes = bytes, .gradient = node.needs_grad ? bytes : 0.0});
    for (const Node::Use& use : node.uses)
      input.readers.push_back(static_cast<size_t>(ops.index[static_cast<size_t>(use.node)]));
  }
}

double CutLoads::time(size_t begin, size_t end, bool from_first, const LinkSpeed& link) const {
  const Fed inputs = from_first ? fed(begin, end) : Fed();
  const double most = std::max(forward_[begin] + inputs.bytes, backward_[begin] + inputs.gradients);
  if (most == 0) return 0;
  return link.latency + (link.bandwidth > 0 ? most / link.bandwidth : 0);
}

CutLoads::Fed CutLoads::fed(size_t begin, size_t end) const {
  Fed out;
  for (const Input& input : inputs_) {
    const auto next = std::lower_bound(input.readers.begin(), input.readers.end(), begin);
    if (next == input.readers.end() || *next >= end) continue;
    out.bytes += input.bytes;
    out.gradients += input.gradient;
  }
  return out;
}

}  // namespace weft
