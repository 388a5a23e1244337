#include "ops/problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "api/user_op.h"
#include "base/rng.h"
#include "support/low_rank_op.h"

namespace weft::test {

namespace {

// Normal numbers, none near 0: a step of the differences never crosses the corner of relu.
Bytes random_floats(int64_t count, uint64_t purpose, bool positive = false) {
  const Stream stream = Stream::data(7, purpose);
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(stream.normal(i)[0]);
    if (std::fabs(x[i]) < 0.01f) x[i] = std::copysign(0.01f, x[i]);
    if (positive) x[i] = 0.5f + std::fabs(x[i]);
  }
  Bytes out(x.size() * sizeof(float));
  if (!x.empty()) std::memcpy(out.data(), x.data(), out.size());
  return out;
}

Bytes bytes_of(const std::vector<int32_t>& x) {
  Bytes out(x.size() * sizeof(int32_t));
  std::memcpy(out.data(), x.data(), out.size());
  return out;
}

Bytes random_ints(int64_t count, int32_t low, int32_t high, uint64_t purpose) {
  const Stream stream = Stream::data(7, purpose);
  std::vector<int32_t> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = low + static_cast<int32_t>(stream.below(i, static_cast<uint64_t>(high - low)));
  return bytes_of(x);
}

const Op* user_op() {
  static const auto op = api::make_user_op(low_rank_op(), nullptr).take();
  return op.get();
}

}  // namespace

std::vector<const Op*> tested_ops() {
  std::vector<const Op*> out(all_ops().begin(), all_ops().end());
  out.push_back(&cross_entropy_part_op());
  out.push_back(&cross_entropy_of_parts_op());
  out.push_back(user_op());
  return out;
}

const Op* find_tested_op(const std::string& name) {
  for (const Op* op : tested_ops())
    if (op->name() == name) return op;
  return nullptr;
}

Problem problem_of(const OpCase& c) {
  Problem p{.op = find_tested_op(c.op),
            .attrs = c.attrs,
            .in = c.in,
            .weights = c.weights,
            .training = c.training};
  if (!p.op) {
    ADD_FAILURE() << "no op '" << c.op << "'";
    return p;
  }
  auto inferred = p.op->infer(p.attrs, p.in, p.weights);
  if (!inferred.ok()) {
    ADD_FAILURE() << inferred.status().text();
    p.op = nullptr;
    return p;
  }
  p.inferred = inferred.take();
  uint64_t purpose = 0;
  auto given = c.ints.begin();
  for (const Operand& in : p.in) {
    ++purpose;
    if (in.desc.dtype != DType::i32)
      p.in_data.push_back(random_floats(in.desc.elements(), purpose, c.positive));
    else if (given != c.ints.end())
      p.in_data.push_back(bytes_of(*given++));
    else
      p.in_data.push_back(random_ints(in.desc.elements(), c.low, c.high, purpose));
  }
  for (const Desc& desc : p.weights) {
    p.weight_data.push_back(random_floats(desc.elements(), ++purpose));
    p.acc.push_back(random_floats(desc.elements(), ++purpose));
  }
  if (!p.op->is_loss()) p.dout = random_floats(p.inferred.out.elements(), ++purpose);
  return p;
}

}  // namespace weft::test
