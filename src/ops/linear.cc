// linear: x W + b along the last axis of x. Weight 0 is [in, out], or [out, in] with kOutIn. Weight 1 is the bias [out]
// and may be missing.
#include <cstring>

#include "kernels/columns.h"
#include "kernels/gemm.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

bool out_in(const Attrs& attrs) { return (attrs.flags & kOutIn) != 0; }

// x as a matrix [rows, in], and what comes out of it.
struct Sizes {
  int64_t rows, in, out;

  Sizes(const Attrs& attrs, const Desc& x, const Desc& weight)
      : rows(x.shape.elements(0, x.shape.rank - 1)), in(x.shape.last()), out(weight.shape[out_in(attrs) ? 0 : 1]) {}
};

constexpr int64_t kColumns = 256;  // of a bias, per tile

class Linear final : public Op {
 public:
  std::string_view name() const override { return "linear"; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in, std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, weights.size() == 2 ? 2 : 1));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    const Shape& shape = in[0].desc.shape;
    if (shape.rank < 2) return Status(Code::invalid, cat("input 0 expects rank 2 or more, got ", in[0].desc.text()));
    const Desc& weight = weights[0];
    const int side = out_in(attrs) ? 1 : 0;
    if (weight.dtype != DType::f32 || weight.shape.rank != 2 || weight.shape[side] != shape.last())
      return Status(Code::invalid, cat("weight 0 expects f32[", side ? "?," : "", shape.last(), side ? "]" : ",?]",
                                       " for input 0 ", in[0].desc.text(), ", got ", weight.text()));
    const Sizes sizes(attrs, in[0].desc, weight);
    const Desc bias{DType::f32, {sizes.out}};
    if (weights.size() == 2 && weights[1] != bias)
      return Status(Code::invalid,
                    cat("weight 1 expects ", bias.text(), " for weight 0 ", weight.text(), ", got ", weights[1].text()));
    Inferred inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
    inferred.out.shape[shape.rank - 1] = sizes.out;
    return inferred;
  }

  // The weight is at hand for I in any case.
  Uses uses_weight(const Attrs&) const override { return {.in = 1, .out = false, .stash = false}; }

  Cost cost(const Attrs& attrs, std::span<const Desc> in, std::span<const Desc> weights, const Desc& out) const override {
    const Sizes sizes(attrs, in[0], weights[0]);
    const double product = 2.0 * static_cast<double>(out.elements()) * static_cast<double>(sizes.in);
    return {.forward_flops = product, .input_flops = product, .weight_flops = product};
  }

  // The bias is laid down first and the product added to it: one pass less than adding it afterwards.
  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc, call.weights[0].desc);
    const bool bias = call.weights.size() == 2;
    if (bias)
      for_ranges(*call.tiles, s.rows, tile_rows(s.out), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          std::memcpy(call.out.f32() + row * s.out, call.weights[1].data, static_cast<size_t>(s.out) * sizeof(float));
      });
    const bool transposed = out_in(*call.attrs);
    gemm({.m = s.rows, .n = s.out, .k = s.in, .a = call.in[0].f32(), .lda = s.in, .b = call.weights[0].f32(),
          .ldb = transposed ? s.in : s.out, .trans_b = transposed, .c = call.out.f32(), .ldc = s.out, .beta = bias ? 1.f : 0.f},
         *call.tiles);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Sizes s(*call.attrs, call.din[0].desc, call.weights[0].desc);
    const bool transposed = out_in(*call.attrs);
    gemm({.m = s.rows, .n = s.in, .k = s.out, .a = call.dout.f32(), .lda = s.out, .b = call.weights[0].f32(),
          .ldb = transposed ? s.in : s.out, .trans_b = !transposed, .c = call.din[0].f32(), .ldc = s.in},
         *call.tiles);
    return {};
  }

  Status weight_grad(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc, call.weights[0].desc);
    if (call.weight == 1) {
      for_ranges(*call.tiles, s.out, kColumns, [&](int64_t begin, int64_t end) {
        kernels::add_column_sums(call.dout.f32() + begin, s.rows, end - begin, s.out, call.acc.f32() + begin);
      });
      return {};
    }
    Gemm product{.m = s.in, .n = s.out, .k = s.rows, .a = call.in[0].f32(), .lda = s.in, .trans_a = true, .b = call.dout.f32(),
                 .ldb = s.out, .c = call.acc.f32(), .ldc = s.out, .beta = 1};
    if (out_in(*call.attrs)) {
      product = {.m = s.out, .n = s.in, .k = s.rows, .a = call.dout.f32(), .lda = s.out, .trans_a = true, .b = call.in[0].f32(),
                 .ldb = s.in, .c = call.acc.f32(), .ldc = s.in, .beta = 1};
    }
    gemm(product, *call.tiles);
    return {};
  }
};

}  // namespace

const Op& linear_op() {
  static const Linear op;
  return op;
}

}  // namespace weft
