// linear: x W + b along the last axis of x. Weight 0 is [in, out], or [out, in] with kOutIn. Weight
// 1 is the bias [out] and may be missing.
#include <array>

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
      return Status(Code::invalid,
                    cat("input 0 expects 2 or more dimensions, got ", in[0].desc.text()));
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
  int64_t bf16_scratch(const Desc& in, const Desc& weight, int32_t micro_batches) const override {
    const Shape& w = weight.shape;
    const int64_t rows = in.shape.elements(0, in.shape.rank - 1);
    const int64_t chunks = kernels::bf16_chunks(rows) * micro_batches;
    return kernels::bf16_weight_grad_bytes(chunks, w[0], w[1]);
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

  Status weight_grad(const Call& call) const override { return weight_grads({&call, 1}); }

  Status weight_grads(std::span<const Call> calls) const override {
    const Call& first = calls.front();
    if (first.weight == 1) {
      for (const Call& call : calls) bias_grad(call);
    } else if (first.dout.desc.dtype == DType::bf16) {
      bf16_grads(calls);
    } else {
      f32_grads(calls);
    }
    return {};
  }

 private:
  static void bias_grad(const Call& call) {
    const Sizes s(*call.attrs, call.in[0].desc, call.weights[0].desc);
    for_ranges(*call.tiles, s.out, kColumns, [&](int64_t begin, int64_t end) {
      with_elements(call.dout, [&](const auto* dout) {
        kernels::add_column_sums(dout + begin, s.rows, end - begin, s.out, call.acc.f32() + begin);
      });
    });
  }

  static void bf16_grads(std::span<const Call> calls) {
    const Call& first = calls.front();
    const bool swapped = out_in(*first.attrs);
    const Sizes s(*first.attrs, first.in[0].desc, first.weights[0].desc);
    std::array<kernels::Bf16Rows, kMostTogether> parts;
    for (size_t i = 0; i < calls.size(); ++i) {
      const View &x = calls[i].in[0], &dy = calls[i].dout;
      parts[i] = {.rows = Sizes(*first.attrs, x.desc, first.weights[0].desc).rows,
                  .x = (swapped ? dy : x).bf16(),
                  .dy = (swapped ? x : dy).bf16()};
    }
    kernels::bf16_weight_grad({.parts = std::span(parts).first(calls.size()),
                               .k = swapped ? s.out : s.in,
                               .n = swapped ? s.in : s.out,
                               .x_row = swapped ? s.out : s.in,
                               .dy_row = swapped ? s.in : s.out,
                               .acc = first.acc.f32(),
                               .acc_row = swapped ? s.in : s.out,
                               .add = !first.begins_sum,
                               .past_caches = begins_large_sum(first),
                               .scratch = static_cast<std::byte*>(first.scratch)},
                              *first.tiles);
  }

  static void f32_grads(std::span<const Call> calls) {
    const Call& first = calls.front();
    const bool swapped = out_in(*first.attrs);
    const Sizes s(*first.attrs, first.in[0].desc, first.weights[0].desc);
    std::array<GemmPart, kMostTogether> parts;
    for (size_t i = 0; i < calls.size(); ++i) {
      const Factor x{calls[i].in[0].f32(), s.in}, dy{calls[i].dout.f32(), s.out};
      parts[i] = {.k = Sizes(*first.attrs, calls[i].in[0].desc, first.weights[0].desc).rows,
                  .a = swapped ? dy : x,
                  .b = swapped ? x : dy};
      parts[i].a.transposed = true;
    }
    gemm_sum({.m = swapped ? s.out : s.in,
              .n = swapped ? s.in : s.out,
              .c = first.acc.f32(),
              .stride = swapped ? s.in : s.out,
              .beta = first.begins_sum ? 0.f : 1.f,
              .past_caches = begins_large_sum(first)},
             std::span(parts).first(calls.size()), *first.tiles);
  }
};

}  // namespace

const Op& linear_op() {
  static const Linear op;
  return op;
}

}  // namespace weft
