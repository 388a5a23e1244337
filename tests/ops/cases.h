// The cases of the op suite: one row each. A new op joins with a row in cases.cc and a plain
// forward in reference.cc.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "ops/op.h"

namespace weft::test {

struct OpCase {
  std::string name;  // "<op>/<what is special about it>"
  std::string op;
  Attrs attrs{};
  std::vector<Operand> in{};
  std::vector<Desc> weights{};
  double tolerance = 1e-5;    // of max(1, |value|), for values and gradients alike
  int32_t low = 0, high = 0;  // i32 inputs are drawn from [low, high)
  bool training = true;
  bool positive = false;                        // f32 inputs are 0.5 or more
  std::vector<std::vector<int32_t>> ints = {};  // the i32 inputs, in order; empty: they are drawn
};

// An op refuses these operands; the error contains `says`.
struct BadCase {
  std::string op;
  Attrs attrs{};
  std::vector<Operand> in{};
  std::vector<Desc> weights{};
  std::string says{};
};

// How GoogleTest names a row in a failure.
inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

inline Operand floats(Shape shape) { return {{DType::f32, shape}, false}; }
inline Operand batch(Shape shape) { return {{DType::f32, shape}, true}; }
inline Operand ints(Shape shape) { return {{DType::i32, shape}, false}; }
inline Operand int_batch(Shape shape) { return {{DType::i32, shape}, true}; }
inline Desc weight(Shape shape) { return {DType::f32, shape}; }

std::vector<OpCase> op_cases();
// The part of them in attention_cases.cc.
std::vector<OpCase> attention_cases();
// The part of them in image_cases.cc: ops that move a window over rows or images.
std::vector<OpCase> image_cases();
std::vector<BadCase> bad_cases();

}  // namespace weft::test
