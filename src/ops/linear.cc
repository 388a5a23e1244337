// linear: x W + b along the last axis of x. Weight 0 is [in, out], or [out, in] with kOutIn. Weight
// 1 is the bias [out] and may be missing.
#include <algorithm>

#include "kernels/bf16_product.h"
#include "kernels/columns.h"
#include "kernels/gemm.h"
#include "kernels/large.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/stored.h"

namespace weft {

namespace {

bool out_in(const Attrs& attrs) { return (attrs.flags & kOutIn) != 0; }

// x as a matrix [rows, in], and what comes out of it.
struct Sizes {
  int64_t rows, in, out;

  Sizes(const Attrs& attrs, const Desc& x, const Desc& stored)
      : rows(x.shape.elements(0, x.shape.rank - 1)),
        in(x.shape.last()),
        out(stored.shape[out_in(attrs) ? 0 : 1]) {}
};

// The weight as [in, out], or as [out, in] when transposed.
Factor weight(const Call& call, const Sizes& s, bool transposed) {
  const bool stored_so = out_in(*call.attrs);
  return {call.weights[0].f32(), stored_so ? s.in : s.out, stored_so != transposed};
}

// a[rows,k] times the packed weight, in bf16.
void multiply(const Call& call, const View& a, const View& out, int64_t rows, int64_t k, int64_t n,
              const float* bias) {
  const bool f32 = out.desc.dtype == DType::f32;
  kernels::bf16_product({.m = rows,
                         .n = n,
                         .k = k,
                         .a = a.bf16(),
                         .a_row = k,
                         .b = static_cast<const kernels::Bf16*>(call.packed),
                         .c = f32 ? out.f32() : nullptr,
                         .rounded = f32 ? nullptr : out.bf16(),
                         .c_row = n,
                         .bias = bias},
                        *call.tiles);
}

constexpr int64_t kColumns = 256;  // of a bias, per tile

// Whether the gradient of a weight is written once and leaves the caches before its next use, with
// those of other weights.
bool begins_large_sum(const Call& call) {
  return call.begins_sum && kernels::is_large(call.acc.desc.elements());
}

class Linear final : public Op {
 public:
  std::string_view name() const override { return "linear"; }
  uint32_t reads() const override { return kOutIn; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, weights.size() == 2 ? 2 : 1));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    const Shape& shape = in[0].desc.shape;
    if (shape.rank < 2)
      return Status(Code::invalid, cat("input 0 expects rank 2 or more, got ", in[0].desc.text()));
    const Desc& stored = weights[0];
    const int side = out_in(attrs) ? 1 : 0;
    if (stored.dtype != DType::f32 || stored.shape.rank != 2 || stored.shape[side] != shape.last())
      return Status(Code::invalid,
                    cat("weight 0 expects f32[", side ? "?," : "", shape.last(), side ? "]" : ",?]",
                        " for input 0 ", in[0].desc.text(), ", got ", stored.text()));
    const Sizes sizes(attrs, in[0].desc, stored);
    const Desc bias{DType::f32, {sizes.out}};
    if (weights.size() == 2 && weights[1] != bias)
      return Status(Code::invalid, cat("weight 1 expects ", bias.text(), " for weight 0 ",
                                       stored.text(), ", got ", weights[1].text()));
    Inferred inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
    inferred.out.shape[shape.rank - 1] = sizes.out;
    return inferred;
  }

  bool multiplies_weight() const override { return true; }
  bool multiplies_transposed(const Attrs& attrs) const override { return out_in(attrs); }
  int64_t bf16_scratch(const Desc& in, const Desc& weight) const override {
    const Shape& w = weight.shape;
    const int64_t rows = in.shape.elements(0, in.shape.rank - 1);
    // Either factor may be the left one.
    return std::max(kernels::bf16_weight_grad_bytes(rows, w[0], w[1]),
                    kernels::bf16_weight_grad_bytes(rows, w[1], w[0]));
  }

  // The weight is at hand for I in any case.
  Uses uses_weight(const Attrs&) const override { return {.in = 1, .out = false, .stash = false}; }

  bool sums_bf16() const override { return true; }

  bool writes_sum(int weight) const override { return weight == 0; }

  Cost cost(const Attrs& attrs, std::span<const Desc> in, std::span<const Desc> weights,
            const Desc& out) const override {
    const Sizes sizes(attrs, in[0], weights[0]);
    const double product =
        2.0 * static_cast<double>(out.elements()) * static_cast<double>(sizes.in);
    return {.forward_flops = product, .input_flops = product, .weight_flops = product};
  }

  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc, call.weights[0].desc);
    const float* bias = call.weights.size() == 2 ? call.weights[1].f32() : nullptr;
    if (call.in[0].desc.dtype == DType::bf16) {
      multiply(call, call.in[0], call.out, s.rows, s.in, s.out, bias);
      return {};
    }
    gemm({.m = s.rows,
          .n = s.out,
          .k = s.in,
          .a = {call.in[0].f32(), s.in},
          .b = weight(call, s, false),
          .c = call.out.f32(),
          .stride = s.out,
          .packed_b = static_cast<const float*>(call.packed),
          .bias = bias},
         *call.tiles);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Sizes s(*call.attrs, call.din[0].desc, call.weights[0].desc);
    if (call.dout.desc.dtype == DType::bf16) {
      multiply(call, call.dout, call.din[0], s.rows, s.out, s.in, nullptr);
      return {};
    }
    gemm({s.rows,
          s.in,
          s.out,
          {call.dout.f32(), s.out},
          weight(call, s, true),
          call.din[0].f32(),
          s.in,
          1,
          0,
          static_cast<const float*>(call.packed)},
         *call.tiles);
    return {};
  }

  Status weight_grad(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc, call.weights[0].desc);
    if (call.weight == 1) {
      for_ranges(*call.tiles, s.out, kColumns, [&](int64_t begin, int64_t end) {
        with_elements(call.dout, [&](const auto* dout) {
          kernels::add_column_sums(dout + begin, s.rows, end - begin, s.out,
                                   call.acc.f32() + begin);
        });
      });
      return {};
    }
    const bool swapped = out_in(*call.attrs);
    if (call.dout.desc.dtype == DType::bf16) {
      const View &x = call.in[0], &dy = call.dout;
      kernels::bf16_weight_grad({.rows = s.rows,
                                 .k = swapped ? s.out : s.in,
                                 .n = swapped ? s.in : s.out,
                                 .x = (swapped ? dy : x).bf16(),
                                 .x_row = swapped ? s.out : s.in,
                                 .dy = (swapped ? x : dy).bf16(),
                                 .dy_row = swapped ? s.in : s.out,
                                 .acc = call.acc.f32(),
                                 .acc_row = swapped ? s.in : s.out,
                                 .add = !call.begins_sum,
                                 .past_caches = begins_large_sum(call),
                                 .scratch = static_cast<std::byte*>(call.scratch)},
                                *call.tiles);
      return {};
    }
    const Factor x{call.in[0].f32(), s.in}, dy{call.dout.f32(), s.out};
    Factor rows = swapped ? dy : x;
    const Factor columns = swapped ? x : dy;
    rows.transposed = true;
    gemm({.m = rows.stride,
          .n = columns.stride,
          .k = s.rows,
          .a = rows,
          .b = columns,
          .c = call.acc.f32(),
          .stride = columns.stride,
          .beta = call.begins_sum ? 0.f : 1.f,
          .past_caches = begins_large_sum(call)},
         *call.tiles);
    return {};
  }
};

}  // namespace

const Op& linear_op() {
  static const Linear op;
  return op;
}

}  // namespace weft
