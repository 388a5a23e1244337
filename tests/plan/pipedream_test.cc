// PipeDream's partitioner against what it is known to find for the models that it was published
// with, and against every possible answer.
#include "partition/pipedream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "test_data.h"

namespace weft {
namespace {

// --- the graphs of its profiles
struct Layer {
  double time = 0, activation = 0, parameters = 0;
  std::string what;
  std::set<int> in, out;
};
using Graph = std::map<int, Layer>;

double field(const std::string& line, const std::string& name) {
  const size_t at = line.rfind(name + "=");
  EXPECT_NE(at, std::string::npos) << line;
  std::string text = line.substr(at + name.size() + 1);
  if (text[0] != '[') return std::stod(text);
  // Several outputs: the sum of [a; b; c].
  text = text.substr(1, text.find(']') - 1);
  std::replace(text.begin(), text.end(), ';', ' ');
  std::istringstream numbers(text);
  double sum = 0;
  for (double v; numbers >> v;) sum += v;
  return sum;
}

Graph read_graph(const std::string& name) {
  Graph graph;
  std::ifstream file(std::string(WEFT_TEST_DATA) + "/pipedream/" + name + ".txt");
  EXPECT_TRUE(file.good()) << name;
  for (std::string line; std::getline(file, line);) {
    const auto number = [](const std::string& text) {
      return std::stoi(text.substr(text.find("node") + 4));
    };
    const size_t dash = line.find(" -- ");
    if (dash == std::string::npos) continue;
    if (line[0] == '\t') {
      const int from = number(line), to = number(line.substr(dash));
      graph[from].out.insert(to);
      graph[to].in.insert(from);
    } else {
      Layer& layer = graph[number(line)];
      layer.time =
          (field(line, "forward_compute_time") + field(line, "backward_compute_time")) / 1000;
      layer.activation = field(line, "activation_size");
      layer.parameters = field(line, "parameter_size");
      layer.what = line.substr(dash + 4);
    }
  }
  // Inputs are on the first stage, whatever it is, and outputs that are not read do not exist.
  const auto erase = [&graph](int id) {
    for (int to : graph[id].out) graph[to].in.erase(id);
    for (int from : graph[id].in) graph[from].out.erase(id);
    graph.erase(id);
  };
  std::vector<int> gone;
  for (const auto& [id, layer] : graph)
    if ((layer.in.empty() && layer.what.starts_with("Input")) ||
        (layer.out.empty() && layer.what.starts_with("__getitem__")))
      gone.push_back(id);
  for (int id : gone) erase(id);
  return graph;
}

void add_ancestors(const Graph& graph, int id, std::set<int>& to) {
  if (!to.insert(id).second) return;
  for (int from : graph.at(id).in) add_ancestors(graph, from, to);
}

// From the first source on: a state grows by a successor of one of its nodes, with all that this
// one needs.
std::vector<ModelState> states_of(const Graph& graph) {
  std::set<std::set<int>> seen;
  std::vector<std::set<int>> found;
  int source = -1;
  for (const auto& [id, layer] : graph)
    if (layer.in.empty() && source < 0) source = id;
  found.push_back({source});
  seen.insert(found.front());
  for (size_t i = 0; i < found.size(); ++i)
    for (int id : std::set<int>(found[i]))
      for (int next : graph.at(id).out) {
        std::set<int> larger = found[i];
        add_ancestors(graph, next, larger);
        if (larger != found[i] && seen.insert(larger).second) found.push_back(larger);
      }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::vector<ModelState> states;
  for (size_t i = 0; i < found.size(); ++i) {
    ModelState state;
    for (int id : found[i]) {
      const Layer& layer = graph.at(id);
      state.time += layer.time;
      state.kept_bytes += layer.activation;
      state.param_bytes += layer.parameters;
      const bool inside =
          std::includes(found[i].begin(), found[i].end(), layer.out.begin(), layer.out.end());
      if (!inside || layer.out.empty()) state.output_bytes += layer.activation;
    }
    for (size_t b = 0; b < i; ++b)
      if (found[b].size() < found[i].size() &&
          std::includes(found[i].begin(), found[i].end(), found[b].begin(), found[b].end()))
        state.before.push_back(static_cast<int32_t>(b));
    states.push_back(state);
  }
  return states;
}

std::string text_of(const ReplicatedPlan& plan) {
  std::string out;
  for (const ReplicatedStage& stage : plan.stages)
    out += (out.empty() ? "" : "-") + std::to_string(stage.replicas);
  return out;
}

// On machines that are all replicas of the whole.
double data_parallel(const ModelState& whole, const ReplicaOptions& options) {
  const double sum = 4.0 * (options.machines - 1) * whole.param_bytes / options.machines;
  return (whole.time + sum / options.bandwidth) / options.machines;
}

struct Known {
  const char* model;
  int32_t machines;
  const char* replicas;
  double speedup, over_replicas;  // to two digits; 0: not known
};

class Published : public testing::TestWithParam<Known> {};

TEST_P(Published, ModelsAreCutAsPublished) {
  const Known& known = GetParam();
  const auto states = states_of(read_graph(known.model));
  const ReplicaOptions options{.machines = known.machines, .bandwidth = 1e9};
  const auto plan = partition_replicated(states, options);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_EQ(text_of(plan.value()), known.replicas);
  const auto digits = [](double v) { return std::round(v * 100) / 100; };
  if (known.speedup > 0) {
    EXPECT_EQ(digits(states.back().time / plan.value().time), known.speedup);
  }
  if (known.over_replicas > 0) {
    EXPECT_EQ(digits(data_parallel(states.back(), options) / plan.value().time),
              known.over_replicas);
  }
}

INSTANTIATE_TEST_SUITE_P(
    PipeDream, Published,
    testing::Values(Known{"vgg16", 4, "3-1", 3.27, 2.84}, Known{"alexnet", 4, "3-1", 2.49, 5.98},
                    Known{"resnet50", 4, "2-2", 2.72, 1.15}, Known{"gnmt", 4, "1-1-1-1", 3.46, 0},
                    Known{"vgg16", 16, "13-2-1", 0, 0}, Known{"alexnet", 16, "15-1", 0, 0},
                    Known{"resnet50", 16, "7-6-3", 0, 0}),
    [](const auto& test) {
      return std::string(test.param.model) + "_" + std::to_string(test.param.machines);
    });

// --- every possible answer
std::vector<ModelState> random_chain(std::mt19937& rng, size_t n) {
  std::vector<ModelState> states(n);
  for (size_t s = 0; s < n; ++s) {
    if (s > 0) states[s] = states[s - 1];
    states[s].time += static_cast<double>(rng() % 50);
    states[s].kept_bytes += static_cast<double>(rng() % 10);
    states[s].param_bytes += static_cast<double>(rng() % 40);
    states[s].output_bytes = static_cast<double>(rng() % 30);
  }
  return states;
}

// The time of the best way to put the states from `first` on onto so many machines, by trying them
// all.
double best_of_all(const std::vector<ModelState>& states, size_t first, int32_t machines,
                   double memory) {
  if (first == states.size()) return machines == 0 ? 0 : INFINITY;
  double best = INFINITY;
  for (size_t last = first; last < states.size(); ++last)
    for (int32_t r = 1; r <= machines; ++r) {
      const auto sum = [&](double ModelState::*what) {
        return states[last].*what - (first ? states[first - 1].*what : 0);
      };
      const double params = sum(&ModelState::param_bytes);
      // Machines behind this stage decide how many versions it keeps.
      if (memory > 0 && std::ceil(static_cast<double>(machines - r) / r) *
                                (sum(&ModelState::kept_bytes) + params) >
                            memory)
        continue;
      double time = (sum(&ModelState::time) + 4.0 * (r - 1) * params / r) / r;
      if (first > 0) time = std::max(time, 2 * states[first - 1].output_bytes / r);
      if (first > 0 && last + 1 < states.size())
        time = std::max(time, 2 * states[last].output_bytes / r);
      best = std::min(best, std::max(time, best_of_all(states, last + 1, machines - r, memory)));
    }
  return best;
}

TEST(PipeDream, IsTheBestOfAll) {
  std::mt19937 rng(5);
  for (int i = 0; i < 400; ++i) {
    const auto states = random_chain(rng, 1 + rng() % 6);
    const auto machines = static_cast<int32_t>(1 + rng() % 5);
    const double memory = rng() % 2 ? 0 : 20.0 + static_cast<double>(rng() % 100);
    const auto plan =
        partition_replicated(states, {.machines = machines, .bandwidth = 1, .memory = memory});
    const double best = best_of_all(states, 0, machines, memory);
    ASSERT_TRUE(plan.ok()) << "case " << i << ": "
                           << plan.status().text();  // replicas of the whole keep nothing
    EXPECT_DOUBLE_EQ(plan.value().time, best) << "case " << i;
    int32_t used = 0, next = 0;
    for (const ReplicatedStage& stage : plan.value().stages) {
      EXPECT_EQ(stage.first, next) << "case " << i;
      next = stage.last + 1;
      used += stage.replicas;
    }
    EXPECT_EQ(next, static_cast<int32_t>(states.size())) << "case " << i;
    EXPECT_EQ(used, machines) << "case " << i;
  }
}

TEST(PipeDream, StraightHasOneMachinePerStage) {
  const auto states = states_of(read_graph("vgg16"));
  const auto plan =
      partition_replicated(states, {.machines = 4, .bandwidth = 1e9, .straight = true});
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_EQ(text_of(plan.value()), "1-1-1-1");
}

TEST(PipeDream, FaultsAreNamed) {
  std::vector<ModelState> states(2);
  states[1].before = {0};
  const auto text = [&](const ReplicaOptions& options) {
    return partition_replicated(states, options).status().text();
  };
  EXPECT_EQ(text({.machines = 0, .bandwidth = 1}), "there are 0 machines, expected 1 to 4096");
  EXPECT_EQ(text({.machines = 1, .bandwidth = 0}), "the bandwidth is 0, expected more than 0");
  EXPECT_EQ(text({.machines = 3, .bandwidth = 1, .straight = true}),
            "no partition of 2 states fits the machines");
  states[1].before = {1};
  EXPECT_EQ(text({.machines = 2, .bandwidth = 1}),
            "state 1 contains state 1, expected one before it");
  states[1].time = -1;
  EXPECT_EQ(text({.machines = 2, .bandwidth = 1}),
            "state 1 has -1, expected finite numbers from 0");
}

}  // namespace
}  // namespace weft
