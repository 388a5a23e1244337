// rope: rotary position embeddings. x[.., t, heads * size] -> the same shape: columns i and i + n
// of each head are rotated by the angle position * attrs.frequencies[i], where n is the number of
// frequencies, and multiplied by attrs.factor (0 is 1). Other columns stay as they are. The
// position is the row t, or input 1, i32[.., t]. I rotates the gradient back.
//
// An angle is rounded to a float, as in Transformers; sine and cosine are those of this float.
#include <algorithm>
#include <cmath>

#include "kernels/ranges.h"
#include "kernels/rope.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr double kFlopsPerElement = 3;

struct Sizes {
  int64_t rows, width, heads, pairs;
  int64_t table_rows;  // with positions of their own; rows after them begin again with the first
  float factor;

  Sizes(const Attrs& attrs, const Shape& x, bool has_positions)
      : rows(x.elements(0, x.rank - 1)),
        width(x.last()),
        heads(attrs.heads),
        pairs(static_cast<int64_t>(attrs.frequencies.size())),
        table_rows(has_positions ? rows : x[x.rank - 2]),
        factor(attrs.factor == 0 ? 1 : static_cast<float>(attrs.factor)) {}
  explicit Sizes(const Call& call)
      : Sizes(*call.attrs, call.in[0].desc.shape, call.in.size() == 2) {}

  int64_t row_floats() const { return 2 * pairs; }
};

class Rope final : public Op {
 public:
  std::string_view name() const override { return "rope"; }
  uint32_t reads() const override { return kHeads | kFactor | kFrequencies; }
  bool differentiable(int port) const override { return port == 0; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    const bool has_positions = in.size() == 2;
    WEFT_TRY(check_counts(in, has_positions ? 2 : 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_last_axes(0, in[0], has_positions ? 1 : 2));
    if (has_positions) WEFT_TRY(check_positions(in));
    if (attrs.heads < 1)
      return Status(Code::invalid, cat("heads is ", attrs.heads, ", expected 1 or more"));
    const int64_t pairs = static_cast<int64_t>(attrs.frequencies.size());
    if (x.shape.last() % attrs.heads != 0 || x.shape.last() / attrs.heads < 2 * pairs)
      return Status(Code::invalid, cat("input 0 expects ", attrs.heads, " heads of at least ",
                                       2 * pairs, " columns (two per frequency), got ", x.text()));
    for (const float frequency : attrs.frequencies)
      if (!(frequency >= 0) || !std::isfinite(frequency))
        return Status(Code::invalid, cat("a frequency is ", frequency, ", expected 0 or more"));
    if (!std::isfinite(static_cast<float>(attrs.factor)))
      return Status(Code::invalid, cat("factor is ", attrs.factor, ", expected a finite float"));
    const Sizes s(attrs, x.shape, has_positions);
    return Inferred{.out = x,
                    .stash = {},
                    .scratch = static_cast<size_t>(s.table_rows * s.row_floats()) * sizeof(float)};
  }

  Uses uses_input(const Attrs&) const override {
    return {.in = 0b10, .out = false, .stash = false};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double flops = kFlopsPerElement * static_cast<double>(out.elements());
    return {.forward_flops = flops, .input_flops = flops, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    rotate(call, call.in[0], false, call.out);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (call.din[0]) rotate(call, call.dout, true, call.din[0]);
    return {};
  }

 private:
  // i32, of the dimensions of input 0 without the last one.
  static Status check_positions(std::span<const Operand> in) {
    const Shape& x = in[0].desc.shape;
    const std::span rows(x.dims.data(), static_cast<size_t>(x.rank - 1));
    return check_same_as({{DType::i32, Shape(rows)}, in[0].batched}, in[1], 1);
  }

  // Cosines, then sines, of each row that has a position of its own.
  static void make_table(const Call& call, const Sizes& s, float* table) {
    const int32_t* positions = call.in.size() == 2 ? call.in[1].i32() : nullptr;
    for_ranges(*call.tiles, s.table_rows, tile_rows(s.row_floats()),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   float* cosine = table + row * s.row_floats();
                   kernels::rotation(static_cast<float>(positions ? positions[row] : row),
                                     call.attrs->frequencies.data(), s.pairs, s.factor, cosine,
                                     cosine + s.pairs);
                 }
               });
  }

  static void rotate(const Call& call, const View& from, bool back, const View& to) {
    const Sizes s(call);
    float* table = static_cast<float*>(call.scratch);
    make_table(call, s, table);
    for_ranges(*call.tiles, s.rows, tile_rows(s.width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* cosine = table + row % s.table_rows * s.row_floats();
        kernels::rotate(from.f32() + row * s.width, cosine, cosine + s.pairs, s.heads,
                        s.width / s.heads, s.pairs, back, to.f32() + row * s.width);
      }
    });
  }
};

}  // namespace

const Op& rope_op() {
  static const Rope op;
  return op;
}

}  // namespace weft
