// The operations of the gradients of a micro-batch on the sums of the gradient groups of a rank. An
// accumulator has a stack of sums, see graph/groups.h.
#pragma once

#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

class GroupSums {
 public:
  GroupSums(const Plan& plan, const StepDescriptor& step, int32_t micro_batch)
      : leaves_(plan.config.gradient_groups / plan.config.data) {
    if (leaves_ == 1) return;
    const GradientGroups groups = plan.groups();
    const int32_t group = groups.of(micro_batch);
    group_ = group % leaves_;  // of the groups of the replica
    next_ = group_;
    depth_ = leaf_of(group_, leaves_).depth;
    is_fresh_ = depth_ > 0 && micro_batch == groups.begin(group);
    if (micro_batch + 1 == step.micro_batches)
      next_ = leaves_;
    else if (micro_batch + 1 == groups.begin(group + 1))
      next_ = group_ + 1;
  }

  int32_t depth() const { return depth_; }     // of the sum that the micro-batch adds to
  bool is_fresh() const { return is_fresh_; }  // that sum begins with it, at +0

  // For every group that ends with the micro-batch: clear(depth) if it is empty, and fold(depth)
  // for each sum that it completes: adds the sum at this depth to the one below.
  template <typename Clear, typename Fold>
  void finish(Clear&& clear, Fold&& fold) const {
    for (int32_t group = group_; group < next_; ++group) {
      const TreeLeaf leaf = leaf_of(group, leaves_);
      if (group != group_) clear(leaf.depth);
      for (int32_t i = 0; i < leaf.folds; ++i) fold(leaf.depth - i);
    }
  }

 private:
  const int32_t leaves_;
  int32_t group_ = 0, next_ = 0;  // of the micro-batch; the first one that does not end with it
  int32_t depth_ = 0;
  bool is_fresh_ = false;
};

}  // namespace weft
