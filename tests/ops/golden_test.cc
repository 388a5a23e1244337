// Every op against values and gradients of an independent framework (tests/data/make_op_values.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/runner.h"
#include "test_data.h"

namespace weft::test {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-5;  // of max(1, |value|)

const json& rows() {
  static const json table = json::parse(std::ifstream(WEFT_TEST_DATA "/op_values.json"));
  return table;
}

Shape shape_of(const json& dims) { return Shape(dims.get<std::vector<int64_t>>()); }

template <typename T>
Bytes bytes_of(const json& values) {
  const auto x = values.get<std::vector<T>>();
  Bytes out(x.size() * sizeof(T));
  if (!x.empty()) std::memcpy(out.data(), x.data(), out.size());
  return out;
}

Desc desc_of(const json& tensor) {
  return {tensor["dtype"] == "i32" ? DType::i32 : DType::f32, shape_of(tensor["shape"])};
}
Bytes data_of(const json& tensor) {
  return tensor["dtype"] == "i32" ? bytes_of<int32_t>(tensor["data"])
                                  : bytes_of<float>(tensor["data"]);
}

Problem problem_of(const json& row) {
  Problem p{.op = find_op(row["op"].get<std::string>())};
  const json& attrs = row["attrs"];
  p.attrs.axis = attrs.value("axis", 0);
  p.attrs.heads = attrs.value("heads", 0);
  p.attrs.flags = attrs.value("flags", 0u);
  p.attrs.begin = attrs.value("begin", int64_t{0});
  p.attrs.end = attrs.value("end", int64_t{0});
  p.attrs.factor = attrs.value("factor", 0.0);
  p.attrs.cap = attrs.value("cap", 0.0);
  p.attrs.momentum = attrs.value("momentum", 0.0);
  p.attrs.frequencies = attrs.value("frequencies", std::vector<float>());
  if (attrs.contains("dims")) p.attrs.dims = shape_of(attrs["dims"]);
  for (const json& tensor : row["in"]) {
    p.in.push_back({desc_of(tensor), true});
    p.in_data.push_back(data_of(tensor));
  }
  for (const json& tensor : row["weights"]) {
    p.weights.push_back(desc_of(tensor));
    p.weight_data.push_back(data_of(tensor));
    p.acc.push_back(Bytes(p.weights.back().bytes(), std::byte{0}));
  }
  if (row.contains("dout")) p.dout = bytes_of<float>(row["dout"]);
  p.denominator = row.value("denominator", 1.0);
  return p;
}

void expect_near(const std::vector<double>& got, const json& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = expected[i];
    ASSERT_LE(std::fabs(got[i] - value), kTolerance * std::max(1.0, std::fabs(value)))
        << what << ", element " << i << ": got " << got[i] << ", expected " << value;
  }
}

class GoldenOp : public testing::TestWithParam<size_t> {};

TEST_P(GoldenOp, AgreesInValuesAndGradients) {
  const json& row = rows()[GetParam()];
  SCOPED_TRACE(row["name"].get<std::string>());
  Problem p = problem_of(row);
  ASSERT_TRUE(p.op);
  auto inferred = p.op->infer(p.attrs, p.in, p.weights);
  ASSERT_TRUE(inferred.ok()) << inferred.status().text();
  p.inferred = inferred.take();
  const Results r = run(p, {});
  ASSERT_EQ(r.error, "");
  expect_near(numbers(r.out, p.inferred.out.dtype), row["out"], "out");
  for (size_t i = 0; i < p.in.size(); ++i)
    if (has_gradient(p, i))
      expect_near(numbers(r.din[i], DType::f32), row["din"][i],
                  "gradient of input " + std::to_string(i));
  for (size_t i = 0; i < p.weights.size(); ++i)
    expect_near(numbers(r.acc[i], DType::f32), row["dweights"][i],
                "gradient of weight " + std::to_string(i));
}

INSTANTIATE_TEST_SUITE_P(Rows, GoldenOp, testing::Range(size_t{0}, rows().size()));

// No other framework makes the mask of dropout. unit/cached_attention_test.cc compares that op with
// attention.
TEST(Golden, CoversEachOpButTwo) {
  std::set<std::string> seen;
  for (const json& row : rows()) seen.insert(row["op"].get<std::string>());
  for (const Op* op : all_ops())
    EXPECT_TRUE(seen.contains(std::string(op->name())) || op->name() == "dropout" ||
                op->name() == "cached_attention")
        << op->name();
}

}  // namespace
}  // namespace weft::test
