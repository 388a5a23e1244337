// Gradient groups: how a step adds the gradients of its micro-batches. Each group adds those of its
// micro-batches in order. The sums of the groups are the leaves of a binary tree, which is halved
// from the top. The number of groups determines rounding; the ranks that compute them do not.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

// The division of the micro-batches of a plan. A step with fewer micro-batches has the same groups;
// the last ones are empty.
struct GradientGroups {
  int32_t micro_batches = 1, count = 1;

  // Group g has the micro-batches begin(g) to begin(g + 1) - 1.
  int32_t begin(int32_t group) const {
    return static_cast<int32_t>(int64_t{group} * micro_batches / count);
  }
  int32_t of(int32_t micro_batch) const {
    return static_cast<int32_t>(((int64_t{micro_batch} + 1) * count - 1) / micro_batches);
  }
};

// Where the right half of the leaves [begin, end) of a tree begins; end - begin is 2 or more.
inline int32_t right_half(int32_t begin, int32_t end) { return begin + (end - begin + 1) / 2; }

// Leaves arrive in order, so that the sums that wait for a right half form a stack.
struct TreeLeaf {
  int32_t depth = 0;  // sums below the sum of this leaf on the stack
  int32_t folds = 0;  // sums that are complete with it: additions of the top to the sum below
};

inline TreeLeaf leaf_of(int32_t leaf, int32_t leaves) {
  TreeLeaf out;
  for (int32_t begin = 0, end = leaves; end - begin > 1;) {
    const int32_t right = right_half(begin, end);
    if (leaf < right) {
      end = right;
      out.folds = 0;
    } else {
      begin = right;
      ++out.depth;
      ++out.folds;
    }
  }
  return out;
}

// Adds the leaves [begin, end) in place: add(from, to) adds one to another, which becomes their
// sum.
template <typename Add>
void add_tree(int32_t begin, int32_t end, Add&& add) {
  if (end - begin < 2) return;
  const int32_t right = right_half(begin, end);
  add_tree(begin, right, add);
  add_tree(right, end, add);
  add(right, begin);
}

// The maximum size of the stack.
inline int32_t stack_of(int32_t leaves) { return std::bit_width(static_cast<uint32_t>(leaves)); }

}  // namespace weft
