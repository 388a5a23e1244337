// Runs forward, I and W of one op on given operands, under conditions that must not affect the
// results.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ops/op.h"

namespace weft::test {

using Bytes = std::vector<std::byte>;

// The operands of a call, as numbers.
struct Problem {
  const Op* op = nullptr;
  Attrs attrs{};
  std::vector<Operand> in{};
  std::vector<Desc> weights{};
  Inferred inferred{};
  std::vector<Bytes> in_data{}, weight_data{};
  kernels::PackedMatrix stored{};  // weight 0, if its data are not null
  Bytes dout{};                    // empty for losses
  std::vector<Bytes> acc{};        // what the accumulators of the weights hold before W
  CallKey key{.seed = 11, .step = 3, .micro_batch = 2, .node = 5};
  bool training = true;
  double denominator = 7;
};

// A tensor that a call does not name.
enum class Unnamed { given, poisoned, missing };

struct Circumstances {
  Tiles* tiles = nullptr;  // null: the caller's thread
  size_t shift = 0;        // bytes that tensors lie after a 64-byte boundary (twice that for f64)
  Unnamed unnamed = Unnamed::given;
  std::byte before{
      0xff};          // what outputs and scratch hold before they are written; 0xff makes a NaN
  int only_din = -1;  // only I for this port
  bool begins_sum = false;  // W writes the sums that it can write
  bool bf16 = false;        // what sums over rows gets the inputs and dout so (Op::sums_bf16)
};

struct Results {
  std::string error;  // of the first call that failed
  Bytes out;
  std::vector<Bytes> stash, din, acc;  // din: empty if there is no gradient
};

Results run(const Problem& problem, const Circumstances& circumstances);
// Only forward.
Results run_forward(const Problem& problem, const Circumstances& circumstances);

// May input `port` receive a gradient?
bool has_gradient(const Problem& problem, size_t port);

// The numbers of a tensor, whatever its dtype.
std::vector<double> numbers(const Bytes& bytes, DType dtype);

}  // namespace weft::test
