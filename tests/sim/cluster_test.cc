// The reader of cluster files: what it makes of a good one, and what it says of a bad one.
#include "io/cluster.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr const char* kGood = R"({
  "weft_cluster": 1,
  "machines": [{"name": "a", "count": 2, "ranks": 4, "group": "east"}, {"name": "b", "ranks": 1, "speed": 0.5, "memory": 1000, "group": "west"}],
  "within": {"latency": 1e-6, "bandwidth": 1e10},
  "between": {"latency": 1e-4, "bandwidth": 1e9},
  "links": [{"between": ["east", "west"], "latency": 0.05, "bandwidth": 1e7}, {"between": ["a-1", "b"], "latency": 0.02}],
  "overhead": 2e-5
})";

TEST(Cluster, GivesRanksTheirMachines) {
  const auto read = parse_cluster(kGood);
  ASSERT_TRUE(read.ok()) << read.status().text();
  const Cluster& c = read.value();
  EXPECT_EQ(c.ranks(), 9);
  EXPECT_EQ(c.machine(0), "a-0");
  EXPECT_EQ(c.machine(3), "a-0");
  EXPECT_EQ(c.machine(4), "a-1");
  EXPECT_EQ(c.machine(8), "b");
  EXPECT_EQ(c.speed(7), 1);
  EXPECT_EQ(c.speed(8), 0.5);
  EXPECT_EQ(c.memory(0), 0);
  EXPECT_EQ(c.memory(8), 1000);
  EXPECT_EQ(c.overhead, 2e-5);
}

TEST(Cluster, TheLastLinkThatFitsCounts) {
  const auto read = parse_cluster(kGood);
  ASSERT_TRUE(read.ok()) << read.status().text();
  const Cluster& c = read.value();
  EXPECT_EQ(c.link(0, 3), (ClusterLink{1e-6, 1e10}));  // one machine
  EXPECT_EQ(c.link(3, 4), (ClusterLink{1e-4, 1e9}));   // two of one group
  EXPECT_EQ(c.link(0, 8), (ClusterLink{0.05, 1e7}));
  EXPECT_EQ(c.link(8, 0), (ClusterLink{0.05, 1e7}));
  EXPECT_EQ(c.link(5, 8), (ClusterLink{0.02, 1e9}));  // what it leaves out is as between machines
}

TEST(Cluster, NamesThatOnlyLookAlikeDiffer) {
  const auto read = parse_cluster(
      R"({"weft_cluster": 1, "machines": [{"name": "b-8"}, {"name": "b-01"}, {"name": "b-"}, {"name": "-0"},
      {"name": "b", "count": 8}, {"name": "b-9", "count": 2}]})");
  EXPECT_TRUE(read.ok()) << read.status().text();
}

// With a comparison per pair of names, and one per machine of a count, this would take hours.
TEST(Cluster, AMillionNamesAreFoundAtOnce) {
  constexpr int kNames = 100000;
  std::string text = R"({"weft_cluster": 1, "machines": [{"name": "many", "count": 900000})", links;
  for (int i = 0; i < kNames; ++i) {
    text += R"(, {"name": "one-)" + std::to_string(i) + "\"}";
    links += std::string(i ? "," : "") + R"({"between": ["one-)" + std::to_string(i) +
             R"(", "many-)" + std::to_string(899999 - i) + "\"]}";
  }
  const auto read = parse_cluster(text + R"(], "links": [)" + links + "]}");
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read.value().ranks(), 1000000);
  EXPECT_EQ(read.value().overrides.size(), static_cast<size_t>(kNames));
}

TEST(Cluster, SaysWhatIsWrong) {
  const auto with = [](const std::string& machines, const std::string& more = "") {
    return R"({"weft_cluster": 1, "machines": [)" + machines + "]" + more + "}";
  };
  const std::string one = R"({"name": "a"})";
  const std::pair<std::string, const char*> cases[] = {
      {"", "is empty, expected a JSON object"},
      {"{", "JSON"},
      {"[]", "object"},
      {R"({"machines": []})", "weft_cluster"},
      {R"({"weft_cluster": 2, "machines": []})",
       "weft_cluster is 2, this version of weft reads format 1"},
      {R"({"weft_cluster": 1})", "machines"},
      {with(""), "machines is empty"},
      {with("3"), "machines[0]: expected an object, found number"},
      {with(R"({"ranks": 1})"), "name"},
      {with(R"({"name": ""})"), "machines[0]: name is empty"},
      {with(one + ", " + one), "machines[1]: name 'a' is also in machines[0]"},
      {with(one + R"(, {"name": "b-1"}, {"name": "b", "count": 2})"),
       "machines[2]: name 'b' is also in machines[1]"},
      {with(R"({"name": "b", "count": 3}, {"name": "b-2"})"),
       "machines[1]: name 'b-2' is also in machines[0]"},
      {with(R"({"name": "b-10"}, {"name": "b-7"}, {"name": "b", "count": 8})"),
       "machines[2]: name 'b' is also in machines[1]"},
      {with(R"({"name": "a", "count": 1048576, "ranks": 2}, 3)"),
       "machines[0]: up to here there are 2097152 ranks"},
      {with(R"({"name": "b", "count": 3})", R"(, "links": [{"between": ["b-2", "b-3"]}])"),
       "'b-3' is not a machine"},
      {with(R"({"name": "b", "count": 3})", R"(, "links": [{"between": ["b-2", "b-02"]}])"),
       "'b-02' is not a machine"},
      {with(R"({"name": "b"})", R"(, "links": [{"between": ["b", "b-0"]}])"),
       "'b-0' is not a machine"},
      {with(one + R"(, {"name": "b", "ranks": 0})"),
       "machines[1]: ranks is 0, expected 1 to 1048576"},
      {with(R"({"name": "a", "count": 2000000})"), "count is 2000000"},
      {with(R"({"name": "a", "count": 1048576, "ranks": 2})"),
       "2097152 ranks, expected at most 1048576"},
      {with(R"({"name": "a", "speed": 0})"), "machines[0]: speed is 0, expected a number above 0"},
      {with(R"({"name": "a", "speed": -1})"), "speed"},
      {with(R"({"name": "a", "speed": "fast"})"), "speed"},
      {with(R"({"name": "a", "memory": 1.5})"), "memory"},
      {with(R"({"name": "a", "cores": 4})"), "cores"},
      {with(R"({"name": "a", "name": "b"})"), "duplicate key"},
      {with(one, R"(, "within": {"latency": -1})"), "latency"},
      {with(one, R"(, "within": {"delay": 1})"), "delay"},
      {with(one, R"(, "links": [{"between": ["a", "x"]}])"),
       "links[0]: 'x' is not a machine or a group of the file"},
      {with(one, R"(, "links": [{"between": ["", "a"]}])"),
       "links[0]: '' is not a machine or a group of the file"},
      {with(one, R"(, "links": [{"between": ["a"]}])"),
       "links[0]: between has 1 names, expected 2"},
      {with(one, R"(, "links": [{"latency": 1}])"), "between"},
      {with(one, R"(, "overhead": null)"), "overhead"},
      {with(one, R"(, "colour": 1)"), "colour"},
  };
  for (const auto& [text, expected] : cases) {
    const auto read = parse_cluster(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), Code::data) << text;
    EXPECT_NE(read.status().text().find(expected), std::string::npos) << text << "\n"
                                                                      << read.status().text();
  }
  EXPECT_NE(read_cluster("/nowhere/at/all.json").status().text().find("/nowhere/at/all.json"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
