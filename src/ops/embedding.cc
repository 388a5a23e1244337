// embedding: rows of a table. Input 0 holds i32 indices [.., t], weight 0 is the table f32[v, d],
// which forward takes as bf16 or packed as well, the output is f32[.., t, d]. With kPositions the
// row is the position along the last axis, and the indices only say how many there are. A piece of
// the table gives zeros for the rows of others.
#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/indices.h"

namespace weft {

namespace {

constexpr int64_t kColumns = 128;  // of the table, per tile of W

bool positions(const Attrs& attrs) { return (attrs.flags & kPositions) != 0; }

// The position of the first of the indices. A section of another axis leaves positions whole.
int64_t first_position(const Attrs& attrs, const Shape& indices) {
  return attrs.section.axis == indices.rank - 1 ? attrs.section.begin : 0;
}

// Which row of the table element `i` of the indices takes; -1: one of another piece of the table.
int64_t row_of(const Call& call, int64_t i) {
  const Shape& indices = call.in[0].desc.shape;
  if (positions(*call.attrs)) return first_position(*call.attrs, indices) + i % indices.last();
  const int64_t begin = call.attrs->section.begin;
  const int64_t row = call.in[0].i32()[i] - begin;
  return row < call.weights[0].desc.shape[0] ? std::max<int64_t>(row, -1) : -1;
}

Status check_rows(const Attrs& attrs, const View& indices, const Desc& table) {
  if (positions(attrs)) return {};
  return check_indices(indices, 0, attrs.section.whole ? attrs.section.whole : table.shape[0]);
}

class Embedding final : public Op {
 public:
  std::string_view name() const override { return "embedding"; }
  uint32_t reads() const override { return kPositions; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 1));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::i32));
    const Shape& indices = in[0].desc.shape;
    const Desc& table = weights[0];
    if (indices.rank < 1 || indices.rank >= kMaxRank)
      return Status(Code::invalid, cat("input 0 expects 1 to ", kMaxRank - 1, " dimensions, got ",
                                       in[0].desc.text()));
    if (table.dtype != DType::f32 || table.shape.rank != 2)
      return Status(Code::invalid, cat("weight 0 expects f32[?,?], got ", table.text()));
    if (positions(attrs)) {
      WEFT_TRY(check_last_axis(0, in[0]));
      const int64_t end = first_position(attrs, indices) + indices.last();
      if (end > table.shape[0])
        return Status(Code::invalid,
                      cat("weight 0 expects ", end, " rows or more for the positions of input 0 ",
                          in[0].desc.text(), ", got ", table.text()));
    }
    Inferred inferred{.out = {DType::f32, indices}, .stash = {}, .scratch = 0};
    inferred.out.shape.rank = indices.rank + 1;
    inferred.out.shape[indices.rank] = table.shape[1];
    return inferred;
  }

  Status check_input(const Attrs& attrs, int port, std::span<const View> in,
                     std::span<const Desc> weights) const override {
    return check_rows(attrs, in[static_cast<size_t>(port)], weights[0]);
  }
  bool differentiable(int) const override { return false; }
  bool copies_weight() const override { return true; }
  bool adds_rows() const override { return true; }
  Uses uses_weight(const Attrs& attrs) const override {
    return {.in = positions(attrs) ? 0u : 1u, .out = false, .stash = false};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    return {
        .forward_flops = 0, .input_flops = 0, .weight_flops = static_cast<double>(out.elements())};
  }

  Status forward(const Call& call) const override {
    WEFT_TRY(check_rows(*call.attrs, call.in[0], call.weights[0].desc));
    const int64_t width = call.weights[0].desc.shape[1];
    for_ranges(*call.tiles, call.in[0].desc.elements(), tile_rows(width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t row = row_of(call, i);
                   float* out = call.out.f32() + i * width;
                   if (row < 0)
                     std::fill_n(out, width, 0.0f);
                   else
                     copy_weight(call, row * width, {out, static_cast<size_t>(width)});
                 }
               });
    return {};
  }

  Status input_grad(const Call&) const override { return {}; }

  // Tiles take columns, so that each number of the table is added to in the order of the rows.
  Status weight_grad(const Call& call) const override {
    WEFT_TRY(check_rows(*call.attrs, call.in[0], call.weights[0].desc));
    const int64_t width = call.acc.desc.shape[1], rows = call.in[0].desc.elements();
    for (int64_t i = 0; i < rows && call.rows; ++i)
      if (const int64_t row = row_of(call, i); row >= 0) call.rows->insert(row);
    for_ranges(*call.tiles, width, kColumns, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = row_of(call, i);
        if (row < 0) continue;
        float* acc = call.acc.f32() + row * width + begin;
        kernels::add(acc, call.dout.f32() + i * width + begin, acc, end - begin);
      }
    });
    return {};
  }
};

}  // namespace

const Op& embedding_op() {
  static const Embedding op;
  return op;
}

}  // namespace weft
