// Generators that fold the stages into a V: rank r has stages r and 2p-1-r, so that the first and
// the last stage share rank 0 and a micro-batch turns round on rank p-1 without a message. Both are
// lists of steps for at least as many micro-batches as fill the V. If there are fewer, the actions
// of the missing ones are left out, which does not affect the other arrows.
#include <algorithm>

#include "schedule/rows.h"

namespace weft {
namespace {

// A row of the V by chunk: 0 is stage r, 1 is stage 2p-1-r.
class Row {
 public:
  Row(Schedule& schedule, int32_t rank)
      : row_(schedule.rows[static_cast<size_t>(rank)]),
        micro_batches_(schedule.micro_batches),
        stage_{rank, schedule.stages - 1 - rank} {}

  // The next micro-batch of the chunk through F, I, W or B.
  void put(Kind kind, int chunk) {
    const int32_t k = done(kind, chunk);
    if (kind == Kind::F) ++forwards_[chunk];
    if (kind == Kind::I || kind == Kind::B) ++inputs_[chunk];
    if (kind == Kind::W || kind == Kind::B) ++weights_[chunk];
    if (kind == Kind::I) put_off_.push_back(chunk);
    if (k < micro_batches_) row_.push_back({stage_[chunk], kind, k});
  }
  // The oldest postponed weight gradient.
  void put_oldest_w() { put(Kind::W, put_off_[oldest_++]); }

  int32_t done(Kind kind, int chunk) const {
    return kind == Kind::F ? forwards_[chunk] : kind == Kind::W ? weights_[chunk] : inputs_[chunk];
  }

 private:
  std::vector<Action>& row_;
  int32_t micro_batches_;
  int32_t stage_[2];
  int32_t forwards_[2] = {}, inputs_[2] = {}, weights_[2] = {};  // by chunk
  std::vector<int> put_off_;
  size_t oldest_ = 0;
};

template <typename Body>
void times(int32_t count, Body&& body) {
  for (int32_t i = 0; i < count; ++i) body(i);
}

void write_zb_v(Row& row, int32_t p, int32_t r, int32_t n) {
  constexpr Kind F = Kind::F, I = Kind::I, W = Kind::W;
  times(2 * (p - r) - 1, [&](int32_t) { row.put(F, 0); });
  times(r, [&](int32_t) { row.put(F, 1), row.put(F, 0); });
  times(p - r, [&](int32_t) { row.put(F, 1), row.put(I, 1), row.put(W, 1); });
  while (row.done(F, 1) < row.done(F, 0) || row.done(F, 0) < n) {
    if (row.done(F, 0) < n) row.put(F, 0);
    row.put(I, 0), row.put(W, 0);
    row.put(F, 1), row.put(I, 1), row.put(W, 1);
  }
  times(r, [&](int32_t) { row.put(I, 0), row.put(I, 1); });
  times(p - r, [&](int32_t) { row.put(I, 0), row.put(W, 0); });
  while (row.done(W, 1) < n) row.put(W, 1);
  while (row.done(W, 0) < n) row.put(W, 0);
}

// DualPipeV of DeepSeek's DualPipe repository. Its pairs of a forward and a backward run at the
// same time there, and one after the other here.
void write_dualpipe_v(Row& row, int32_t p, int32_t r, int32_t n) {
  constexpr Kind F = Kind::F, I = Kind::I, B = Kind::B;
  times(2 * (p - 1 - r), [&](int32_t) { row.put(F, 0); });
  times(r + 1, [&](int32_t) { row.put(F, 0), row.put(F, 1); });
  times(p - 1 - r, [&](int32_t) { row.put(I, 1), row.put_oldest_w(), row.put(F, 1); });
  times(n - 2 * p + r + 1,
        [&](int32_t) { row.put(F, 0), row.put(B, 1), row.put(F, 1), row.put(B, 0); });
  times(p - 1 - r, [&](int32_t) { row.put(B, 1), row.put(F, 1), row.put(B, 0); });
  // In the second half, weight gradients are postponed to fill the drain.
  const int32_t half = (r + 1) / 2;
  times(r + 1, [&](int32_t i) {
    row.put(i > half || (i == half && r % 2 == 1) ? I : B, 1);
    row.put(i >= half ? I : B, 0);
  });
  times(p - 1 - r, [&](int32_t) { row.put_oldest_w(), row.put(I, 0); });
  times(r + 1, [&](int32_t) { row.put_oldest_w(); });
}

Result<Schedule> make(std::string_view name, const ScheduleSizes& sizes, int32_t least,
                      void (*write)(Row&, int32_t p, int32_t r, int32_t n)) {
  WEFT_TRY_ASSIGN(Schedule schedule,
                  begin_schedule({.name = name, .kinds = 3, .v_shaped = true}, sizes));
  for (int32_t r = 0; r < sizes.ranks; ++r) {
    Row row(schedule, r);
    write(row, sizes.ranks, r, std::max(sizes.micro_batches, 2 * sizes.ranks - least));
  }
  return schedule;
}

}  // namespace

Result<Schedule> make_zb_v(const ScheduleSizes& sizes) {
  return make("zb-v", sizes, 1, write_zb_v);
}

Result<Schedule> make_dualpipe_v(const ScheduleSizes& sizes) {
  return make("dualpipe-v", sizes, 0, write_dualpipe_v);
}

}  // namespace weft
