// dropout with probability attrs.factor, survivors scaled by 1 / (1 - probability); the identity
// when not training. The mask is a function of (seed, step, micro-batch, node, element), so I makes
// it again and nothing is kept.
#include <algorithm>
#include <cstring>

#include "kernels/dropout.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/dropout.h"

namespace weft {

namespace {

class Dropout final : public Op {
 public:
  std::string_view name() const override { return "dropout"; }
  uint32_t reads() const override { return kFactor; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_probability(attrs));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {
        .forward_flops = kDropoutFlops * n, .input_flops = kDropoutFlops * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    run(call, call.in[0], call.out);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (call.din[0]) run(call, call.dout, call.din[0]);
    return {};
  }

 private:
  // A piece of a node is rows of `run` elements, which lie `stride` apart in the whole node.
  struct Rows {
    int64_t run, stride, offset;
    Rows(const Section& section, const Shape& shape)
        : run(std::max<int64_t>(1, shape.elements())), stride(0), offset(0) {
      if (section.whole == 0) return;
      const int64_t inner = shape.elements(section.axis + 1, shape.rank);
      run = shape[section.axis] * inner;
      stride = section.whole * inner;
      offset = section.begin * inner;
    }
  };

  static void run(const Call& call, const View& from, const View& to) {
    const Stream stream = dropout_stream(call.key);
    const Rows rows(call.attrs->section, to.desc.shape);
    for_ranges(*call.tiles, to.desc.elements(), kTileElements, [&](int64_t begin, int64_t end) {
      if (!call.training) {
        std::memcpy(to.f32() + begin, from.f32() + begin,
                    static_cast<size_t>(end - begin) * sizeof(float));
        return;
      }
      for (int64_t i = begin, count = 0; i < end; i += count) {
        const int64_t row = i / rows.run, column = i % rows.run;
        count = std::min(rows.run - column, end - i);
        kernels::dropout(stream, call.attrs->factor, row * rows.stride + rows.offset + column,
                         from.f32() + i, count, to.f32() + i);
      }
    });
  }
};

}  // namespace

const Op& dropout_op() {
  static const Dropout op;
  return op;
}

}  // namespace weft
