// attention: multi-head, scaled by 1 / sqrt(head size). One input f32[.., t, 3 d] with queries,
// keys and values side by side (as GPT-2 makes them), or queries f32[.., t, d], keys and values
// f32[.., u, d / repeat]; output f32[.., t, d]. Head h owns columns [h d / heads, (h + 1) d /
// heads) of queries and output. Grouped queries: `repeat` successive heads share a head of keys and
// values. One more input may follow. With a causal mask, for which u is t, it is i32[.., t], the
// position of each row in its sequence: a row at position p sees the p rows before it and itself.
// So several sequences can be packed into one sample, one after another; each begins at position 0.
// Without a causal mask it is i32[.., u], a mask: only keys whose element is not 0 are seen. With a
// causal mask, dims may be a window w: a row sees the w - 1 rows before it and itself. With a cap
// c, scores are between -c and c.
//
// How a head is computed: attention_kernel.h.
#include <algorithm>

#include "ops/attention_kernel.h"
#include "ops/check.h"
#include "ops/dropout.h"

namespace weft {

namespace {

using namespace attention;

class Attention final : public Op {
 public:
  std::string_view name() const override { return "attention"; }
  uint32_t reads() const override { return kCausal | kHeads | kFactor | kCap | kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    if (in.empty() || in.size() > 4)
      return Status(Code::invalid,
                    cat("expected 1 or 3 inputs, and positions or a mask, got ", in.size()));
    WEFT_TRY(check_counts(in, in.size(), weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    const bool packed = in.size() <= 2;
    const Desc& desc = in[0].desc;
    WEFT_TRY(check_last_axes(0, in[0], 2));
    if (attrs.heads < 1)
      return Status(Code::invalid, cat("heads is ", attrs.heads, ", expected 1 or more"));
    WEFT_TRY(check_probability(attrs));
    if (attrs.cap != 0) WEFT_TRY(check_cap(attrs));
    WEFT_TRY(check_window(attrs));
    const int64_t unit = int64_t{attrs.heads} * (packed ? 3 : 1);
    if (desc.shape.last() == 0 || desc.shape.last() % unit != 0)
      return Status(
          Code::invalid,
          cat("input 0 expects a last dimension that is a multiple of ", unit, " (", attrs.heads,
              " heads", packed ? " of queries, keys and values)" : ")", ", got ", desc.text()));
    if (!packed) {
      WEFT_TRY(check_keys(attrs, in));
      WEFT_TRY(check_same_as(in[1], in[2], 2));
    }
    if (in.size() % 2 == 0) WEFT_TRY(check_rows(attrs, in));
    const Sizes s(attrs, desc.shape, packed ? nullptr : &in[1].desc.shape);
    Inferred inferred{.out = desc, .stash = {}};
    inferred.stash = {{DType::f32, {s.heads_in_all(), s.rows}},
                      {DType::f32, {s.heads_in_all(), s.rows}}};
    inferred.out.shape[desc.shape.rank - 1] = s.width;
    inferred.scratch = static_cast<size_t>(s.groups() * s.group_floats()) * sizeof(float);
    return inferred;
  }

  // Whatever the number of inputs.
  Uses uses_input(const Attrs&) const override {
    return {.in = 0b1111, .out = false, .stash = true};
  }

  // Two products forward, five backward. A causal mask hides half of each, a window more.
  Cost cost(const Attrs& attrs, std::span<const Desc> in, std::span<const Desc>,
            const Desc& out) const override {
    const Shape& with_keys = in.size() >= 3 ? in[1].shape : out.shape;
    const double rows = static_cast<double>(with_keys[with_keys.rank - 2]);
    const double window = std::min(rows, static_cast<double>(window_of(attrs)));
    const double seen =
        (attrs.flags & kCausal) ? window * (1 - window / (2 * std::max(rows, 1.0))) : rows;
    const double product = 2 * static_cast<double>(out.elements()) * seen;
    const double heads =
        static_cast<double>(out.elements()) * attrs.heads / static_cast<double>(out.shape.last());
    const double mask = attrs.factor > 0 ? kDropoutFlops * rows * heads : 0;
    const double cap = attrs.cap > 0 ? kCapFlops * seen * heads : 0;
    return {.forward_flops = 2 * product + mask + cap,
            .input_flops = 5 * product + 2 * mask + cap,
            .weight_flops = 0};
  }

  // Only the last input is i32: positions or a mask.
  Status check_input(const Attrs& attrs, int port, std::span<const View> in,
                     std::span<const Desc>) const override {
    const View& input = in[static_cast<size_t>(port)];
    return attrs.flags & kCausal ? check_positions(input) : check_mask(input);
  }

  Status forward(const Call& call) const override {
    const Sizes s(call);
    if (const View* positions = positions_of(call)) WEFT_TRY(check_positions(*positions));
    if (const View* mask = mask_of(call)) WEFT_TRY(check_mask(*mask));
    for_heads(call, s, [&](const Head& head, float* scratch) { attend(call, s, head, scratch); });
    return {};
  }

  Status input_grad(const Call& call) const override {
    const Sizes s(call);
    for_heads(call, s,
              [&](const Head& head, float* scratch) { attention_grads(call, s, head, scratch); });
    return {};
  }

 private:
  static Status check_window(const Attrs& attrs) {
    if (attrs.dims.rank == 0) return {};
    if (attrs.dims.rank > 1 || attrs.dims[0] < 1)
      return Status(Code::invalid,
                    cat("dims is ", attrs.dims.text(), ", expected a window of 1 or more rows"));
    if (!(attrs.flags & kCausal)) return Status(Code::invalid, "a window needs a causal mask");
    return {};
  }

  // Positions have an element for each row, a mask for each key.
  static Status check_rows(const Attrs& attrs, std::span<const Operand> in) {
    const int with = in.size() > 3 && !(attrs.flags & kCausal) ? 1 : 0;
    const Shape& shape = in[static_cast<size_t>(with)].desc.shape;
    const std::span rows(shape.dims.data(), static_cast<size_t>(shape.rank - 1));
    const int port = static_cast<int>(in.size()) - 1;
    return check_same_as({{DType::i32, Shape(rows)}, in[0].batched}, in.back(), port, with);
  }

  static Status check_mask(const View& mask) {
    const int64_t keys = mask.desc.shape.last();
    const int64_t samples = keys == 0 ? 0 : mask.desc.elements() / keys;
    for (int64_t i = 0; i < samples; ++i) {
      const int32_t* flags = mask.i32() + i * keys;
      if (std::all_of(flags, flags + keys, [](int32_t flag) { return flag == 0; }))
        return Status(Code::data,
                      cat("mask ", mask.desc.text(), ": all ", keys, " elements of sample ", i,
                          " are 0, expected one that is not"));
    }
    return {};
  }

  static Status check_positions(const View& positions) {
    const int64_t rows = positions.desc.shape.last();
    for (int64_t i = 0; i < positions.desc.elements(); ++i)
      if (const int32_t position = positions.i32()[i]; position < 0 || position > i % rows)
        return Status(Code::data, cat("position ", position, " at element ", i, " of ",
                                      positions.desc.text(), ", expected 0 to ", i % rows));
    return {};
  }

  // As the queries, with heads of their size, whose number divides theirs, and without a causal
  // mask with any number of rows.
  static Status check_keys(const Attrs& attrs, std::span<const Operand> in) {
    Operand expected = in[0];
    Shape& shape = expected.desc.shape;
    const Shape& found = in[1].desc.shape;
    const int64_t width = found.rank == 0 ? 0 : found.last(), size = shape.last() / attrs.heads;
    if (width > 0 && width % size == 0 && shape.last() % width == 0) shape[shape.rank - 1] = width;
    const bool any_rows = !(attrs.flags & kCausal) && found.rank == shape.rank;
    if (any_rows && found[found.rank - 2] < 1)
      return Status(Code::invalid, cat("input 1 expects 1 or more rows, got ", in[1].desc.text()));
    if (any_rows) shape[shape.rank - 2] = found[found.rank - 2];
    return check_same_as(expected, in[1], 1);
  }
};

}  // namespace

const Op& attention_op() {
  static const Attention op;
  return op;
}

}  // namespace weft
