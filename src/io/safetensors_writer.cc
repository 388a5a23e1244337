#include "base/text.h"
#include "io/safetensors.h"

namespace weft {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& given,
                                                    const std::vector<TensorSpec>& tensors,
                                                    const SafetensorsMetadata& metadata) {
  SafetensorsWriter out;
  WEFT_TRY_ASSIGN(const std::string path, place_for_file(given));
  WEFT_TRY_ASSIGN(out.header_, lay_out_safetensors(tensors, metadata).within(path));
  for (size_t i = 0; i < out.header_.entries.size(); ++i)
    out.by_name_.emplace(out.header_.entries[i].name, i);
  out.written_.resize(out.header_.entries.size());
  for (const SafetensorsEntry& entry : out.header_.entries)
    out.missing_.push_back(entry.end - entry.begin);
  out.data_bytes_ = out.header_.entries.empty() ? 0 : out.header_.entries.back().end;
  out.hasher_ = std::make_unique<Hasher>();

  const std::string text = print_safetensors_header(out.header_);
  if (const uint64_t most = SafetensorsLimits().header_bytes; text.size() - 8 > most)
    return Status(Code::invalid, cat(path, ": the header would have ", text.size() - 8,
                                     " bytes, expected at most ", most));
  WEFT_TRY_ASSIGN(out.file_, Replacement::create(path));
  out.path_ = path;
  out.data_begin_ = text.size();
  WEFT_TRY(out.file_.file().reserve(out.data_begin_ + out.data_bytes_));
  WEFT_TRY(out.file_.file().write(0, text.data(), text.size()));
  out.hasher_->bytes(text.data(), text.size());
  return out;
}

Status SafetensorsWriter::refuse(std::string_view name, const std::string& why) const {
  return Status(Code::invalid, cat(path_, ": tensor ", shown(name), ": ", why));
}

Result<size_t> SafetensorsWriter::find(std::string_view name) const {
  if (!file_) return Status(Code::state, cat(path_, ": is finished, no tensor can be added"));
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return refuse(name, "was not declared");
  if (written_[it->second]) return refuse(name, "is written already");
  return it->second;
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  WEFT_TRY_ASSIGN(const size_t index, find(name));
  const SafetensorsEntry& entry = header_.entries[index];
  if (bytes.size() != entry.end - entry.begin)
    return refuse(name, cat("has ", entry.end - entry.begin, " bytes, got ", bytes.size()));
  return write_piece(name, 0, bytes);
}

Status SafetensorsWriter::write_piece(std::string_view name, uint64_t offset,
                                      std::span<const std::byte> bytes) {
  WEFT_TRY_ASSIGN(const size_t index, find(name));
  const SafetensorsEntry& entry = header_.entries[index];
  const uint64_t all = entry.end - entry.begin;
  if (offset > all || bytes.size() > all - offset)
    return refuse(name, cat("has ", all, " bytes, got ", bytes.size(), " from byte ", offset));
  if (bytes.size() > missing_[index])
    return refuse(name, cat("lacks ", missing_[index], " bytes, got ", bytes.size()));
  WEFT_TRY(file_.file()
               .write(data_begin_ + entry.begin + offset, bytes.data(), bytes.size())
               .within(cat("tensor ", shown(name))));
  in_order_ = in_order_ && entry.begin + offset == hashed_;
  if (in_order_) hasher_->bytes(bytes.data(), bytes.size());
  hashed_ += bytes.size();
  missing_[index] -= bytes.size();
  written_[index] = missing_[index] == 0;
  return {};
}

Result<SafetensorsWriter::Written> SafetensorsWriter::finish() {
  if (!file_) return Status(Code::state, cat(path_, ": is finished already"));
  Replacement file = std::move(file_);
  for (size_t i = 0; i < written_.size(); ++i)
    if (!written_[i])
      return Status(Code::state, cat(path_, ": tensor ", shown(header_.entries[i].name),
                                     " was declared but not written"));
  Written out{data_begin_ + data_bytes_, hasher_->finish()};
  if (!in_order_) {
    WEFT_TRY_ASSIGN(out.checksum, checksum_of(file.file(), 0, out.bytes));
  }
  WEFT_TRY(file.commit());
  return out;
}

}  // namespace weft
