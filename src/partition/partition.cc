#include "partition/partition.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace weft {
namespace {

Status check_nodes(const NodeCosts& nodes) {
  const size_t n = nodes.cost.size();
  double total = 0;
  for (size_t v = 0; v < n; ++v) {
    // Written so that NaN fails as well.
    if (!(nodes.cost[v] >= 0) || std::isinf(nodes.cost[v]))
      return Status(Code::invalid, cat("node ", v, " costs ", nodes.cost[v],
                                       ", expected a finite number, 0 or more"));
    total += nodes.cost[v];
  }
  if (std::isinf(total))
    return Status(Code::invalid,
                  cat("the costs of ", n, " nodes sum to infinity, expected a finite sum"));
  for (size_t e = 0; e < nodes.edges.size(); ++e) {
    const NodeEdge& edge = nodes.edges[e];
    if (edge.from < 0 || edge.to < 0 || static_cast<size_t>(std::max(edge.from, edge.to)) >= n)
      return Status(Code::invalid, cat("edge ", e, " (node ", edge.from, " to ", edge.to,
                                       "): there are ", n, " nodes"));
    if (edge.from >= edge.to)
      return Status(Code::invalid,
                    cat("edge ", e, " (node ", edge.from, " to ", edge.to,
                        "): expected nodes in topological order, so that edges ascend"));
  }
  return {};
}

Status check_stages(int32_t stages, size_t count, const char* what) {
  if (stages < 1) return Status(Code::invalid, cat("stages is ", stages, ", expected 1 or more"));
  if (static_cast<size_t>(stages) > count)
    return Status(Code::invalid,
                  cat(stages, " stages need at least as many ", what, ", found ", count));
  return {};
}

// `starts` is sound.
Partition cut(const NodeCosts& nodes, std::vector<int32_t> starts) {
  const size_t n = nodes.cost.size();
  Partition partition;
  partition.first_node = std::move(starts);
  partition.stage_of_node.resize(n);
  partition.cost.resize(partition.first_node.size());
  size_t stage = 0;
  for (size_t v = 0; v < n; ++v) {
    if (stage + 1 < partition.first_node.size() &&
        static_cast<size_t>(partition.first_node[stage + 1]) == v)
      ++stage;
    partition.stage_of_node[v] = static_cast<int32_t>(stage);
    partition.cost[stage] += nodes.cost[v];
  }
  return partition;
}

}  // namespace

Result<Partition> partition_at(const NodeCosts& nodes, std::span<const int32_t> cuts) {
  WEFT_TRY(check_nodes(nodes));
  const size_t n = nodes.cost.size();
  if (n == 0) return Status(Code::invalid, "a stage needs at least one node, found 0");
  std::vector<int32_t> starts = {0};
  for (size_t c = 0; c < cuts.size(); ++c) {
    if (cuts[c] < 1 || static_cast<size_t>(cuts[c]) >= n)
      return Status(Code::invalid,
                    cat("cut ", c, " is at node ", cuts[c], ", expected a node from 1 to ", n - 1));
    if (cuts[c] <= starts.back())
      return Status(Code::invalid,
                    cat("cut ", c, " is at node ", cuts[c], ", expected one after that of cut ",
                        c - 1, ", node ", starts.back()));
    starts.push_back(cuts[c]);
  }
  return cut(nodes, std::move(starts));
}

Result<Partition> partition_uniform(const NodeCosts& nodes, int32_t stages,
                                    std::span<const int32_t> block_starts) {
  WEFT_TRY(check_nodes(nodes));
  const size_t n = nodes.cost.size();
  for (size_t b = 0; b < block_starts.size(); ++b) {
    const bool follows = b == 0 ? block_starts[b] == 0 : block_starts[b] > block_starts[b - 1];
    if (!follows || static_cast<size_t>(block_starts[b]) >= n)
      return Status(Code::invalid,
                    cat("block ", b, " begins at node ", block_starts[b],
                        ", expected blocks to ascend from node 0 among ", n, " nodes"));
  }
  const size_t blocks = block_starts.empty() ? n : block_starts.size();
  WEFT_TRY(check_stages(stages, blocks, block_starts.empty() ? "nodes" : "blocks"));
  const size_t each = blocks / static_cast<size_t>(stages),
               left = blocks % static_cast<size_t>(stages);
  std::vector<int32_t> starts;
  for (size_t s = 0; s < static_cast<size_t>(stages); ++s) {
    const size_t block = s * each + std::min(s, left);
    starts.push_back(block_starts.empty() ? static_cast<int32_t>(block) : block_starts[block]);
  }
  return cut(nodes, std::move(starts));
}

}  // namespace weft
