#include "ops/broadcast.h"

#include "ops/check.h"

namespace weft {

namespace {

// Widens `out` by an operand whose dimensions from `from` on go with the last ones of `out`.
bool widen(Shape& out, const Shape& operand, int from) {
  for (int i = 0; i < operand.rank; ++i) {
    int64_t& extent = out[from + i];
    if (extent == 1) extent = operand[i];
    if (operand[i] != 1 && operand[i] != extent) return false;
  }
  return true;
}

Status check_port(const Operand& first, const Operand& operand, int port, const Shape& out) {
  if (operand.batched != first.batched)
    return check_same_as({{operand.desc.dtype, operand.desc.shape}, first.batched}, operand, port);
  const bool samples = !operand.batched || (operand.desc.shape.rank > 0 && out.rank > 0 &&
                                            operand.desc.shape[0] == out[0]);
  Shape widened = out;
  if (samples && operand.desc.shape.rank == out.rank && widen(widened, operand.desc.shape, 0))
    return {};
  return Status(
      Code::invalid,
      cat(port_name(port), " expects the dimensions ", out.text(), ", or 1 in place of any",
          operand.batched ? " after the batch" : "", ", got ", operand.desc.text()));
}

}  // namespace

Result<Shape> broadcast_shape(std::span<const Operand> in, std::span<const Desc> weights) {
  Shape out = in[0].desc.shape;
  for (size_t i = 1; i < in.size(); ++i) {
    WEFT_TRY(check_port(in[0], in[i], static_cast<int>(i), out));
    widen(out, in[i].desc.shape, 0);
  }
  const int samples = in[0].batched ? 1 : 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    Shape widened = out;
    const int from = out.rank - weights[i].shape.rank;
    if (weights[i].dtype != DType::f32 || from < samples || !widen(widened, weights[i].shape, from))
      return Status(Code::invalid,
                    cat("weight ", i, " expects the last dimensions of ", out.text(),
                        ", or 1 in place of any, without the batch, got ", weights[i].text()));
    out = widened;
  }
  return out;
}

Broadcast::Broadcast(const Shape& out, std::span<const View> in, std::span<const View> weights)
    : operands_(in.size() + weights.size()) {
  std::array<const Shape*, kMostOperands> shapes{};
  for (size_t i = 0; i < in.size(); ++i) shapes[i] = &in[i].desc.shape;
  for (size_t i = 0; i < weights.size(); ++i) shapes[in.size() + i] = &weights[i].desc.shape;
  uint32_t merged = 0;  // which operands repeat the last dimension so far
  for (int d = 0; d < out.rank; ++d) {
    if (out[d] == 1) continue;
    uint32_t repeated = 0;
    std::array<int64_t, kMostOperands> strides{};
    for (size_t i = 0; i < operands_; ++i) {
      const Shape& shape = *shapes[i];
      const int at = d - (out.rank - shape.rank);
      if (at < 0 || shape[at] == 1)
        repeated |= 1u << i;
      else
        strides[i] = shape.elements(at + 1, shape.rank);
    }
    if (rank_ == 0 || repeated != merged) extent_[static_cast<size_t>(rank_++)] = 1;
    extent_[static_cast<size_t>(rank_ - 1)] *= out[d];
    for (size_t i = 0; i < operands_; ++i) stride_[i][static_cast<size_t>(rank_ - 1)] = strides[i];
    merged = repeated;
  }
  if (rank_ == 0) {
    extent_[0] = 1;
    rank_ = 1;
    for (size_t i = 0; i < operands_; ++i) stride_[i][0] = 1;
  }
  repeats_inner_ = merged != 0;
}

int64_t Broadcast::rows() const {
  int64_t out = 1;
  for (int d = 0; d + 1 < rank_; ++d) out *= extent_[static_cast<size_t>(d)];
  return out;
}

int64_t Broadcast::offset(size_t operand, const Part& part) const {
  int64_t out = part.first * inner_stride(operand), row = part.row;
  for (int d = rank_ - 2; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    out += row % extent_[at] * stride_[operand][at];
    row /= extent_[at];
  }
  return out;
}

bool Broadcast::repeats(size_t operand) const {
  return inner_stride(operand) == 0 || count(operand, true) != 1;
}

int64_t Broadcast::count(size_t operand, bool repeated) const {
  int64_t out = 1;
  for (int d = 0; d + 1 < rank_; ++d) {
    const auto at = static_cast<size_t>(d);
    if ((stride_[operand][at] == 0) == repeated) out *= extent_[at];
  }
  return out;
}

int64_t Broadcast::row_at(size_t operand, bool repeated, int64_t index) const {
  int64_t out = 0, rows = 1;
  for (int d = rank_ - 2; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    if ((stride_[operand][at] == 0) == repeated) {
      out += index % extent_[at] * rows;
      index /= extent_[at];
    }
    rows *= extent_[at];
  }
  return out;
}

}  // namespace weft
