// attention: multi-head, scaled by 1 / sqrt(head size). One input f32[.., t, 3 d] with queries,
// keys and values side by side (as GPT-2 makes them), or three inputs f32[.., t, d]; output f32[..,
// t, d]. Head h owns columns [h d / heads, (h + 1) d / heads) of each.
//
//   for a block of rows:   S = Q K^T / sqrt(size)    P = softmax(S)    out = P V
//   I:                     dV += P^T dout    dP = dout V^T    dS = P (dP - rowsum(P dP))
//                          dQ = dS K / sqrt(size)    dK += dS^T Q / sqrt(size)
//
// Dropout of probabilities, if attrs.factor is above 0 and the step trains: P is masked where it
// meets V, and so is dP; the masks are made again where they are needed.
//
// No [t, t] matrix outlives a block of rows: forward keeps two numbers per row and head, the
// maximum of S and 1 / the sum of exp(S - maximum), of which I makes the same P again. Heads of all
// samples are dealt to at most kGroups tiles, each with scratch for one block; a head's blocks run
// one after another.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/packed.h"
#include "kernels/ranges.h"
#include "kernels/softmax_block.h"
#include "ops/check.h"
#include "ops/dropout.h"

namespace weft {

namespace {

using kernels::ScoreBlock;

constexpr int64_t kGroups = 16;
constexpr int64_t kBlockRows = 64;
constexpr int64_t kBlockElements = 131072;  // a block has fewer rows where t is above 2048 ..
constexpr int64_t kLeastRows = 16;          // .. but not fewer than this

struct Sizes {
  int64_t heads, rows, width, size, heads_in_all, row_step;
  int64_t heads_of_whole, first_head;  // of the node that this is a piece of

  Sizes(const Attrs& attrs, const Shape& in, bool packed)
      : heads(attrs.heads),
        rows(in[in.rank - 2]),
        width(packed ? in.last() / 3 : in.last()),
        size(width / heads),
        heads_in_all(in.elements(0, in.rank - 2) * heads),
        row_step(in.last()),
        heads_of_whole(attrs.section.whole ? attrs.section.whole / size : heads),
        first_head(attrs.section.begin / size) {}

  // A multiple of 16, as softmax_block.h requires.
  int64_t block_rows() const {
    const int64_t affordable = kBlockElements / std::max<int64_t>(1, rows) / 16 * 16;
    return std::clamp(std::min(affordable, (rows + 15) / 16 * 16), kLeastRows, kBlockRows);
  }
  int64_t groups() const { return std::min(kGroups, heads_in_all); }
  // Two blocks of scores, one of rows of q or dout, two numbers per row.
  int64_t group_floats() const { return block_rows() * (2 * rows + size + 2); }
};

// One head of one sample. Rows of q, k, v and their gradients are `step` apart, those of out and
// dout `out_step`.
struct Head {
  const float *q, *k, *v;
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
  int64_t index;                       // of it among all heads of all samples, of the whole node
  int64_t step, out_step, offset_out;  // offset_out: of its first element in out
  float *top, *inverse;                // its rows of the stash
};

// The same places in inputs and gradients; null if there is no tensor.
std::array<float*, 3> places(std::span<const View> views, const Sizes& s, int64_t sample,
                             int64_t head) {
  std::array<float*, 3> out{};
  for (size_t i = 0; i < 3; ++i) {
    const View& view = views[views.size() == 3 ? i : 0];
    const int64_t column =
        head * s.size + (views.size() == 3 ? 0 : static_cast<int64_t>(i) * s.width);
    if (view) out[i] = view.f32() + sample * s.rows * s.row_step + column;
  }
  return out;
}

Head head_of(const Call& call, const Sizes& s, int64_t index) {
  const int64_t sample = index / s.heads, head = index % s.heads;
  const auto in = places(call.in, s, sample, head);
  Head h{.q = in[0],
         .k = in[1],
         .v = in[2],
         .index = sample * s.heads_of_whole + s.first_head + head,
         .step = s.row_step,
         .out_step = s.width,
         .offset_out = sample * s.rows * s.width + head * s.size,
         .top = call.stash[0].f32() + index * s.rows,
         .inverse = call.stash[1].f32() + index * s.rows};
  if (!call.din.empty()) {
    const auto din = places(call.din, s, sample, head);
    h.dq = din[0];
    h.dk = din[1];
    h.dv = din[2];
  }
  return h;
}

// Calls body(head, scratch) for every head.
template <typename F>
void for_heads(const Call& call, const Sizes& s, F&& body) {
  const int64_t groups = s.groups();
  for_tiles(*call.tiles, static_cast<int>(groups), [&](int group) {
    float* scratch = static_cast<float*>(call.scratch) + group * s.group_floats();
    const int64_t end = (group + 1) * s.heads_in_all / groups;
    for (int64_t i = group * s.heads_in_all / groups; i < end; ++i)
      body(head_of(call, s, i), scratch);
  });
}

// The computation of one head. Blocks of scores are transposed (softmax_block.h); so are the
// block's rows of q and of dout.
class HeadKernel {
 public:
  HeadKernel(const Call& call, const Sizes& sizes, const Head& head, float* scratch)
      : call_(call),
        s_(sizes),
        h_(head),
        causal_((call.attrs->flags & kCausal) != 0),
        drops_(call.training && call.attrs->factor > 0),
        scores_(scratch),
        grads_(scores_ + s_.rows * s_.block_rows()),
        side_(grads_ + s_.rows * s_.block_rows()),
        top_(side_ + s_.size * s_.block_rows()),
        inverse_(top_ + s_.block_rows()),
        factor_(static_cast<float>(1 / std::sqrt(static_cast<double>(s_.size)))) {}

  void forward() const {
    for (int64_t first = 0; first < s_.rows; first += s_.block_rows()) {
      const int64_t rows = rows_from(first);
      const ScoreBlock p = scores(first);
      kernels::softmax_block(p, top_, inverse_);
      std::copy(top_, top_ + rows, h_.top + first);
      std::copy(inverse_, inverse_ + rows, h_.inverse + first);
      drop(p);
      float* out = call_.out.f32() + h_.offset_out + first * h_.out_step;
      gemm_tile({rows,
                 s_.size,
                 p.columns,
                 {p.data, p.width, kTransposed},
                 {h_.v, h_.step},
                 out,
                 h_.out_step});
      for (int64_t i = 0; i < rows; ++i)
        kernels::scale(out + i * h_.out_step, inverse_[i], out + i * h_.out_step, s_.size);
    }
  }

  // Last block first: it sees all columns even under a causal mask, so it writes all of dK and dV
  // and the others add to them.
  void backward() const {
    const int64_t step = s_.block_rows();
    const int64_t last = (s_.rows - 1) / step * step;
    for (int64_t first = last; first >= 0; first -= step) backward_block(first, first != last);
  }

 private:
  int64_t rows_from(int64_t first) const { return std::min(s_.block_rows(), s_.rows - first); }

  ScoreBlock block_at(float* data, int64_t first) const {
    return {data, s_.block_rows(), causal_ ? first + rows_from(first) : s_.rows, causal_, first};
  }

  // columns x (a block's rows)^T: `x` has a row per column, `rows` are the block's.
  void product_with_rows(const float* x, const float* rows, int64_t row_step, int64_t count,
                         const ScoreBlock& to, float factor) const {
    SerialTiles here;
    pack({rows, row_step, kTransposed}, s_.size, count, side_, here);
    std::fill(side_ + packed_floats(s_.size, count), side_ + s_.size * to.width, 0.0f);
    gemm_tile({.m = to.columns,
               .n = to.width,
               .k = s_.size,
               .a = {x, h_.step},
               .b = {},
               .c = to.data,
               .stride = to.width,
               .alpha = factor,
               .packed_b = side_});
  }

  ScoreBlock scores(int64_t first) const {
    const ScoreBlock block = block_at(scores_, first);
    product_with_rows(h_.k, h_.q + first * h_.step, h_.step, rows_from(first), block, factor_);
    return block;
  }

  void backward_block(int64_t first, bool add) const {
    const int64_t rows = rows_from(first), offset = h_.offset_out + first * h_.out_step;
    const float* dout = call_.dout.f32() + offset;
    const ScoreBlock p = scores(first), ds = block_at(grads_, first);
    std::fill(std::copy(h_.top + first, h_.top + first + rows, top_), top_ + p.width, 0.0f);
    std::fill(std::copy(h_.inverse + first, h_.inverse + first + rows, inverse_),
              inverse_ + p.width, 0.0f);
    kernels::probability_block(p, top_, inverse_);
    if (h_.dq || h_.dk) score_grads(first, p, ds, add);
    if (!h_.dv) return;
    drop(p);
    gemm_tile({p.columns,
               s_.size,
               rows,
               {p.data, p.width},
               {dout, h_.out_step},
               h_.dv,
               h_.step,
               1,
               add ? 1.f : 0.f});
  }

  void score_grads(int64_t first, const ScoreBlock& p, const ScoreBlock& ds, bool add) const {
    const int64_t rows = rows_from(first);
    const float* dout = call_.dout.f32() + h_.offset_out + first * h_.out_step;
    product_with_rows(h_.v, dout, h_.out_step, rows, ds, 1);
    drop(ds);
    kernels::score_grad_block(ds, p);
    if (h_.dq) {
      float* dq = h_.dq + first * h_.step;
      gemm_tile({rows,
                 s_.size,
                 ds.columns,
                 {ds.data, ds.width, kTransposed},
                 {h_.k, h_.step},
                 dq,
                 h_.step,
                 factor_});
    }
    if (h_.dk) {
      const float* q = h_.q + first * h_.step;
      gemm_tile({ds.columns,
                 s_.size,
                 rows,
                 {ds.data, ds.width},
                 {q, h_.step},
                 h_.dk,
                 h_.step,
                 factor_,
                 add ? 1.f : 0.f});
    }
  }

  // The order of the stream: heads, in a head columns, in a column rows.
  void drop(const ScoreBlock& block) const {
    if (!drops_) return;
    const Stream stream = dropout_stream(call_.key);
    const int64_t column = (s_.rows + 15) / 16 * 16;  // rows of the stream per column
    for (int64_t c = 0; c < block.columns; ++c) {
      float* at = block.data + c * block.width;
      const int64_t first = (h_.index * s_.rows + c) * column + block.first;
      kernels::dropout(stream, call_.attrs->factor, first, at,
                       std::min(block.width, column - block.first), at);
    }
  }

  const Call& call_;
  const Sizes& s_;
  const Head& h_;
  bool causal_, drops_;
  float *scores_, *grads_, *side_, *top_, *inverse_;
  float factor_;
};

class Attention final : public Op {
 public:
  std::string_view name() const override { return "attention"; }
  uint32_t reads() const override { return kCausal | kHeads | kFactor; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    if (in.size() != 1 && in.size() != 3)
      return Status(Code::invalid, cat("expected 1 or 3 inputs, got ", in.size()));
    WEFT_TRY(check_counts(in, in.size(), weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    const bool packed = in.size() == 1;
    const Desc& desc = in[0].desc;
    WEFT_TRY(check_last_axes(0, in[0], 2));
    for (int port = 1; port < static_cast<int>(in.size()); ++port) WEFT_TRY(check_same(in, port));
    if (attrs.heads < 1)
      return Status(Code::invalid, cat("heads is ", attrs.heads, ", expected 1 or more"));
    WEFT_TRY(check_probability(attrs));
    const int64_t unit = int64_t{attrs.heads} * (packed ? 3 : 1);
    if (desc.shape.last() == 0 || desc.shape.last() % unit != 0)
      return Status(
          Code::invalid,
          cat("input 0 expects a last dimension that is a multiple of ", unit, " (", attrs.heads,
              " heads", packed ? " of queries, keys and values)" : ")", ", got ", desc.text()));
    const Sizes s(attrs, desc.shape, packed);
    Inferred inferred{.out = desc, .stash = {}};
    inferred.stash = {{DType::f32, {s.heads_in_all, s.rows}},
                      {DType::f32, {s.heads_in_all, s.rows}}};
    inferred.out.shape[desc.shape.rank - 1] = s.width;
    inferred.scratch = static_cast<size_t>(s.groups() * s.group_floats()) * sizeof(float);
    return inferred;
  }

  // Whether one input or three.
  Uses uses_input(const Attrs&) const override {
    return {.in = 0b111, .out = false, .stash = true};
  }

  // Two products forward, five backward; a causal mask hides half of each.
  Cost cost(const Attrs& attrs, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double rows = static_cast<double>(out.shape[out.shape.rank - 2]);
    const double product =
        static_cast<double>(out.elements()) * rows * ((attrs.flags & kCausal) ? 1 : 2);
    const double mask = attrs.factor > 0
                            ? kDropoutFlops * rows * static_cast<double>(out.elements()) *
                                  attrs.heads / static_cast<double>(out.shape.last())
                            : 0;
    return {.forward_flops = 2 * product + mask,
            .input_flops = 5 * product + 2 * mask,
            .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc.shape, call.in.size() == 1);
    for_heads(call, s, [&](const Head& head, float* scratch) {
      HeadKernel(call, s, head, scratch).forward();
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc.shape, call.in.size() == 1);
    for_heads(call, s, [&](const Head& head, float* scratch) {
      HeadKernel(call, s, head, scratch).backward();
    });
    return {};
  }
};

}  // namespace

const Op& attention_op() {
  static const Attention op;
  return op;
}

}  // namespace weft
