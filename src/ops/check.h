// Common checks for infer(). Errors name the port, the expected and the found value.
#pragma once

#include <span>
#include <string>

#include "base/text.h"
#include "ops/op.h"

namespace weft {

inline std::string port_name(int port) { return cat("input ", port); }

inline Status check_counts(std::span<const Operand> in, size_t inputs,
                           std::span<const Desc> weights, size_t weight_count) {
  if (in.size() != inputs)
    return Status(Code::invalid, cat("expected ", inputs, " inputs, got ", in.size()));
  if (weights.size() != weight_count)
    return Status(Code::invalid, cat("expected ", weight_count, " weights, got ", weights.size()));
  return {};
}

inline Status check_dtype(int port, const Desc& desc, DType dtype) {
  if (desc.dtype == dtype) return {};
  return Status(Code::invalid,
                cat(port_name(port), " expects ", dtype_name(dtype), ", got ", desc.text()));
}

// For ops that only move elements.
inline Status check_movable(int port, const Desc& desc) {
  if (size_of(desc.dtype) == 4) return {};
  return Status(Code::invalid, cat(port_name(port), " expects f32 or i32, got ", desc.text()));
}

inline Status check_axis(int port, const Desc& desc, int axis) {
  if (axis >= 0 && axis < desc.shape.rank) return {};
  return Status(Code::invalid, cat("axis is ", axis, ", expected 0 to ", desc.shape.rank - 1,
                                   " for ", port_name(port), " ", desc.text()));
}

// An op works along the last `count` axes: they must exist and must not be the batch.
inline Status check_last_axes(int port, const Operand& operand, int count) {
  const int least = count + (operand.batched ? 1 : 0);
  if (operand.desc.shape.rank >= least) return {};
  return Status(Code::invalid, cat(port_name(port), " expects ", least, " or more dimensions",
                                   operand.batched ? " (axis 0 is the batch)" : "", ", got ",
                                   operand.desc.text()));
}

inline Status check_last_axis(int port, const Operand& operand) {
  return check_last_axes(port, operand, 1);
}

// An op mixes elements along `axis`.
inline Status check_not_batch(int port, const Operand& operand, int axis) {
  if (!operand.batched || axis != 0) return {};
  return Status(Code::invalid, cat("axis is 0, expected 1 or more: axis 0 of ", port_name(port),
                                   " ", operand.desc.text(), " is the batch"));
}

// Input `port` has the dtype and shape that input `with` requires, and is batched if and only if
// that is expected.
inline Status check_same_as(const Operand& expected, const Operand& operand, int port,
                            int with = 0) {
  const auto text = [](bool batched) { return batched ? "batched " : "unbatched "; };
  if (operand.desc != expected.desc)
    return Status(Code::invalid,
                  cat(port_name(port), " expects ", expected.desc.text(), " to go with ",
                      port_name(with), ", got ", operand.desc.text()));
  if (operand.batched != expected.batched)
    return Status(Code::invalid, cat(port_name(port), " expects ", text(expected.batched),
                                     expected.desc.text(), " to go with ", port_name(with),
                                     ", got ", text(operand.batched), operand.desc.text()));
  return {};
}

// Operations per element of softcap.
constexpr double kCapFlops = 32;

inline Status check_cap(const Attrs& attrs) {
  constexpr double kLeast = 1e-30, kMost = 1e30;  // a float contains them and their inverses
  if (attrs.cap >= kLeast && attrs.cap <= kMost) return {};
  return Status(Code::invalid,
                cat("cap is ", attrs.cap, ", expected a number from ", kLeast, " to ", kMost));
}

inline Status check_same(std::span<const Operand> in, int port) {
  return check_same_as(in[0], in[static_cast<size_t>(port)], port);
}

}  // namespace weft
