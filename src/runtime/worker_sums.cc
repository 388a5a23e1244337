// How a worker adds gradients, and how it updates weights.
#include <algorithm>
#include <cmath>

#include "engine/steps.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/ranges.h"
#include "runtime/tensor_loops.h"
#include "runtime/worker.h"

namespace weft {

namespace {

// Adds elements begin to end - 1 of these rows.
void add_rows(const RowSet& rows, const float* from, float* to, int64_t width, int64_t begin,
              int64_t end) {
  rows.each(begin / width, (end + width - 1) / width, [&](int64_t row) {
    const int64_t at = std::max(begin, row * width);
    kernels::add(from + at, to + at, to + at, std::min(end, (row + 1) * width) - at);
  });
}

}  // namespace

float* Worker::sum_at(const Place& place, const Desc& desc, int32_t depth) const {
  if (!place) return nullptr;
  return reinterpret_cast<float*>(arena_.data() + place.offset + depth * padded_bytes(desc));
}

RowSet* Worker::rows_at(const Place& place, int32_t depth) {
  const auto found = rows_.find(place.offset);
  return found == rows_.end() ? nullptr : &found->second[static_cast<size_t>(depth)];
}

void Worker::clear(const Place& place, const Desc& desc, int32_t depth) {
  float* sum = sum_at(place, desc, depth);
  RowSet* rows = rows_at(place, depth);
  if (!rows) return clear_tensor(tiles_, sum, desc.elements());
  const int64_t width = desc.shape.last();
  for_ranges(tiles_, desc.elements() / width, tile_rows(width), [&](int64_t begin, int64_t end) {
    rows->each(begin, end, [&](int64_t row) { std::fill_n(sum + row * width, width, 0.0f); });
  });
  rows->clear();
}

void Worker::clear(const PlacedOperand& accumulator, int32_t depth) {
  clear(accumulator.place, accumulator.desc[0], depth);
}

void Worker::fold(const PlacedOperand& accumulator, int32_t depth) {
  const Desc& desc = accumulator.desc[0];
  const float* above = sum_at(accumulator.place, desc, depth);
  float* below = sum_at(accumulator.place, desc, depth - 1);
  const RowSet* rows = rows_at(accumulator.place, depth);
  if (!rows) return add_tensors(tiles_, above, below, below, desc.elements());
  const int64_t width = desc.shape.last();
  for_ranges(tiles_, desc.elements() / width, tile_rows(width), [&](int64_t begin, int64_t end) {
    add_rows(*rows, above, below, width, begin * width, end * width);
  });
  rows_at(accumulator.place, depth - 1)->insert(*rows);
}

// The contribution of a replica without a micro-batch.
void Worker::clear_run(const ActionProgram& action) {
  for (const ProgramCall& call : action.calls)
    if (call.clears) clear(call.acc, 0);
}

// A sum that a micro-batch of this rank begins is cleared, or written, by its first call.
void Worker::clear(const StepDescriptor& step) {
  const bool has_any = plan_->micro_batches_at(step.mode, rank_).first < step.micro_batches;
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)])
    for (const ResidentTensor& t : p.of(ResidentTensor::Role::accumulator))
      if (t.local && t.run < 0) {
        const auto empty = empty_.find(t.place.offset);
        if (empty != empty_.end()) empty->second = has_any;
        if (empty == empty_.end() || !has_any) clear(t.place, t.desc, 0);
      }
}

// The accumulators of a sum are added as a tree over the replicas. These totals are then added from
// the last to the first, and the result is the gradient, or that of `parts` parts, of which the
// gradient is the mean.
void Worker::reduce(const Bucket& bucket, int32_t update, int32_t parts) {
  size_t sum = static_cast<size_t>(update) * owned_;
  auto part = bucket.parts.begin();
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    if (!p.owned) continue;
    double& squares = squares_[sum++];
    if (part == bucket.parts.end() || part->param != p.param) continue;
    const int64_t n = plan_->model->param(p.param).shape.elements();
    const bool ends = part->first == 0;
    float* const gradient = memory_of(p).grad;
    double* partials = reinterpret_cast<double*>(
        arena_.data() + p.of(ResidentTensor::Role::squares).front().place.offset);
    for_ranges(tiles_, n, kTileElements, [&](int64_t begin, int64_t end) {
      add_sums(p, *part, update, gradient, begin, end - begin);
      if (!ends) return;
      if (parts > 1)
        kernels::scale(gradient + begin, 1 / static_cast<float>(parts), gradient + begin,
                       end - begin);
      square_blocks(gradient, begin, end, partials);
    });
    if (ends) squares = sum_of_blocks(partials, n);
    // What is averaged has no part in the norm, but if it is not finite, there is no update.
    if (ends && plan_->model->param(p.param).average > 0 && std::isfinite(squares)) squares = 0;
    ++part;
  }
}

// Elements begin .. begin + count - 1. `gradient` can be the accumulator of the last sum. One whose
// rows are noted is +0 in the other rows.
void Worker::add_sums(const ResidentParam& p, const Bucket::Part& part, int32_t update,
                      float* gradient, int64_t begin, int64_t count) {
  const auto accumulators = p.of(ResidentTensor::Role::accumulator);
  const int32_t replicas = plan_->replicas_at(rank_);
  const auto sums = static_cast<int32_t>(accumulators.size()) / replicas;
  const auto at = [&](int32_t sum, int32_t replica) -> const ResidentTensor& {
    return accumulators[static_cast<size_t>(sum * replicas + replica)];
  };
  const auto acc = [&](int32_t sum, int32_t replica) {
    return reinterpret_cast<float*>(arena_.data() + at(sum, replica).sum_of(update));
  };
  for (int32_t sum = part.end - 1; sum >= part.first; --sum) {
    const bool last = sum + 1 == sums;
    add_tree(0, replicas, [&](int32_t from, int32_t to) {
      const bool whole = to == 0 && from == right_half(0, replicas);
      kernels::add(acc(sum, from) + begin, acc(sum, to) + begin,
                   (whole && last ? gradient : acc(sum, to)) + begin, count);
    });
    if (last && replicas == 1 && acc(sum, 0) != gradient)
      std::copy_n(acc(sum, 0) + begin, count, gradient + begin);
    if (last) continue;
    if (const RowSet* rows = rows_at(at(sum, 0).place, 0)) {
      kernels::add_zero(gradient + begin, count);
      add_rows(*rows, acc(sum, 0), gradient, accumulators.front().desc.shape.last(), begin,
               begin + count);
    } else {
      kernels::add(gradient + begin, acc(sum, 0) + begin, gradient + begin, count);
    }
  }
}

// Computes one version of the weights from another, which may be at the same address.
void Worker::update_weights(const Update& made, int32_t from, int32_t to) {
  const OptimSettings& optim = plan_->config.optim;
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    const Param& param = plan_->model->param(p.param);
    if (!p.updated) {
      if (!param.training.frozen)
        set_packed(p, false);  // the new value arrives before its next use
      continue;
    }
    const Shape& shape = param.shape;
    const ParamMemory memory = memory_of(p);
    const auto version = [&](int32_t number) {
      return memory.value.floats() +
             versions().offset(number) / static_cast<int64_t>(sizeof(float));
    };
    float* weight = version(to);
    if (weight != version(from))
      copy_bytes(tiles_, reinterpret_cast<std::byte*>(weight),
                 reinterpret_cast<const std::byte*>(version(from)), p.tensors.front().desc.bytes());
    if (param.average > 0) {
      // Of nodes that the loss depends on.
      const auto each = contributions_[static_cast<size_t>(p.param)];
      if (made.scale != 0 && each > 0)
        average(param.average, static_cast<double>(made.micro_batches) * each, shape.elements(),
                weight, memory.grad);
      continue;
    }
    const bool decays = optim.decay_all || shape.rank >= 2;
    const UpdateFactors factors{param.training.rate_factor,
                                decays ? param.training.decay_factor : 0};
    // Otherwise BLIS reads float32 weights in order.
    const bool packs = gemm_is_fused();
    const PackedForms packed = packs ? PackedForms(p, shape, arena_.data()) : PackedForms();
    update(optim, made.rate, made.number, made.scale, factors, shape.elements(), weight,
           memory.grad, memory.slots[0], memory.slots[1],
           {.packed = packed.all(), .in_order = memory.value.sent()}, tiles_);
    set_packed(p, packs);
  }
}

// Of the next segment.
void Worker::make_first(int32_t version) {
  if (versions().offset(version) == 0) return;
  copy_bytes(tiles_, arena_.data(), arena_.data() + versions().offset(version),
             static_cast<size_t>(versions().stride));
}

// An update of a stage has the number of the first micro-batch that it may contain. The rank knows
// only its own gradients: if one is not finite, it keeps its weights.
void Worker::run_update(const StepDescriptor& step, int32_t update) {
  const int32_t replicas = plan_->replicas_at(rank_);
  const uint64_t number =
      step.step + static_cast<uint64_t>(update) * static_cast<uint64_t>(replicas);
  reduce(program(step.mode).buckets.front(), update, replicas);
  const auto squares = std::span(squares_).subspan(static_cast<size_t>(update) * owned_, owned_);
  const bool finite =
      std::all_of(squares.begin(), squares.end(), [](double sum) { return std::isfinite(sum); });
  const int32_t round = versions().round,
                micro_batches = std::min(round, step.micro_batches - update * round) / replicas;
  update_weights({.rate = rate_of(step, plan_->config.optim, number),
                  .number = number / static_cast<uint64_t>(replicas),
                  .scale = finite ? 1.0 : 0.0,
                  .micro_batches = micro_batches},
                 update, update + 1);
}

}  // namespace weft
