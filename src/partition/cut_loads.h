// The messages of a micro-batch between stages, before there is a plan.
#pragma once

#include <vector>

#include "partition/stages.h"

namespace weft {

class CutLoads {
 public:
  // `ops` of this model.
  CutLoads(const Model& model, const PlanConfig& config, const OpNodes& ops);

  // Of a cut before a node of `ops`: the time that its messages occupy a link, and the bytes of the
  // values.
  const std::vector<double>& time() const { return time_; }
  const std::vector<double>& bytes() const { return forward_; }
  // Of the inputs that the nodes `begin` to `end` - 1 read, which rank 0 sends.
  double fed_bytes(size_t begin, size_t end) const { return fed(begin, end).bytes; }
  // As time(), if the stage before these nodes is on rank 0: the link then has their inputs, too.
  double time_from_first(size_t begin, size_t end) const;

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
  double occupied(double forward, double backward) const;

  double latency_, bandwidth_;
  std::vector<double> forward_, backward_, time_;
  std::vector<Input> inputs_;
};

}  // namespace weft
