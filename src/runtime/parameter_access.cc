#include "runtime/parameter_access.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {

constexpr uint64_t kHashedTogether = uint64_t{1} << 16;  // elements

}  // namespace

Result<PartRange> PartRange::find(const Plan& plan, const Worker::ParamMemory& memory,
                                  ParamId param, Part part, uint64_t offset, uint64_t count) {
  PartRange out;
  out.at_ = part == Part::value  ? memory.value.only_floats()
            : part == Part::grad ? memory.grad
                                 : memory.slots[part == Part::state0 ? 0 : 1];
  if (part == Part::value) {
    out.weight_ = memory.value;
    out.initial_ = memory.initial;
  }
  out.param_ = param;
  if (!out.at_ && !out.weight_)
    return Status(Code::not_found, cat("parameter '", plan.model->param(param).name,
                                       "' has no such tensor with this model and optimizer"));
  if (out.at_) out.at_ += offset;
  out.offset_ = offset;
  out.count_ = count;
  return out;
}

std::span<const float> PartRange::read() {
  if (initial_) initial_->draw(param_);
  const std::span<float> out = span();
  if (!at_) weight_.read(static_cast<int64_t>(offset_), out);
  return out;
}

std::span<float> PartRange::floats() {
  if (initial_) initial_->begin_write(param_, static_cast<int64_t>(offset_));
  return span();
}

std::span<float> PartRange::span() {
  if (at_) return {at_, count_};
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<float[]>(count_);
  return {buffer_.get(), count_};
}

void PartRange::store() {
  if (!at_) weight_.write(static_cast<int64_t>(offset_), span());
  if (initial_) initial_->end_write(param_, static_cast<int64_t>(count_));
}

Result<Digest> hash_part(const Plan& plan, const Worker::ParamMemory& memory, ParamId param,
                         Part part) {
  const auto all = static_cast<uint64_t>(plan.model->param(param).shape.elements());
  Hasher hasher;
  for (uint64_t offset = 0; offset < all; offset += kHashedTogether) {
    WEFT_TRY_ASSIGN(PartRange range, PartRange::find(plan, memory, param, part, offset,
                                                     std::min(kHashedTogether, all - offset)));
    const std::span<const float> values = range.read();
    hasher.bytes(values.data(), values.size_bytes());
  }
  return hasher.finish();
}

}  // namespace weft
