#include "tensor/shape.h"

#include <algorithm>
#include <cassert>

#include "base/text.h"

namespace weft {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::i32: return "i32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
  }
  return "?";
}

Shape::Shape(std::span<const int64_t> list) : rank(static_cast<int>(list.size())) {
  assert(list.size() <= kMaxRank);
  for (size_t i = 0; i < list.size(); ++i) dims[i] = list[i];
}

int64_t Shape::elements() const { return elements(0, rank); }

int64_t Shape::elements(int begin, int end) const {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= (*this)[i];
  return product;
}

std::string Shape::text() const {
  std::string out = "[";
  for (int i = 0; i < rank; ++i) out += cat(i ? "," : "", (*this)[i]);
  return out + "]";
}

Status check_shape(std::span<const int64_t> dims, DType dtype) {
  if (dims.size() > kMaxRank)
    return Status(Code::invalid,
                  cat("a shape has ", dims.size(), " dimensions, expected at most ", kMaxRank));
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0)
      return Status(Code::invalid, cat("dimension ", i, " is ", dims[i], ", expected 0 or more"));
    // The product of the other dimensions must not overflow either if one is 0.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dims[i], 1), &bytes))
      return Status(Code::invalid, cat("shape ", Shape(dims).text(),
                                       " has more bytes than a 64-bit size can count"));
  }
  return {};
}

std::string Desc::text() const { return cat(dtype_name(dtype), shape.text()); }

std::string texts_of(std::span<const Desc> descs) {
  std::string out;
  for (const Desc& desc : descs) append(out, out.empty() ? "" : ", ", desc.text());
  return out.empty() ? "none" : out;
}

}  // namespace weft
