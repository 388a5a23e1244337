// The messages of a micro-batch between stages, before there is a plan.
#pragma once

#include <vector>

#include "partition/stages.h"

namespace weft {

class CutLoads {
 public:
  // `ops` of this model.
  CutLoads(const Model& model, const PlanConfig& config, const OpNodes& ops);

  // The bytes of the values of a cut before each node of `ops`.
  const std::vector<double>& bytes() const { return forward_; }
  // Of the inputs that the nodes `begin` to `end` - 1 read, which rank 0 sends.
  double fed_bytes(size_t begin, size_t end) const { return fed(begin, end).bytes; }
  // For which the messages of a cut before these nodes occupy a link. `from_first`: from rank 0,
  // which also sends their inputs.
  double time(size_t begin, size_t end, bool from_first, const LinkSpeed& link) const;

 private:
  struct Input {
    std::vector<size_t> readers;  // ascending
    double bytes;
    double gradient;  // bytes that are sent back
  };
  struct Fed {
    double bytes = 0, gradients = 0;
  };
  Fed fed(size_t begin, size_t end) const;

  std::vector<double> forward_, backward_;
  std::vector<Input> inputs_;
};

}  // namespace weft
