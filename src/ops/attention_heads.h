// The heads of attention: their sizes, their places in the operands of a call, and how they are
// dealt to threads.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/free_scratch.h"
#include "ops/op.h"

namespace weft::attention {

inline constexpr int64_t kBlockRows = 64;
inline constexpr int64_t kBlockElements =
    131072;                                // a block has fewer rows where t is above 2048 ..
inline constexpr int64_t kLeastRows = 16;  // .. but not fewer than this

constexpr int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

// How many rows a row sees at most.
inline int64_t window_of(const Attrs& attrs) {
  return attrs.dims.rank > 0 ? attrs.dims[0] : INT64_MAX;
}

// `rows` are those of queries, `keys` those of keys and values. Steps are floats from one row to
// the next.
struct Sizes {
  int64_t heads, rows, keys, width, size, repeat, key_heads, step, key_step;
  int64_t samples, window;
  bool capped;
  int64_t heads_of_whole, first_head;  // of the node that this is a piece of

  // Shapes of the inputs.
  Sizes(const Attrs& attrs, const Shape& queries, const Shape* separate)
      : heads(attrs.heads),
        rows(queries[queries.rank - 2]),
        keys(separate ? (*separate)[separate->rank - 2] : rows),
        width(separate ? queries.last() : queries.last() / 3),
        size(width / heads),
        repeat(separate ? width / separate->last() : 1),
        key_heads(heads / repeat),
        step(queries.last()),
        key_step(separate ? separate->last() : step),
        samples(queries.elements(0, queries.rank - 2)),
        window(window_of(attrs)),
        capped(attrs.cap > 0),
        heads_of_whole(attrs.section.whole ? attrs.section.whole / size : heads),
        first_head(attrs.section.begin / size) {}

  explicit Sizes(const Call& call)
      : Sizes(*call.attrs, call.in[0].desc.shape,
              call.in.size() >= 3 ? &call.in[1].desc.shape : nullptr) {}

  int64_t heads_in_all() const { return samples * heads; }
  int64_t key_heads_in_all() const { return samples * key_heads; }
  // A multiple of 16, as softmax_block.h requires.
  int64_t block_rows() const {
    const int64_t affordable = kBlockElements / std::max<int64_t>(1, keys) / 16 * 16;
    return std::clamp(std::min(affordable, padded(rows)), kLeastRows, kBlockRows);
  }
  int64_t groups() const { return std::min(kMostParts, key_heads_in_all()); }
  // Keys and values, two blocks of scores, two of rows of q, dout or a result, one of capped
  // scores.
  int64_t group_floats() const {
    return 2 * (keys * padded(size) + block_rows() * (keys + padded(size))) +
           (capped ? block_rows() * keys : 0);
  }
};

// The input after queries, keys and values, if there is one: positions with a causal mask,
// otherwise the mask of keys.
inline const View* positions_of(const Call& call) {
  return call.in.size() % 2 == 0 && (call.attrs->flags & kCausal) ? &call.in.back() : nullptr;
}
inline const View* mask_of(const Call& call) {
  return call.in.size() % 2 == 0 && !(call.attrs->flags & kCausal) ? &call.in.back() : nullptr;
}

// One head of one sample. Rows of q and dq are Sizes::step apart, those of k, v and their gradients
// Sizes::key_step, those of out and dout Sizes::width.
struct Head {
  const float *q, *k, *v;
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
  int64_t index;                       // of it among all heads of all samples, of the whole node
  int64_t offset_out;                  // of its first element in out
  float *top, *inverse;                // its rows of the stash
  bool first;                          // of the heads that share keys and values
  const int32_t* positions = nullptr;  // of the sample's rows; null: row t has position t
  const int32_t* mask = nullptr;       // of the sample's keys: not 0 where seen; null: all are
};

// The same places in inputs and gradients; null if there is no tensor.
inline std::array<float*, 3> places(std::span<const View> views, const Sizes& s, int64_t sample,
                                    int64_t head) {
  if (views.size() <= 2) {
    if (!views[0]) return {};
    float* q = views[0].f32() + sample * s.rows * s.step + head * s.size;
    return {q, q + s.width, q + 2 * s.width};
  }
  const auto place = [&](const View& view, int64_t sample_floats, int64_t number) {
    return view ? view.f32() + sample * sample_floats + number * s.size : nullptr;
  };
  const int64_t key_head = head / s.repeat, key_floats = s.keys * s.key_step;
  return {place(views[0], s.rows * s.step, head), place(views[1], key_floats, key_head),
          place(views[2], key_floats, key_head)};
}

inline Head head_of(const Call& call, const Sizes& s, int64_t index) {
  const int64_t sample = index / s.heads, head = index % s.heads;
  const auto in = places(call.in, s, sample, head);
  Head h{.q = in[0],
         .k = in[1],
         .v = in[2],
         .index = sample * s.heads_of_whole + s.first_head + head,
         .offset_out = sample * s.rows * s.width + head * s.size,
         .top = call.stash[0].f32() + index * s.rows,
         .inverse = call.stash[1].f32() + index * s.rows,
         .first = head % s.repeat == 0};
  if (const View* positions = positions_of(call)) h.positions = positions->i32() + sample * s.rows;
  if (const View* mask = mask_of(call)) h.mask = mask->i32() + sample * s.keys;
  if (!call.din.empty()) {
    const auto din = places(call.din, s, sample, head);
    h.dq = din[0];
    h.dk = din[1];
    h.dv = din[2];
  }
  return h;
}

// Calls body(head, scratch) for every head. Heads that share keys and values follow one another
// with the same scratch.
template <typename F>
void for_heads(const Call& call, const Sizes& s, F&& body) {
  const int64_t groups = s.groups();
  if (groups == 0) return;
  FreeScratch free(groups);
  for_tiles(*call.tiles, static_cast<int>(groups), [&](int group) {
    const int part = free.take();
    float* scratch = static_cast<float*>(call.scratch) + part * s.group_floats();
    const auto first_head = [&](int64_t g) { return g * s.key_heads_in_all() / groups * s.repeat; };
    for (int64_t i = first_head(group); i < first_head(group + 1); ++i)
      body(head_of(call, s, i), scratch);
    free.give_back(part);
  });
}

}  // namespace weft::attention
