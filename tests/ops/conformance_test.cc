// Every op keeps the promises of ops/op.h, shown on each row of cases.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/packed.h"
#include "kernels/packed_elements.h"
#include "ops/cases.h"
#include "ops/problem.h"
#include "ops/reference.h"
#include "ops/runner.h"
#include "support/threaded_tiles.h"

namespace weft::test {
namespace {

RefCall reference_of(const Problem& p) {
  RefCall c{.op = std::string(p.op->name()),
            .attrs = p.attrs,
            .in = {},
            .weights = {},
            .key = p.key,
            .training = p.training};
  for (size_t i = 0; i < p.in.size(); ++i)
    c.in.push_back({p.in[i].desc.shape, numbers(p.in_data[i], p.in[i].desc.dtype)});
  for (size_t i = 0; i < p.weights.size(); ++i)
    c.weights.push_back({p.weights[i].shape, numbers(p.weight_data[i], DType::f32)});
  return c;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - expected[i]), tolerance * std::max(1.0, std::fabs(expected[i])))
        << what << ", element " << i << ": got " << got[i] << ", expected " << expected[i];
}

void expect_same_bits(const Results& a, const Results& b) {
  EXPECT_EQ(b.error, "");
  EXPECT_TRUE(a.out == b.out) << "out differs";
  EXPECT_TRUE(a.stash == b.stash) << "stash differs";
  EXPECT_TRUE(a.din == b.din) << "an input gradient differs";
  EXPECT_TRUE(a.acc == b.acc) << "a weight gradient differs";
}

class OpTest : public testing::TestWithParam<OpCase> {};

// Forward against the plain one; I and W against central differences of the plain one.
class Differences {
 public:
  Differences(const OpCase& c, const Problem& p)
      : tolerance_(c.tolerance), p_(p), call_(reference_of(p)), forward_(find_reference(c.op)) {
    dout_ = p.dout.empty() ? std::vector<double>{1 / p.denominator} : numbers(p.dout, DType::f32);
  }

  void check_out(const Results& r) {
    expect_near(numbers(r.out, p_.inferred.out.dtype), forward_(call_), tolerance_, "out");
  }

  // `got` is what weft says of `tensor`; `before` is what was there to add to.
  void check_gradient(RefTensor& tensor, const std::vector<double>& got,
                      const std::vector<double>& before, const std::string& what) {
    ASSERT_EQ(got.size(), tensor.v.size()) << what;
    // All of a small tensor, a few of a large one.
    const size_t step = got.size() <= 256 ? 1 : (got.size() / 5) | 1;
    for (size_t i = 0; i < got.size(); i += step) {
      const double expected = before[i] + slope(tensor.v[i]);
      ASSERT_LE(std::fabs(got[i] - expected), tolerance_ * std::max(1.0, std::fabs(expected)))
          << what << ", element " << i << ": got " << got[i] << ", expected " << expected;
    }
  }

  RefCall& call() { return call_; }

 private:
  double objective() {
    const std::vector<double> out = forward_(call_);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += dout_[i] * out[i];
    return sum;
  }
  double slope(double& x) {
    const double old = x, h = 1e-4;
    x = old + h;
    const double above = objective();
    x = old - h;
    const double below = objective();
    x = old;
    return (above - below) / (2 * h);
  }

  double tolerance_;
  const Problem& p_;
  RefCall call_;
  RefForward forward_;
  std::vector<double> dout_;
};

TEST_P(OpTest, AgreesWithThePlainForwardAndItsDifferences) {
  const Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  ASSERT_TRUE(find_reference(GetParam().op))
      << "reference.cc has no forward for '" << GetParam().op << "'";
  const Results r = run(p, {});
  ASSERT_EQ(r.error, "");
  Differences differences(GetParam(), p);
  differences.check_out(r);
  for (size_t i = 0; i < p.in.size(); ++i)
    if (has_gradient(p, i)) {
      const std::vector<double> got = numbers(r.din[i], DType::f32);
      differences.check_gradient(differences.call().in[i], got, std::vector<double>(got.size()),
                                 "gradient of input " + std::to_string(i));
    }
  // golden_test.cc compares what moving averages add.
  for (size_t i = 0; i < p.weights.size(); ++i) {
    if (p.op->average(p.attrs, static_cast<int>(i)) > 0) continue;
    differences.check_gradient(differences.call().weights[i], numbers(r.acc[i], DType::f32),
                               numbers(p.acc[i], DType::f32),
                               "gradient of weight " + std::to_string(i));
  }
}

TEST_P(OpTest, HasTheSameBitsForAnyThreadsAddressesAndMemoryBefore) {
  const Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  const Results plain = run(p, {});
  ASSERT_EQ(plain.error, "");
  ThreadedTiles threads(4);
  {
    SCOPED_TRACE("four threads");
    expect_same_bits(plain, run(p, {.tiles = &threads}));
  }
  for (size_t shift : {4, 12, 60}) {
    SCOPED_TRACE("shifted by " + std::to_string(shift));
    expect_same_bits(plain, run(p, {.shift = shift}));
  }
  SCOPED_TRACE("other contents before");
  expect_same_bits(plain, run(p, {.before = std::byte{0}}));
}

TEST_P(OpTest, ReadsOnlyWhatItSaysThatItUses) {
  const Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  const Results plain = run(p, {});
  {
    SCOPED_TRACE("poisoned");
    expect_same_bits(plain, run(p, {.unnamed = Unnamed::poisoned}));
  }
  if (HasFailure()) return;  // it would read from null
  SCOPED_TRACE("missing");
  expect_same_bits(plain, run(p, {.unnamed = Unnamed::missing}));
}

TEST_P(OpTest, BeginsASumAsIfItAddedToZeros) {
  Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  for (Bytes& acc : p.acc) std::fill(acc.begin(), acc.end(), std::byte{0});
  expect_same_bits(run(p, {}), run(p, {.begins_sum = true}));
}

// A weight in bf16, and the same numbers as float32.
TEST_P(OpTest, CopiesAWeightInBf16Exactly) {
  Problem halves = problem_of(GetParam());
  ASSERT_TRUE(halves.op);
  if (!halves.op->copies_weight()) return;
  Problem floats = halves;
  Desc& desc = halves.weights[0];
  desc.dtype = DType::bf16;
  Bytes rounded(desc.bytes());
  auto* from = reinterpret_cast<const float*>(floats.weight_data[0].data());
  kernels::to_bf16(from, reinterpret_cast<kernels::Bf16*>(rounded.data()), desc.elements());
  halves.weight_data[0] = rounded;
  kernels::from_bf16(reinterpret_cast<const kernels::Bf16*>(rounded.data()),
                     reinterpret_cast<float*>(floats.weight_data[0].data()), desc.elements());
  expect_same_bits(run_forward(floats, {}), run_forward(halves, {}));
}

TEST_P(OpTest, CopiesAPackedWeightExactly) {
  const Problem plain = problem_of(GetParam());
  ASSERT_TRUE(plain.op);
  if (!plain.op->copies_weight()) return;
  const Shape& shape = plain.weights[0].shape;
  const auto* values = reinterpret_cast<const float*>(plain.weight_data[0].data());
  for (const bool transposed : {false, true}) {
    const int64_t k = shape[transposed ? 1 : 0], n = shape[transposed ? 0 : 1];
    std::vector<float> memory(static_cast<size_t>(packed_floats(k, n)));
    Problem packed = plain;
    packed.stored = {DType::f32, k, n, transposed, memory.data()};
    kernels::write_packed(packed.stored, 0, {values, static_cast<size_t>(k * n)});
    expect_same_bits(run_forward(plain, {}), run_forward(packed, {}));
  }
}

void round_to_bf16(Bytes& floats) {
  auto* const x = reinterpret_cast<float*>(floats.data());
  const auto n = static_cast<int64_t>(floats.size() / sizeof(float));
  std::vector<kernels::Bf16> rounded(static_cast<size_t>(n));
  kernels::to_bf16(x, rounded.data(), n);
  kernels::from_bf16(rounded.data(), x, n);
}

TEST_P(OpTest, SumsBf16AsItSumsFloats) {
  Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  if (!p.op->sums_bf16()) return;
  for (size_t i = 0; i < p.in.size(); ++i)
    if (p.in[i].desc.dtype == DType::f32) round_to_bf16(p.in_data[i]);
  round_to_bf16(p.dout);
  expect_same_bits(run(p, {}), run(p, {.bf16 = true}));
}

// Rows [first, first + count) of the operands, as Op::by_rows() says. `dims`: those of rows.
Problem some_rows(const Problem& whole, int dims, int64_t first, int64_t count) {
  const auto cut = [&](Desc desc, Bytes content, Desc* out) {
    Shape shape{count};
    for (int i = dims; i < desc.shape.rank; ++i) shape[shape.rank++] = desc.shape[i];
    const size_t row = Desc{desc.dtype, shape}.bytes() / static_cast<size_t>(count);
    const auto begin = content.begin() + first * static_cast<int64_t>(row);
    if (out) *out = {desc.dtype, shape};
    return Bytes(begin, begin + count * static_cast<int64_t>(row));
  };
  Problem p = whole;
  for (size_t i = 0; i < p.in.size(); ++i)
    p.in_data[i] = cut(whole.in[i].desc, whole.in_data[i], &p.in[i].desc);
  if (!p.dout.empty()) p.dout = cut(whole.inferred.out, whole.dout, nullptr);
  p.inferred = p.op->infer(p.attrs, p.in, p.weights).take();
  return p;
}

TEST_P(OpTest, ComputesRowsApartIfItSaysSo) {
  const Problem whole = problem_of(GetParam());
  ASSERT_TRUE(whole.op);
  std::vector<Desc> in;
  for (const Operand& operand : whole.in) in.push_back(operand.desc);
  if (!whole.op->by_rows(whole.attrs, in, whole.weights)) return;
  const int dims = std::max(0, in[0].shape.rank - 1);
  const int64_t rows = in[0].shape.elements(0, dims);
  Results all = run(whole, {}), parts;
  ASSERT_EQ(all.error, "");
  parts.din.resize(all.din.size());
  parts.stash.resize(all.stash.size());
  const auto append = [](Bytes& to, const Bytes& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  const int64_t block = std::max<int64_t>(1, rows / 3);
  for (int64_t first = 0; first < rows; first += block) {
    const Results part = run(some_rows(whole, dims, first, std::min(block, rows - first)), {});
    ASSERT_EQ(part.error, "");
    append(parts.out, part.out);
    for (size_t i = 0; i < part.din.size(); ++i) append(parts.din[i], part.din[i]);
    for (size_t i = 0; i < part.stash.size(); ++i) append(parts.stash[i], part.stash[i]);
  }
  all.acc.clear();
  if (whole.op->is_loss()) parts.out = all.out;
  expect_same_bits(all, parts);
}

TEST_P(OpTest, MakesEachInputGradientAlone) {
  const Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  const Results plain = run(p, {});
  for (size_t i = 0; i < p.in.size(); ++i) {
    if (!has_gradient(p, i)) continue;
    const Results one = run(p, {.only_din = static_cast<int>(i)});
    EXPECT_EQ(one.error, "");
    for (size_t j = 0; j < p.in.size(); ++j)
      EXPECT_TRUE(one.din[j] == (i == j ? plain.din[j] : Bytes()))
          << "input " << i << ", gradient " << j;
  }
}

// Only the first half of the samples gives the first half of the output.
TEST_P(OpTest, KeepsSamplesApart) {
  OpCase c = GetParam();
  const bool batched =
      std::any_of(c.in.begin(), c.in.end(), [](const Operand& in) { return in.batched; });
  const Problem whole = problem_of(c);
  ASSERT_TRUE(whole.op);
  const bool averages =
      !c.weights.empty() && whole.op->average(c.attrs, static_cast<int>(c.weights.size()) - 1) > 0;
  if (!batched || whole.op->is_loss() || (averages && c.training)) return;
  Problem half = whole;
  for (size_t i = 0; i < half.in.size(); ++i) {
    if (!half.in[i].batched) continue;
    half.in[i].desc.shape[0] /= 2;
    half.in_data[i].resize(half.in[i].desc.bytes());
  }
  auto inferred = half.op->infer(half.attrs, half.in, half.weights);
  ASSERT_TRUE(inferred.ok()) << inferred.status().text();
  half.inferred = inferred.take();
  const Results all = run_forward(whole, {}), part = run_forward(half, {});
  ASSERT_EQ(part.error, "");
  std::vector<double> expected = numbers(all.out, DType::f32);
  expected.resize(part.out.size() / sizeof(float));
  ASSERT_GT(expected.size(), 0u);
  expect_near(numbers(part.out, DType::f32), expected, 1e-6, "out");
}

TEST_P(OpTest, CostsSomethingKnown) {
  const Problem p = problem_of(GetParam());
  ASSERT_TRUE(p.op);
  std::vector<Desc> in;
  for (const Operand& operand : p.in) in.push_back(operand.desc);
  const Cost cost = p.op->cost(p.attrs, in, p.weights, p.inferred.out);
  for (double flops : {cost.forward_flops, cost.input_flops, cost.weight_flops})
    EXPECT_TRUE(std::isfinite(flops) && flops >= 0) << flops;
  if (p.op->is_loss()) {
    EXPECT_EQ(p.inferred.out, (Desc{DType::f64, {1}}));
    EXPECT_FALSE(p.op->differentiable(p.op->target_port()));
  }
}

std::string test_name(const testing::TestParamInfo<OpCase>& info) {
  std::string out = info.param.name;
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return out;
}
INSTANTIATE_TEST_SUITE_P(Cases, OpTest, testing::ValuesIn(op_cases()), test_name);

TEST(Ops, EachHasARowHereAndOneThatItRefuses) {
  std::set<std::string> rows, refusals;
  for (const OpCase& c : op_cases()) rows.insert(c.op);
  for (const BadCase& c : bad_cases()) refusals.insert(c.op);
  for (const Op* op : tested_ops()) {
    EXPECT_TRUE(rows.contains(std::string(op->name())))
        << op->name() << " has no row in op_cases()";
    EXPECT_TRUE(refusals.contains(std::string(op->name())))
        << op->name() << " has no row in bad_cases()";
  }
}

TEST(Ops, EachIsCutIntoTilesWhenLarge) {
  for (const Op* op : tested_ops()) {
    ThreadedTiles threads(2);
    // Of a user op, only the sum of the gradients of parameters is weft's.
    for (const OpCase& c : op_cases())
      if (c.op == op->name())
        (op->of_caller() ? run : run_forward)(problem_of(c), {.tiles = &threads});
    EXPECT_GT(threads.most, 1) << op->name() << " has no case that is cut into tiles";
  }
}

TEST(Ops, RefuseWrongOperandsByName) {
  for (const BadCase& c : bad_cases()) {
    const Op* op = find_tested_op(c.op);
    ASSERT_TRUE(op) << c.op;
    const auto inferred = op->infer(c.attrs, c.in, c.weights);
    ASSERT_FALSE(inferred.ok()) << c.op << " takes what should be refused with '" << c.says << "'";
    EXPECT_EQ(inferred.status().code(), Code::invalid);
    EXPECT_NE(inferred.status().text().find(c.says), std::string::npos)
        << c.op << " says '" << inferred.status().text() << "', expected '" << c.says << "'";
  }
}

// Indices are only known when the op runs.
TEST(Ops, RefuseIndicesOutOfRange) {
  for (const char* name : {"softmax_cross_entropy/large", "embedding/plain",
                           "embedding/piece of a table", "cross_entropy_part/large", "gather/rows"})
    for (OpCase c : op_cases())
      if (c.name == name) {
        const int32_t bound = c.high;
        c.low = c.high++;
        EXPECT_NE(run_forward(problem_of(c), {}).error.find(std::to_string(bound)),
                  std::string::npos)
            << name;
        c.low = -7;
        c.high = -6;
        const std::string error = run_forward(problem_of(c), {}).error;
        EXPECT_NE(error.find("-7"), std::string::npos) << name << " says '" << error << "'";
      }
}

TEST(Ops, CountWhatALossIsDividedBy) {
  std::vector<int32_t> targets = {3, -1, 0, -1, -100};  // the last is refused when it is read
  const View view{targets.data(), {DType::i32, {5}}};
  EXPECT_EQ(find_op("softmax_cross_entropy")->count(view), 3);
  EXPECT_EQ(cross_entropy_of_parts_op().count(view), 3);
  std::vector<float> values(6);
  EXPECT_EQ(find_op("sum_loss")->count({values.data(), {DType::f32, {2, 3}}}), 2);
  EXPECT_EQ(find_op("binary_cross_entropy")->count({values.data(), {DType::f32, {2, 3}}}), 6);
  EXPECT_EQ(find_op("mse")->count({values.data(), {DType::f32, {2, 3}}}), 6);
}

TEST(Attention, CostsNothingWithoutRows) {
  const Desc packed{DType::f32, {2, 0, 45}}, out{DType::f32, {2, 0, 15}};
  const Cost cost =
      find_op("attention")->cost({.heads = 3, .flags = kCausal}, {&packed, 1}, {}, out);
  EXPECT_EQ(cost.forward_flops, 0);
  EXPECT_EQ(cost.input_flops, 0);
}

TEST(Dropout, DropsItsShareAndFollowsItsKey) {
  const OpCase c{.name = "",
                 .op = "dropout",
                 .attrs = {.factor = 0.3},
                 .in = {{{DType::f32, {40000}}, true}},
                 .weights = {}};
  Problem p = problem_of(c);
  const auto kept = [&] {
    std::vector<bool> out;
    for (double v : numbers(run_forward(p, {}).out, DType::f32)) out.push_back(v != 0);
    return out;
  };
  const std::vector<bool> first = kept();
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), true)) / 40000, 0.7, 0.01);
  EXPECT_EQ(first, kept());
  for (auto change :
       {+[](CallKey& key) { ++key.seed; }, +[](CallKey& key) { ++key.step; },
        +[](CallKey& key) { ++key.micro_batch; }, +[](CallKey& key) { ++key.node; }}) {
    p.key = {.seed = 11, .step = 3, .micro_batch = 2, .node = 5};
    change(p.key);
    EXPECT_NE(first, kept());
  }
}

}  // namespace
}  // namespace weft::test
