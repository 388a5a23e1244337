// mean, sum, max over attrs.axis, or over the adjacent axes attrs.dims, which the output does not
// have. The batch is not reduced: samples never mix. max keeps the index of the first greatest
// element, which gets the gradient; NaN counts as greatest.
#include <algorithm>
#include <limits>

#include "kernels/columns.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr int64_t kColumns = 256;  // columns per strip

// The axes [begin, end) that are reduced.
struct Axes {
  int begin, end;
};

Axes axes_of(const Attrs& attrs) {
  if (attrs.dims.rank == 0) return {attrs.axis, attrs.axis + 1};
  const int first = static_cast<int>(attrs.dims[0]);
  return {first, first + attrs.dims.rank};
}

// The operand as [outer, axis, inner].
struct Split {
  int64_t outer, axis, inner;

  Split(const Desc& in, const Axes& axes)
      : outer(in.shape.elements(0, axes.begin)),
        axis(in.shape.elements(axes.begin, axes.end)),
        inner(in.shape.elements(axes.end, in.shape.rank)) {}
};

class Reduce : public Op {
 public:
  explicit Reduce(std::string_view name) : name_(name) {}

  std::string_view name() const override { return name_; }
  uint32_t reads() const override { return kAxis | kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    for (int i = 0; i < attrs.dims.rank; ++i)
      if (attrs.axis != 0 || attrs.dims[0] < -kMaxRank || attrs.dims[i] != attrs.dims[0] + i ||
          attrs.dims[i] >= kMaxRank)
        return Status(Code::invalid, cat("dims are ", attrs.dims.text(), " and axis is ",
                                         attrs.axis, ", expected adjacent axes and axis 0"));
    if (attrs.dims.rank == 0) WEFT_TRY(check_axis(0, x, attrs.axis));
    const Axes axes = axes_of(attrs);
    Desc out{DType::f32, {}};
    for (int i = axes.begin; i < axes.end; ++i) {
      WEFT_TRY(check_axis(0, x, i));
      WEFT_TRY(check_not_batch(0, in[0], i));
      if (x.shape[i] < 1)
        return Status(Code::invalid,
                      cat("input 0 expects 1 or more along axis ", i, ", got ", x.text()));
    }
    for (int i = 0; i < x.shape.rank; ++i)
      if (i < axes.begin || i >= axes.end) out.shape[out.shape.rank++] = x.shape[i];
    return Inferred{.out = out, .stash = stash(out), .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = n, .input_flops = n, .weight_flops = 0};
  }

 protected:
  virtual std::vector<Desc> stash(const Desc& out) const {
    (void)out;
    return {};
  }

  // body(outer index, first column, last column) for strips of columns.
  template <typename F>
  static void for_strips(const Call& call, const Split& s, F&& body) {
    const int64_t strips = (s.inner + kColumns - 1) / kColumns;
    for_ranges(*call.tiles, s.outer * strips, tile_rows(s.axis * std::min(s.inner, kColumns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t first = i % strips * kColumns;
                   body(i / strips, first, std::min(s.inner, first + kColumns));
                 }
               });
  }

 private:
  const std::string_view name_;
};

// Times 1 or 1 / axis.
class Sum final : public Reduce {
 public:
  Sum(std::string_view name, bool mean) : Reduce(name), mean_(mean) {}

  Status forward(const Call& call) const override {
    const Split s(call.in[0].desc, axes_of(*call.attrs));
    const float *x = call.in[0].f32(), factor = factor_of(s);
    float* out = call.out.f32();
    if (s.inner == 1) {
      for_ranges(*call.tiles, s.outer, tile_rows(s.axis), [&](int64_t begin, int64_t end) {
        kernels::row_sums(x + begin * s.axis, end - begin, s.axis, out + begin);
        kernels::scale(out + begin, factor, out + begin, end - begin);
      });
      return {};
    }
    for_strips(call, s, [&](int64_t outer, int64_t first, int64_t last) {
      float* sums = out + outer * s.inner + first;
      std::fill_n(sums, last - first, 0.0f);
      kernels::add_column_sums(x + outer * s.axis * s.inner + first, s.axis, last - first, s.inner,
                               sums);
      kernels::scale(sums, factor, sums, last - first);
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Split s(call.din[0].desc, axes_of(*call.attrs));
    const float *dout = call.dout.f32(), factor = factor_of(s);
    float* dx = call.din[0].f32();
    for_ranges(*call.tiles, s.outer, tile_rows(s.axis * s.inner), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        float* block = dx + o * s.axis * s.inner;
        kernels::scale(dout + o * s.inner, factor, block, s.inner);
        for (int64_t r = 1; r < s.axis; ++r) std::copy_n(block, s.inner, block + r * s.inner);
      }
    });
    return {};
  }

 private:
  float factor_of(const Split& s) const {
    return mean_ ? static_cast<float>(1.0 / static_cast<double>(s.axis)) : 1.0f;
  }

  const bool mean_;
};

class Max final : public Reduce {
 public:
  Max() : Reduce("max") {}

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY_ASSIGN(Inferred inferred, Reduce::infer(attrs, in, weights));
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // of an index in the stash
    if (Split(in[0].desc, axes_of(attrs)).axis > kMost)
      return Status(Code::invalid, cat("input 0 expects at most ", kMost,
                                       " elements to reduce, got ", in[0].desc.text()));
    return inferred;
  }

  Uses uses_input(const Attrs&) const override { return {.in = 0, .out = false, .stash = true}; }

  Status forward(const Call& call) const override {
    const Split s(call.in[0].desc, axes_of(*call.attrs));
    for_strips(call, s, [&](int64_t outer, int64_t first, int64_t last) {
      const float* x = call.in[0].f32() + outer * s.axis * s.inner;
      float* top = call.out.f32() + outer * s.inner;
      int32_t* index = call.stash[0].i32() + outer * s.inner;
      std::copy(x + first, x + last, top + first);
      std::fill(index + first, index + last, 0);
      for (int64_t r = 1; r < s.axis; ++r)
        for (int64_t c = first; c < last; ++c) {
          const float value = x[r * s.inner + c];
          if (value <= top[c] || top[c] != top[c]) continue;
          top[c] = value;
          index[c] = static_cast<int32_t>(r);
        }
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Split s(call.din[0].desc, axes_of(*call.attrs));
    for_strips(call, s, [&](int64_t outer, int64_t first, int64_t last) {
      float* dx = call.din[0].f32() + outer * s.axis * s.inner;
      const float* dout = call.dout.f32() + outer * s.inner;
      const int32_t* index = call.stash[0].i32() + outer * s.inner;
      for (int64_t r = 0; r < s.axis; ++r)
        std::fill(dx + r * s.inner + first, dx + r * s.inner + last, 0.0f);
      for (int64_t c = first; c < last; ++c) dx[index[c] * s.inner + c] = dout[c];
    });
    return {};
  }

 protected:
  std::vector<Desc> stash(const Desc& out) const override { return {{DType::i32, out.shape}}; }
};

}  // namespace

const Op& mean_op() {
  static const Sum op("mean", true);
  return op;
}

const Op& sum_op() {
  static const Sum op("sum", false);
  return op;
}

const Op& max_op() {
  static const Max op;
  return op;
}

}  // namespace weft
