// Provenance: the value of a tensor is a digest of its computation, hash(kernel, digests of its
// operands). Two runs with equal digests made the same kernel calls on the same values, so that
// partitions and schedules are compared without computing floats.
#pragma once

#include <span>

#include "base/hash.h"
#include "engine/messages.h"
#include "graph/step.h"

namespace weft::test {

// Digest as a number in [1, 2): sums of such numbers depend on their order, as sums of floats do.
double as_number(const Digest& digest);

// The digest of each kernel; the sequential reference and the workers share no other code.
struct Provenance {
  static Digest initial(const Param& param);
  static Digest cleared();
  // `operands` in canonical order: inputs, weights (not for W), output, stash, dout, acc; without
  // those that are not read.
  static Digest call(const Model& model, CallKind kind, NodeId node, int32_t weight,
                     const StepDescriptor& step, int32_t micro_batch,
                     std::span<const Digest> operands);
  static Digest result(const Digest& call, int32_t index);  // F: 0 output, 1.. stash; I: port
  static Digest add(const Digest& later, const Digest& earlier);
  static Digest mean(const Digest& sum, int32_t parts);
  static Digest join(NodeId first, std::span<const Digest> parts);
  static double square(const Digest& grad);
  static Digest update(const Digest& weight, const Digest& grad, const Digest& state, uint64_t step,
                       double scale);
  static Digest fed(NodeId input, const StepDescriptor& step, int32_t micro_batch);
};

}  // namespace weft::test
