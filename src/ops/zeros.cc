// zeros: a tensor of the shape of its input, filled with 0. The input is not read.
#include <cstring>

#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Zeros final : public Op {
 public:
  std::string_view name() const override { return "zeros"; }
  bool reads_shapes_only() const override { return true; }
  bool differentiable(int) const override { return false; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_movable(0, in[0].desc));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {};
  }

  Status forward(const Call& call) const override {
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 std::memset(call.out.i32() + begin, 0, static_cast<size_t>(end - begin) * 4);
               });
    return {};
  }

  Status input_grad(const Call&) const override { return {}; }
};

}  // namespace

const Op& zeros_op() {
  static const Zeros op;
  return op;
}

}  // namespace weft
