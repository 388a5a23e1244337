// cached_attention: causal multi-head attention of single tokens, whose keys and values stay in the
// state of the node, so that later tokens of the sequence can attend to them. Inputs: queries, keys
// and values side by side f32[.., 3 d], or three inputs f32[.., d], f32[.., e] and f32[.., e]; then
// i32[..] positions and i32[..] sequences. dims: sequences, positions of each, and perhaps a
// window: to how many tokens one attends, itself included. Output: f32[.., d]. With a cap c, scores
// s become c tanh(s / c).
//
// There are heads heads of queries and e / (d / heads) of keys and values, which groups of queries
// share. A row with sequence -1 is padding, and its output is 0. The tokens of a sequence come in
// the order of their positions, in one micro-batch or in several; a sequence may go back to an
// earlier position, which forgets what follows.
//
// A row whose sequence is less than -1 (ops/cache_copy.h) copies the keys and values of a sequence
// up to its position, as far as the rows before it have stored them. It replaces what the other
// sequence had, and its output is 0.
//
// State: keys as packed factors (kernels/packed.h) f32[sequence][head][position / 16][size][16],
// values f32[sequence][head][position][size], both bf16 with kBf16Cache, and i32[sequence], the
// number of its positions.
//
// The arithmetic of a row is that of the same row of attention, and does not depend on the rows
// that it is computed with: sums over positions are cut into tiles of kTileColumns positions, of
// which a row takes those from the one that its window begins in to its own. What a row does not
// see affects no bit of it, even if it is not finite.
#include <algorithm>
#include <cmath>

#include "kernels/bf16.h"
#include "kernels/elementwise.h"
#include "kernels/free_scratch.h"
#include "kernels/packed.h"
#include "kernels/softmax_block.h"
#include "kernels/softmax_row.h"
#include "ops/cache_copy.h"
#include "ops/check.h"
#include "ops/finite_rows.h"
#include "ops/indices.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

using kernels::kTileColumns;

constexpr int64_t kBlockRows = 16;  // of queries

constexpr int64_t padded(int64_t n) { return (n + kStrip - 1) / kStrip * kStrip; }

struct Sizes {
  int64_t rows, heads, width, size, kv_heads, shared;  // shared: queries per key
  int64_t sequences, length, window;
  bool packed, bf16;

  Sizes(const Attrs& attrs, const Shape& q, const Shape& k, bool packed_)
      : rows(q.elements(0, q.rank - 1)),
        heads(attrs.heads),
        width(packed_ ? q.last() / 3 : q.last()),
        size(width / heads),
        kv_heads(packed_ ? heads : k.last() / size),
        shared(heads / std::max<int64_t>(1, kv_heads)),
        sequences(attrs.dims[0]),
        length(attrs.dims[1]),
        window(attrs.dims.rank > 2 ? attrs.dims[2] : length),
        packed(packed_),
        bf16((attrs.flags & kBf16Cache) != 0) {}

  explicit Sizes(const Call& call)
      : Sizes(*call.attrs, call.in[0].desc.shape, call.in[1].desc.shape, call.in.size() == 3) {}

  int64_t head_elements() const { return padded(length) * size; }
  int64_t groups() const { return std::min(kMostParts, rows * kv_heads); }
  int64_t query_rows() const { return kBlockRows * shared; }
  // Positions from the first tile that a block of rows sees.
  int64_t span() const {
    return std::min(padded(length), padded(window + kBlockRows + kTileColumns));
  }
  // Queries, results, scores and factors of the results, a tile of keys or values in f32. Many
  // heads of few elements and many positions are valid on their own: the number saturates.
  int64_t group_floats() const {
    const int64_t row = 2 * size + span() + 1, tile = bf16 ? kTileColumns * size : 0;
    return padded(sum_of_bytes(bytes_of_many(row, query_rows()), tile));
  }
  int64_t scratch_bytes() const {
    return bytes_of_many(bytes_of_many(group_floats(), sizeof(float)), groups());
  }
};

// Rows of a sequence that lie side by side, with ascending positions; or a copy.
struct Rows {
  int64_t first, count;
  int32_t sequence, position;
};

// Calls visit(run) for the rows from the first to the last, without padding.
template <typename Visit>
Status each_run(const Call& call, Visit&& visit) {
  const View &positions = call.in[call.in.size() - 2], &sequences = call.in.back();
  const int64_t rows = positions.desc.elements();
  for (int64_t i = 0; i < rows;) {
    Rows run{i, 1, sequences.i32()[i], positions.i32()[i]};
    while (i + run.count < rows && sequences.i32()[i + run.count] == run.sequence &&
           !is_copy(run.sequence) &&
           (run.sequence < 0 || positions.i32()[i + run.count] == run.position + run.count))
      ++run.count;
    i += run.count;
    if (run.sequence != -1) WEFT_TRY(visit(run));
  }
  return {};
}

class Kernel {
 public:
  explicit Kernel(const Call& call)
      : call_(call),
        s_(call),
        lengths_(call.state[2].i32()),
        factor_(static_cast<float>(1 / std::sqrt(static_cast<double>(s_.size)))),
        cap_(static_cast<float>(call.attrs->cap)) {}

  Status run() {
    std::fill_n(call_.out.f32(), s_.rows * s_.width, 0.0f);
    int64_t tasks = 0;
    const Status stored = each_run(call_, [&](const Rows& run) -> Status {
      if (is_copy(run.sequence)) return copy(run);
      WEFT_TRY(check(run));
      store(run);
      tasks += s_.kv_heads * ((run.count + kBlockRows - 1) / kBlockRows);
      return {};
    });
    if (!stored.ok()) return stored;
    if (tasks == 0) return {};
    const int64_t groups = std::min(s_.groups(), tasks);
    for_tiles(*call_.tiles, static_cast<int>(groups), [&](int group) {
      attend(group * tasks / groups, (group + 1) * tasks / groups,
             static_cast<float*>(call_.scratch) + group * s_.group_floats());
    });
    return {};
  }

 private:
  Status check(const Rows& run) {
    int32_t& length = lengths_[run.sequence];
    if (run.position > length)
      return Status(Code::data, cat("position ", run.position, " of sequence ", run.sequence,
                                    " follows ", length, " positions, expected at most ", length));
    if (run.position < length && has_rows(run.sequence, run.first))
      return Status(Code::data,
                    cat("sequence ", run.sequence, " goes back to position ", run.position,
                        " in row ", run.first, ", expected ascending positions in a micro-batch"));
    length = static_cast<int32_t>(run.position + run.count);
    return {};
  }

  // Whether a row before that one would read what the row replaces.
  bool has_rows(int64_t sequence, int64_t before) const {
    const int32_t* sequences = call_.in.back().i32();
    return std::find(sequences, sequences + before, sequence) != sequences + before;
  }

  const float* row_of(int tensor, int64_t row) const {
    if (s_.packed) return call_.in[0].f32() + row * 3 * s_.width + tensor * s_.width;
    const View& view = call_.in[static_cast<size_t>(tensor)];
    return view.f32() + row * view.desc.shape.last();
  }

  int64_t head_at(int64_t sequence, int64_t head) const {
    return (sequence * s_.kv_heads + head) * s_.head_elements();
  }

  void store(const Rows& run) const {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t position = run.position + i;
      const float *k = row_of(1, run.first + i), *v = row_of(2, run.first + i);
      for (int64_t head = 0; head < s_.kv_heads; ++head, k += s_.size, v += s_.size) {
        const int64_t at = head_at(run.sequence, head);
        const int64_t key = at + position / kStrip * kStrip * s_.size + position % kStrip,
                      value = at + position * s_.size;
        if (s_.bf16) {
          kernels::Bf16* keys = call_.state[0].bf16() + key;
          for (int64_t c = 0; c < s_.size; ++c) kernels::to_bf16(k + c, keys + c * kStrip, 1);
          kernels::to_bf16(v, call_.state[1].bf16() + value, s_.size);
        } else {
          float* keys = call_.state[0].f32() + key;
          for (int64_t c = 0; c < s_.size; ++c) keys[c * kStrip] = k[c];
          std::copy_n(v, s_.size, call_.state[1].f32() + value);
        }
      }
    }
  }

  Status copy(const Rows& row) {
    const CacheCopy copy = copy_of(row.sequence, s_.sequences);
    const int32_t count = row.position + 1, length = lengths_[copy.from];
    if (count > length)
      return Status(Code::data, cat("row ", row.first, " copies ", count, " positions of sequence ",
                                    copy.from, ", expected at most ", length, ", which it has"));
    if (has_rows(copy.to, row.first))
      return Status(Code::data,
                    cat("row ", row.first, " copies to sequence ", copy.to,
                        ", expected no row of that sequence before it in the micro-batch"));
    for_tiles(*call_.tiles, static_cast<int>(s_.kv_heads), [&](int head) {
      const int64_t from = head_at(copy.from, head), to = head_at(copy.to, head);
      copy_elements(call_.state[0], from, to, padded(count) * s_.size);
      copy_elements(call_.state[1], from, to, count * s_.size);
    });
    lengths_[copy.to] = count;
    return {};
  }

  void copy_elements(const View& state, int64_t from, int64_t to, int64_t count) const {
    if (s_.bf16)
      std::copy_n(state.bf16() + from, count, state.bf16() + to);
    else
      std::copy_n(state.f32() + from, count, state.f32() + to);
  }

  // Tasks `begin` to `end` - 1: blocks of rows of a head of a run.
  void attend(int64_t begin, int64_t end, float* scratch) const {
    int64_t task = 0;
    (void)each_run(call_, [&](const Rows& run) -> Status {
      if (is_copy(run.sequence)) return {};
      for (int64_t head = 0; head < s_.kv_heads; ++head)
        for (int64_t row = 0; row < run.count; row += kBlockRows, ++task)
          if (task >= begin && task < end)
            attend(run, row, std::min(kBlockRows, run.count - row), head, scratch);
      return {};
    });
  }

  // Rows from `first` on of the run, those queries that share a head of keys.
  void attend(const Rows& run, int64_t first, int64_t rows, int64_t head, float* scratch) const {
    const int64_t m = rows * s_.shared, n = run.position + first + rows;
    const int64_t begin =
        std::max<int64_t>(0, n - rows + 1 - s_.window) / kTileColumns * kTileColumns;
    float *tile = scratch, *q = tile + (s_.bf16 ? kTileColumns * s_.size : 0),
          *out = q + m * s_.size, *scores = out + m * s_.size, *inverse = scores + m * s_.span();
    for (int64_t i = 0; i < m; ++i)
      std::copy_n(row_of(0, run.first + first + i / s_.shared) + query_column(head, i), s_.size,
                  q + i * s_.size);
    const int64_t at = head_at(run.sequence, head);
    for (int64_t c = begin; c < n; c += kTileColumns) {
      const int64_t columns = std::min(kTileColumns, padded(n - c));
      gemm_tile({.m = m,
                 .n = columns,
                 .k = s_.size,
                 .a = {q, s_.size},
                 .b = {},
                 .c = scores + c - begin,
                 .stride = s_.span(),
                 .alpha = factor_,
                 .packed_b = part(0, at + c * s_.size, columns, tile)});
    }
    const auto end_of = [&](int64_t i) { return run.position + first + i / s_.shared + 1; };
    const auto start_of = [&](int64_t i) { return std::max(begin, end_of(i) - s_.window); };
    for (int64_t i = 0; i < m; ++i) {
      const int64_t start = start_of(i), end = end_of(i);
      float *row = scores + i * s_.span(), *seen = row + start - begin;
      if (cap_ > 0) kernels::softcap(seen, cap_, seen, end - start);
      inverse[i] = 1 / kernels::exponentials_of_row(seen, start, end - start);
      std::fill(row, seen, 0.0f);
      std::fill(row + end - begin, row + n - begin, 0.0f);
    }
    multiply_values(at, scores, m, begin, n, tile, out);
    attention::correct_rows(out, m, s_.size, [&](int64_t i, float* row) {
      const int64_t start = start_of(i);
      multiply_values(at, scores + i * s_.span() + start - begin, 1, start, end_of(i), tile, row);
    });
    for (int64_t i = 0; i < m; ++i) {
      const int64_t row = run.first + first + i / s_.shared;
      kernels::scale(out + i * s_.size, inverse[i],
                     call_.out.f32() + row * s_.width + query_column(head, i), s_.size);
    }
  }

  // out = the product of rows of scores and the values at positions `begin` to `end` - 1.
  void multiply_values(int64_t at, const float* scores, int64_t rows, int64_t begin, int64_t end,
                       float* tile, float* out) const {
    for (int64_t c = begin, next = 0; c < end; c = next) {
      next = std::min(end, c / kTileColumns * kTileColumns + kTileColumns);
      gemm_tile({.m = rows,
                 .n = s_.size,
                 .k = next - c,
                 .a = {scores + c - begin, s_.span()},
                 .b = {part(1, at + c * s_.size, next - c, tile), s_.size},
                 .c = out,
                 .stride = s_.size,
                 .alpha = 1,
                 .beta = c > begin ? 1.0f : 0.0f});
    }
  }

  int64_t query_column(int64_t head, int64_t i) const {
    return (head * s_.shared + i % s_.shared) * s_.size;
  }

  // Keys or values of some positions, in f32.
  const float* part(size_t state, int64_t at, int64_t positions, float* copy) const {
    if (!s_.bf16) return call_.state[state].f32() + at;
    kernels::from_bf16(call_.state[state].bf16() + at, copy, positions * s_.size);
    return copy;
  }

  const Call& call_;
  const Sizes s_;
  int32_t* lengths_;
  const float factor_, cap_;
};

class CachedAttention final : public Op {
 public:
  std::string_view name() const override { return "cached_attention"; }
  uint32_t reads() const override { return kHeads | kCap | kDims | kBf16Cache; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    const bool packed = in.size() == 3;
    WEFT_TRY(check_counts(in, packed ? 3 : 5, weights, 0));
    const size_t tensors = packed ? 1 : 3;
    const Shape& q = in[0].desc.shape;
    if (q.rank < 2)
      return Status(Code::invalid, cat("input 0 expects rank 2 or more, got ", in[0].desc.text()));
    Desc expected{DType::i32, q};  // of positions and sequences
    --expected.shape.rank;
    expected.shape[expected.shape.rank] = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const Desc& desc = in[i].desc;
      const auto port = static_cast<int>(i);
      if (i < tensors) WEFT_TRY(check_dtype(port, desc, DType::f32));
      Desc rows{DType::i32, desc.shape};
      if (i < tensors) {
        rows.shape.rank = std::max(0, rows.shape.rank - 1);
        rows.shape[rows.shape.rank] = 0;
      }
      if (rows != expected || (i >= tensors && desc != expected))
        return Status(Code::invalid,
                      cat(port_name(port), " expects ",
                          i < tensors ? cat("rows ", expected.shape.text()) : expected.text(),
                          " to go with input 0 ", in[0].desc.text(), ", got ", desc.text()));
    }
    const int64_t width = packed ? q.last() / 3 : q.last();
    if (attrs.heads < 1 || q.last() != width * (packed ? 3 : 1) || width % attrs.heads != 0 ||
        width == 0)
      return Status(Code::invalid,
                    cat("heads is ", attrs.heads, ", expected a divisor of the width ",
                        packed ? "of a third of " : "of ", "input 0 ", in[0].desc.text()));
    if (!packed) WEFT_TRY(check_shared(in, width / attrs.heads, attrs.heads));
    if (attrs.cap != 0) WEFT_TRY(check_cap(attrs));
    if (!are_sizes(attrs.dims))
      return Status(Code::invalid,
                    cat("dims is ", attrs.dims.text(),
                        ", expected the number of sequences, of positions, and maybe a window"));
    const Sizes s(attrs, q, in[1].desc.shape, packed);
    const Desc cache{s.bf16 ? DType::bf16 : DType::f32,
                     {s.sequences, s.kv_heads, padded(s.length), s.size}};
    Desc out = in[0].desc;
    out.shape[q.rank - 1] = width;
    return Inferred{.out = out,
                    .stash = {},
                    .scratch = static_cast<size_t>(s.scratch_bytes()),
                    .state = {cache, cache, {DType::i32, {s.sequences}}}};
  }

  bool differentiable(int) const override { return false; }

  // On average a token sees half of the positions, or its window.
  Cost cost(const Attrs& attrs, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const auto length = static_cast<double>(attrs.dims[1]);
    const double window =
        attrs.dims.rank > 2 ? std::min(length, static_cast<double>(attrs.dims[2])) : length;
    const double seen = window * (1 - window / (2 * length));
    const double heads =
        static_cast<double>(out.elements()) * attrs.heads / static_cast<double>(out.shape.last());
    const double cap = attrs.cap > 0 ? kCapFlops * seen * heads : 0;
    return {.forward_flops = 4.0 * static_cast<double>(out.elements()) * seen + cap,
            .input_flops = 0,
            .weight_flops = 0};
  }

  Status check_input(const Attrs& attrs, int port, std::span<const View> in,
                     std::span<const Desc>) const override {
    const auto sequences = static_cast<int>(in.size()) - 1;
    if (port == sequences) return check_sequences(attrs, port, in.back());
    return port == sequences - 1 && in.back() ? check_positions(attrs, in) : Status();
  }

  Status forward(const Call& call) const override {
    WEFT_TRY(check_input(*call.attrs, static_cast<int>(call.in.size()) - 1, call.in, {}));
    WEFT_TRY(check_positions(*call.attrs, call.in));
    return Kernel(call).run();
  }
  Status input_grad(const Call&) const override { return {}; }

 private:
  static Status check_sequences(const Attrs& attrs, int port, const View& sequences) {
    const int64_t places = attrs.dims[0], least = -1 - places * places;
    for (int64_t i = 0; i < sequences.desc.elements(); ++i) {
      const int32_t at = sequences.i32()[i];
      if (at >= places)
        return Status(Code::data, cat("input ", port, ": element ", i, " is ", at,
                                      ", expected 0 to ", places - 1, ", or -1 for padding"));
      if (at < least)
        return Status(Code::data, cat("input ", port, ": element ", i, " is ", at, ", expected ",
                                      least, " to -2 for a copy, or -1 for padding"));
      if (!is_copy(at)) continue;
      const CacheCopy copy = copy_of(at, places);
      if (copy.from == copy.to)
        return Status(Code::data,
                      cat("input ", port, ": element ", i, " is ", at, ", a copy of sequence ",
                          copy.from, " to itself, expected two sequences"));
    }
    return {};
  }

  static Status check_positions(const Attrs& attrs, std::span<const View> in) {
    const View &positions = in[in.size() - 2], &sequences = in.back();
    for (int64_t i = 0; i < positions.desc.elements(); ++i)
      if (const int32_t at = positions.i32()[i];
          sequences.i32()[i] != -1 && (at < 0 || at >= attrs.dims[1]))
        return Status(Code::data, cat("input ", in.size() - 2, ": element ", i, " is ", at,
                                      ", expected 0 to ", attrs.dims[1] - 1));
    return {};
  }

  static bool are_sizes(const Shape& dims) {
    if (dims.rank < 2 || dims.rank > 3) return false;
    for (int i = 0; i < dims.rank; ++i)
      if (dims[i] < 1 || dims[i] > INT32_MAX) return false;
    return true;
  }

  static Status check_shared(std::span<const Operand> in, int64_t size, int64_t heads) {
    const int64_t columns = in[1].desc.shape.last(), kv_heads = columns / size;
    if (columns % size != 0 || kv_heads < 1 || heads % kv_heads != 0)
      return Status(Code::invalid,
                    cat("input 1 expects heads of ", size, " columns, whose number divides ", heads,
                        ", got ", in[1].desc.text()));
    return check_same_as(in[1], in[2], 2);
  }
};

}  // namespace

const Op& cached_attention_op() {
  static const CachedAttention op;
  return op;
}

}  // namespace weft
