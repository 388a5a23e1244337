#include <filesystem>

#include "base/text.h"
#include "io/safetensors.h"

namespace weft {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& given,
                                                    const std::vector<TensorSpec>& tensors,
                                                    const SafetensorsMetadata& metadata) {
  SafetensorsWriter out;
  WEFT_TRY_ASSIGN(const std::string path, place_for_file(given));
  auto header = lay_out_safetensors(tensors, metadata);
  if (!header.ok()) return header.status().within(path);
  out.header_ = header.take();
  for (size_t i = 0; i < out.header_.entries.size(); ++i)
    out.by_name_.emplace(out.header_.entries[i].name, i);
  out.written_.resize(out.header_.entries.size());
  out.data_bytes_ = out.header_.entries.empty() ? 0 : out.header_.entries.back().end;
  out.hasher_ = std::make_unique<Hasher>();

  const std::string text = print_safetensors_header(out.header_);
  if (const uint64_t most = SafetensorsLimits().header_bytes; text.size() - 8 > most)
    return Status(Code::invalid, cat(path, ": the header would have ", text.size() - 8,
                                     " bytes, expected at most ", most));
  const std::string temporary = join_path(
      parent_path(path), cat('.', std::filesystem::path(path).filename().string(), ".tmp"));
  // What an earlier crash left.
  if (path_exists(temporary)) WEFT_TRY(remove_path(temporary));
  WEFT_TRY_ASSIGN(out.file_, File::create(temporary));
  out.path_ = path;
  out.temporary_ = Temporary(temporary);
  out.data_begin_ = text.size();
  WEFT_TRY(out.file_.reserve(out.data_begin_ + out.data_bytes_));
  WEFT_TRY(out.file_.write(0, text.data(), text.size()));
  out.hasher_->bytes(text.data(), text.size());
  return out;
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const auto refuse = [&](const auto&... parts) {
    return Status(Code::invalid, cat(path_, ": tensor ", shown(name), ": ", parts...));
  };
  if (!temporary_) return Status(Code::state, cat(path_, ": is finished, no tensor can be added"));
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return refuse("was not declared");
  const SafetensorsEntry& entry = header_.entries[it->second];
  if (written_[it->second]) return refuse("is written already");
  if (bytes.size() != entry.end - entry.begin)
    return refuse("has ", entry.end - entry.begin, " bytes, got ", bytes.size());
  WEFT_TRY(file_.write(data_begin_ + entry.begin, bytes.data(), bytes.size())
               .within(cat("tensor ", shown(name))));
  in_order_ = in_order_ && it->second == count_;
  if (in_order_) hasher_->bytes(bytes.data(), bytes.size());
  written_[it->second] = true;
  ++count_;
  return {};
}

Result<SafetensorsWriter::Written> SafetensorsWriter::finish() {
  if (!temporary_) return Status(Code::state, cat(path_, ": is finished already"));
  Temporary temporary = std::move(temporary_);
  for (size_t i = 0; i < written_.size(); ++i)
    if (!written_[i])
      return Status(Code::state, cat(path_, ": tensor ", shown(header_.entries[i].name),
                                     " was declared but not written"));
  Written out{data_begin_ + data_bytes_, hasher_->finish()};
  if (!in_order_) {
    WEFT_TRY_ASSIGN(out.checksum, checksum_of(file_, out.bytes));
  }
  WEFT_TRY(file_.sync());
  WEFT_TRY(rename_path(temporary.path(), path_));
  temporary.keep();
  WEFT_TRY(sync_directory(parent_path(path_)));
  return out;
}

}  // namespace weft
