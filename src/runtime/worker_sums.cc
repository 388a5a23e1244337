// How a worker adds gradients, and how it updates weights.
#include "engine/steps.h"
#include "kernels/gemm.h"
#include "kernels/ranges.h"
#include "runtime/tensor_loops.h"
#include "runtime/worker.h"

namespace weft {

float* Worker::sum_at(const PlacedOperand& accumulator, int32_t depth) const {
  if (!accumulator.place) return nullptr;
  return reinterpret_cast<float*>(arena_.data() + accumulator.place.offset +
                                  depth * padded_bytes(accumulator.desc[0]));
}

void Worker::clear(const PlacedOperand& accumulator, int32_t depth) {
  clear_tensor(tiles_, sum_at(accumulator, depth), accumulator.desc[0].elements());
}

void Worker::fold(const PlacedOperand& accumulator, int32_t depth) {
  float* below = sum_at(accumulator, depth - 1);
  add_tensors(tiles_, sum_at(accumulator, depth), below, below, accumulator.desc[0].elements());
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
        if (empty == empty_.end() || !has_any)
          clear_tensor(tiles_, reinterpret_cast<float*>(arena_.data() + t.place.offset),
                       t.desc.elements());
      }
}

// The accumulators of a sum are added as a tree over the replicas. These totals are then added from
// the last to the first, and the result is the gradient, or that of `parts` parts, of which the
// gradient is the mean. In place, except for gradients whose accumulators are not kept.
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
      add_sums(p, *part, gradient, begin, end - begin);
      if (!ends) return;
      if (parts > 1)
        kernels::scale(gradient + begin, 1 / static_cast<float>(parts), gradient + begin,
                       end - begin);
      square_blocks(gradient, begin, end, partials);
    });
    if (ends) squares = sum_of_blocks(partials, n);
    ++part;
  }
}

// Elements begin .. begin + count - 1.
void Worker::add_sums(const ResidentParam& p, const Bucket::Part& part, float* gradient,
                      int64_t begin, int64_t count) const {
  const auto accumulators = p.of(ResidentTensor::Role::accumulator);
  const int32_t replicas = plan_->replicas_at(rank_);
  const auto sums = static_cast<int32_t>(accumulators.size()) / replicas;
  const bool kept = accumulators.front().run < 0;
  const auto acc = [&](int32_t sum, int32_t replica) {
    const Place& place = accumulators[static_cast<size_t>(sum * replicas + replica)].place;
    return reinterpret_cast<float*>(arena_.data() + place.offset) + begin;
  };
  // From this sum on.
  const auto total_from = [&](int32_t sum) { return kept ? acc(sum, 0) : gradient + begin; };
  for (int32_t sum = part.end - 1; sum >= part.first; --sum) {
    const bool last = sum + 1 == sums;
    add_tree(0, replicas, [&](int32_t from, int32_t to) {
      const bool whole = to == 0 && from == right_half(0, replicas);
      kernels::add(acc(sum, from), acc(sum, to), whole && last ? total_from(sum) : acc(sum, to),
                   count);
    });
    if (!last) kernels::add(total_from(sum + 1), acc(sum, 0), total_from(sum), count);
  }
}

// Computes one version of the weights from another, which may be at the same address.
void Worker::update_weights(uint64_t step, uint64_t made, int32_t from, int32_t to, double scale) {
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
    const bool decays = optim.decay_all || shape.rank >= 2;
    const UpdateFactors factors{param.training.rate_factor,
                                decays ? param.training.decay_factor : 0};
    // Otherwise BLIS reads float32 weights in order.
    const bool packs = gemm_is_fused();
    const PackedForms packed = packs ? PackedForms(p, shape, arena_.data()) : PackedForms();
    update(optim, step, made, scale, factors, shape.elements(), weight, memory.grad,
           memory.slots[0], memory.slots[1], packed.all(), tiles_);
    set_packed(p, packs);
  }
}

// Of the next segment.
void Worker::make_first(int32_t version) {
  if (versions().offset(version) == 0) return;
  copy_bytes(tiles_, arena_.data(), arena_.data() + versions().offset(version),
             static_cast<size_t>(versions().stride));
}

// An update of a stage has the number of the first micro-batch that it may contain.
void Worker::run_update(const StepDescriptor& step, int32_t update, double scale) {
  const int32_t replicas = plan_->replicas_at(rank_);
  const uint64_t number =
      step.step + static_cast<uint64_t>(update) * static_cast<uint64_t>(replicas);
  reduce(program(step.mode).buckets.front(), update, replicas);
  update_weights(number, number / static_cast<uint64_t>(replicas), update, update + 1, scale);
}

}  // namespace weft
