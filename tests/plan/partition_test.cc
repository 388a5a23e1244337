// Partitions at given cuts and into equal numbers of nodes: faults and known answers.
#include "partition/partition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft {
namespace {

using Ints = std::vector<int32_t>;
using Costs = std::vector<double>;

std::string fault_of(const Result<Partition>& partition) {
  EXPECT_FALSE(partition.ok());
  if (partition.ok()) return "";
  EXPECT_EQ(partition.status().code(), Code::invalid);
  return partition.status().text();
}

Ints starts_of(const Result<Partition>& partition) {
  EXPECT_TRUE(partition.ok()) << partition.status().text();
  return partition.ok() ? partition.value().first_node : Ints();
}

TEST(PartitionAt, CutsWhereToldAndSums) {
  const Costs cost = {1, 2, 3, 4, 5};
  const std::vector<NodeEdge> edges = {{0, 1}, {1, 2}, {0, 4}};
  const Result<Partition> partition = partition_at({cost, edges}, Ints{1, 4});
  ASSERT_TRUE(partition.ok()) << partition.status().text();
  EXPECT_EQ(partition.value().stages(), 3);
  EXPECT_EQ(partition.value().stage_of_node, (Ints{0, 1, 1, 1, 2}));
  EXPECT_EQ(partition.value().first_node, (Ints{0, 1, 4}));
  EXPECT_EQ(partition.value().cost, (Costs{1, 9, 5}));
  EXPECT_EQ(starts_of(partition_at({cost, {}}, {})), (Ints{0}));
}

TEST(PartitionAt, FaultsNameTheCut) {
  const Costs cost = {1, 2, 3, 4};
  EXPECT_EQ(fault_of(partition_at({cost, {}}, Ints{2, 4})),
            "cut 1 is at node 4, expected a node from 1 to 3");
  EXPECT_EQ(fault_of(partition_at({cost, {}}, Ints{0})),
            "cut 0 is at node 0, expected a node from 1 to 3");
  EXPECT_EQ(fault_of(partition_at({cost, {}}, Ints{-5})),
            "cut 0 is at node -5, expected a node from 1 to 3");
  EXPECT_EQ(fault_of(partition_at({cost, {}}, Ints{1, 3, 3})),
            "cut 2 is at node 3, expected one after that of cut 1, node 3");
  EXPECT_EQ(fault_of(partition_at({cost, {}}, Ints{3, 2})),
            "cut 1 is at node 2, expected one after that of cut 0, node 3");
  EXPECT_EQ(fault_of(partition_at({}, {})), "a stage needs at least one node, found 0");
}

TEST(PartitionNodes, FaultsNameNodeAndEdge) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto fault = [](const Costs& cost, const std::vector<NodeEdge>& edges) {
    const std::string text = fault_of(partition_uniform({cost, edges}, 1));
    EXPECT_EQ(fault_of(partition_at({cost, edges}, {})), text);
    return text;
  };
  EXPECT_EQ(fault({1, -0.5}, {}), "node 1 costs -0.5, expected a finite number, 0 or more");
  EXPECT_EQ(fault({std::nan(""), 1}, {}), "node 0 costs nan, expected a finite number, 0 or more");
  EXPECT_EQ(fault({1, inf}, {}), "node 1 costs inf, expected a finite number, 0 or more");
  EXPECT_EQ(fault({1e308, 1e308}, {}),
            "the costs of 2 nodes sum to infinity, expected a finite sum");
  EXPECT_EQ(fault({1, 1}, {{0, 1}, {0, 2}}), "edge 1 (node 0 to 2): there are 2 nodes");
  EXPECT_EQ(fault({1, 1}, {{-1, 1}}), "edge 0 (node -1 to 1): there are 2 nodes");
  EXPECT_EQ(fault({1, 1}, {{1, 0}}),
            "edge 0 (node 1 to 0): expected nodes in topological order, so that edges ascend");
  EXPECT_EQ(fault({1, 1}, {{1, 1}}),
            "edge 0 (node 1 to 1): expected nodes in topological order, so that edges ascend");
}

TEST(PartitionStages, ImpossibleNumbersAreNamed) {
  const Costs cost = {1, 2, 3};
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, 4)),
            "4 stages need at least as many nodes, found 3");
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, 3, Ints{0, 2})),
            "3 stages need at least as many blocks, found 2");
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, 0)), "stages is 0, expected 1 or more");
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, -1)), "stages is -1, expected 1 or more");
  EXPECT_EQ(fault_of(partition_uniform({}, 1)), "1 stages need at least as many nodes, found 0");
}

TEST(PartitionUniform, SpreadsWhatIsLeftOverTheFirst) {
  const Costs cost(10, 1.0);
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 1)), (Ints{0}));
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 5)), (Ints{0, 2, 4, 6, 8}));
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 4)), (Ints{0, 3, 6, 8}));
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 10)), (Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(PartitionUniform, CountsBlocks) {
  const Costs cost(10, 1.0);
  const Ints blocks = {0, 1, 4, 7, 8};
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 2, blocks)), (Ints{0, 7}));
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 3, blocks)), (Ints{0, 4, 8}));
  EXPECT_EQ(starts_of(partition_uniform({cost, {}}, 5, blocks)), blocks);
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, 1, Ints{1, 4})),
            "block 0 begins at node 1, expected blocks to ascend from node 0 among 10 nodes");
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, 1, Ints{0, 4, 4})),
            "block 2 begins at node 4, expected blocks to ascend from node 0 among 10 nodes");
  EXPECT_EQ(fault_of(partition_uniform({cost, {}}, 1, Ints{0, 10})),
            "block 1 begins at node 10, expected blocks to ascend from node 0 among 10 nodes");
}

}  // namespace
}  // namespace weft
