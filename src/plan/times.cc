#include "plan/times.h"

#include <cmath>

#include <algorithm>

namespace weft {

std::vector<NodeTimes> analysed_times(const Model& model, int64_t samples) {
  // Besides multiplications, each output element is read and written once; this is the whole cost
  // of adds and copies.
  constexpr double kFlops = 1e11, kBytes = 1e10, kPerElement = 8;
  std::vector<NodeTimes> out(model.nodes().size());
  for (NodeId id = 0; id < static_cast<NodeId>(out.size()); ++id) {
    const Node& node = model.node(id);
    if (node.is_input()) continue;
    std::vector<Desc> in, weights;
    for (NodeId i : node.in) in.push_back(model.desc(i, samples));
    for (ParamId w : node.weights) weights.push_back(model.param(w).desc());
    const Desc desc = model.desc(id, samples);
    const Cost cost = node.op->cost(node.attrs, in, weights, desc);
    const double moved = kPerElement * static_cast<double>(desc.elements()) / kBytes;
    const double times = Coordinates(model.axes()).count();  // that the node runs
    out[static_cast<size_t>(id)] = {times * (cost.forward_flops / kFlops + moved),
                                    times * (cost.input_flops / kFlops + moved),
                                    times * cost.weight_flops / kFlops};
  }
  drop_frozen(model, out);
  return out;
}

void drop_frozen(const Model& model, std::vector<NodeTimes>& times) {
  const auto has_gradient = [&model](ParamId p) { return model.param(p).has_gradient(); };
  const std::vector<Param>& params = model.params();
  if (std::none_of(params.begin(), params.end(),
                   [](const Param& param) { return param.training.frozen; }))
    return;
  for (size_t id = 0; id < times.size(); ++id) {
    const Node& node = model.nodes()[id];
    if (!node.needs_grad || std::none_of(node.in.begin(), node.in.end(), [&model](NodeId from) {
          return model.node(from).needs_grad;
        }))
      times[id].input = 0;
    if (std::none_of(node.weights.begin(), node.weights.end(), has_gradient))
      times[id].weight = times[id].weight_together = 0;
  }
}

void LinkSpeed::keep_slower(const LinkSpeed& other) {
  latency = std::max(latency, other.latency);
  if (other.bandwidth > 0)
    bandwidth = bandwidth > 0 ? std::min(bandwidth, other.bandwidth) : other.bandwidth;
}

LinkSpeed Machines::between(size_t from, size_t to) const {
  return link ? link(from, to) : LinkSpeed{latency, bandwidth};
}

void Machines::keep_least(size_t groups, size_t size,
                          const std::function<size_t(size_t group, size_t number)>& member) {
  std::vector<double> slowest(speeds.empty() ? 0 : groups, INFINITY);
  std::vector<int64_t> smallest(memory.empty() ? 0 : groups, 0);
  for (size_t g = 0; g < groups; ++g)
    for (size_t i = 0; i < size; ++i) {
      const size_t rank = member(g, i);
      if (!speeds.empty()) slowest[g] = std::min(slowest[g], speeds[rank]);
      if (!memory.empty() && memory[rank] > 0)
        smallest[g] = smallest[g] > 0 ? std::min(smallest[g], memory[rank]) : memory[rank];
    }
  speeds = std::move(slowest);
  memory = std::move(smallest);
  if (!link) return;
  link = [each = std::move(link), size, member](size_t from, size_t to) {
    LinkSpeed out = each(member(from, 0), member(to, 0));
    for (size_t i = 1; i < size; ++i) out.keep_slower(each(member(from, i), member(to, i)));
    return out;
  };
}

std::vector<NodeTimes> times_of_pieces(const Model& model, int64_t samples,
                                       const std::vector<NodeTimes>& of_whole) {
  std::vector<NodeTimes> out = analysed_times(model, samples), sums(of_whole.size());
  const auto origin = [&](size_t id) { return static_cast<size_t>(model.nodes()[id].origin); };
  for (size_t id = 0; id < out.size(); ++id) {
    NodeTimes& sum = sums[origin(id)];
    sum.forward += out[id].forward;
    sum.input += out[id].input;
    sum.weight += out[id].weight;
  }
  for (size_t id = 0; id < out.size(); ++id) {
    const NodeTimes &whole = of_whole[origin(id)], &sum = sums[origin(id)];
    const auto share = [](double time, double of, double part) {
      return of > 0 ? time * part / of : 0;
    };
    out[id] = {share(whole.forward, sum.forward, out[id].forward),
               share(whole.input, sum.input, out[id].input),
               share(whole.weight, sum.weight, out[id].weight),
               share(whole.weight_together, sum.weight, out[id].weight)};
  }
  return out;
}

}  // namespace weft
