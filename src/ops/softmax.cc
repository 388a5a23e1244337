// softmax and its log over the last axis. I reads only the output.
#include "kernels/softmax.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

struct RowFunction {
  std::string_view name;
  void (*forward)(const float* x, int64_t rows, int64_t n, float* out);
  void (*grad)(const float* y, const float* dy, int64_t rows, int64_t n, float* dx);
  bool keeps_f32;
};

class OverRows final : public Op {
 public:
  explicit OverRows(const RowFunction& function) : function_(function) {}
  std::string_view name() const override { return function_.name; }
  bool keeps_f32() const override { return function_.keeps_f32; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_last_axis(0, in[0]));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override { return {.in = 0, .out = true, .stash = false}; }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = 20 * n, .input_flops = 4 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const Shape& shape = call.out.desc.shape;
    const int64_t n = shape.last(), rows = shape.elements(0, shape.rank - 1);
    for_ranges(*call.tiles, rows, tile_rows(n), [&](int64_t begin, int64_t end) {
      function_.forward(call.in[0].f32() + begin * n, end - begin, n, call.out.f32() + begin * n);
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Shape& shape = call.dout.desc.shape;
    const int64_t n = shape.last(), rows = shape.elements(0, shape.rank - 1);
    for_ranges(*call.tiles, rows, tile_rows(n), [&](int64_t begin, int64_t end) {
      const int64_t at = begin * n;
      function_.grad(call.out.f32() + at, call.dout.f32() + at, end - begin, n,
                     call.din[0].f32() + at);
    });
    return {};
  }

 private:
  const RowFunction function_;
};

}  // namespace

const Op& softmax_op() {
  static const OverRows op({"softmax", kernels::softmax, kernels::softmax_grad, false});
  return op;
}

// Its results have a large range, and a loss adds them.
const Op& log_softmax_op() {
  static const OverRows op({"log_softmax", kernels::log_softmax, kernels::log_softmax_grad, true});
  return op;
}

}  // namespace weft
