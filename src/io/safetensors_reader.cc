#include <algorithm>
#include <array>
#include <numeric>

#include "base/text.h"
#include "io/safetensors.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

namespace weft {

namespace {

constexpr size_t kConverted = 16384;  // elements at a time
constexpr uint64_t kSampled = 4096;   // bytes of each tensor in a fingerprint

}  // namespace

std::optional<DType> SafetensorsEntry::known() const {
  for (const DType type : {DType::f32, DType::i32, DType::f64})
    if (dtype == file_dtype(type)) return type;
  return {};
}

Result<TensorSpec> SafetensorsEntry::spec() const {
  if (const auto type = known()) return TensorSpec{name, {*type, shape}};
  return Status(Code::unsupported, cat("tensor ", shown(name), ": dtype ", dtype,
                                       " cannot be loaded, expected F32, I32 or F64"));
}

Result<TensorSpec> SafetensorsEntry::float_spec() const {
  if (dtype == "F32" || dtype == "F16" || dtype == "BF16")
    return TensorSpec{name, {DType::f32, shape}};
  return Status(Code::unsupported, cat("tensor ", shown(name), ": dtype ", dtype,
                                       " cannot be loaded, expected F32, F16 or BF16"));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path,
                                              const SafetensorsLimits& limits, Links links) {
  SafetensorsFile out;
  WEFT_TRY_ASSIGN(out.file_, File::open(path, links));
  WEFT_TRY_ASSIGN(const uint64_t size, out.file_.size());
  if (size < 8) return Status(Code::data, cat(path, ": has ", size, " bytes, expected at least 8"));
  unsigned char prefix[8];
  WEFT_TRY(out.file_.read(0, prefix, sizeof prefix));
  WEFT_TRY_ASSIGN(const uint64_t count,
                  safetensors_header_bytes(prefix, size, limits).within(path));
  out.data_begin_ = 8 + count;
  out.data_bytes_ = size - out.data_begin_;
  std::string json(static_cast<size_t>(count), '\0');
  WEFT_TRY(out.file_.read(8, json.data(), json.size()));
  WEFT_TRY_ASSIGN(out.header_,
                  parse_safetensors_header(json, out.data_bytes_, limits).within(path));
  const auto& entries = out.header_.entries;
  out.by_name_.resize(entries.size());
  std::iota(out.by_name_.begin(), out.by_name_.end(), size_t{0});
  std::sort(out.by_name_.begin(), out.by_name_.end(),
            [&](size_t a, size_t b) { return entries[a].name < entries[b].name; });
  return out;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](size_t i, std::string_view wanted) { return header_.entries[i].name < wanted; });
  return it != by_name_.end() && header_.entries[*it].name == name ? &header_.entries[*it]
                                                                   : nullptr;
}

Status SafetensorsFile::read_bytes(const SafetensorsEntry& entry, std::span<std::byte> out) const {
  if (out.size() != entry.end - entry.begin)
    return Status(Code::invalid,
                  cat(path(), ": tensor ", shown(entry.name), ": has ", entry.end - entry.begin,
                      " bytes, but the memory has ", out.size()));
  return read_piece(entry, 0, out);
}

Status SafetensorsFile::read_piece(const SafetensorsEntry& entry, uint64_t offset,
                                   std::span<std::byte> out) const {
  const auto where = [&] { return cat(path(), ": tensor ", shown(entry.name)); };
  if (entry.end > data_bytes_ || entry.begin > entry.end)
    return Status(Code::invalid, cat(where(), ": does not belong to this file"));
  const uint64_t all = entry.end - entry.begin;
  if (offset > all || out.size() > all - offset)
    return Status(Code::invalid, cat(where(), ": has ", all, " bytes, requested are ", out.size(),
                                     " from byte ", offset));
  const Status status = file_.read(data_begin_ + entry.begin + offset, out.data(), out.size());
  return status.ok() ? status : status.within(cat("tensor ", shown(entry.name)));
}

Status SafetensorsFile::read_floats(const SafetensorsEntry& entry, uint64_t first,
                                    std::span<float> out) const {
  WEFT_TRY(entry.float_spec().status().within(path()));
  if (entry.dtype == "F32")
    return read_piece(entry, first * sizeof(float), std::as_writable_bytes(out));
  const auto convert = entry.dtype == "F16" ? kernels::from_f16 : kernels::from_bf16;
  std::array<uint16_t, kConverted> halves;
  for (size_t done = 0; done < out.size(); done += kConverted) {
    const size_t count = std::min(kConverted, out.size() - done);
    WEFT_TRY(read_piece(entry, (first + done) * sizeof halves[0],
                        std::as_writable_bytes(std::span(halves).first(count))));
    convert(halves.data(), out.data() + done, static_cast<int64_t>(count));
  }
  return {};
}

Result<Digest> SafetensorsFile::checksum() const { return checksum_of(file_, 0, bytes()); }

Result<Digest> SafetensorsFile::digest(const SafetensorsEntry& entry) const {
  return checksum_of(file_, data_begin_ + entry.begin, entry.end - entry.begin)
      .within(cat("tensor ", shown(entry.name)));
}

Result<Digest> SafetensorsFile::fingerprint() const {
  WEFT_TRY_ASSIGN(const Digest header, checksum_of(file_, 0, data_begin_));
  Hasher hasher;
  hasher.number(bytes()).digest(header);
  std::array<std::byte, kSampled> sample;
  for (const SafetensorsEntry& entry : entries()) {
    const auto size = static_cast<size_t>(std::min(kSampled, entry.end - entry.begin));
    WEFT_TRY(read_piece(entry, 0, std::span(sample).first(size)));
    hasher.bytes(sample.data(), size);
  }
  return hasher.finish();
}

}  // namespace weft
