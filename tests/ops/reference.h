// What the ops mean: each forward written the plain way, in double. Gradients are found from it by
// differences.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"

namespace weft::test {

struct RefTensor {
  Shape shape;
  std::vector<double> v;
};

struct RefCall {
  std::string op;
  Attrs attrs;
  std::vector<RefTensor> in, weights;
  CallKey key;
  bool training = true;
};

using RefForward = std::vector<double> (*)(const RefCall&);

// Null: no such op.
RefForward find_reference(const std::string& op);

}  // namespace weft::test
