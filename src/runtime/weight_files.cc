#include "runtime/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/bytes.h"
#include "base/text.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 1024;  // descriptors that rank 0 may have this process hold

bool is_within(const fs::path& path, const fs::path& directory) {
  const auto at = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return at.first == directory.end();
}

}  // namespace

std::vector<std::byte> encode(const FileOffer& offer) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).text(offer.path).number(offer.fingerprint.high).number(offer.fingerprint.low);
  return bytes;
}

std::vector<std::byte> encode(const TensorPlace& place) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).number(place.file).text(place.name);
  return bytes;
}

Status read_weights(const Weights::Tensor& from, const ParamPiece& piece, uint64_t first,
                    std::span<float> out) {
  while (!out.empty()) {
    const auto run = piece.run_at(static_cast<int64_t>(first));
    const size_t count = std::min(static_cast<size_t>(run.count), out.size());
    WEFT_TRY(
        from.file->read_floats(*from.entry, static_cast<uint64_t>(run.in_whole), out.first(count)));
    out = out.subspan(count);
    first += count;
  }
  return {};
}

Status WeightFiles::open(uint64_t index, std::span<const std::byte> offer) {
  if (index == 0) close();
  ByteReader in(offer);
  FileOffer wanted;
  wanted.path = in.text();
  wanted.fingerprint.high = in.number<uint64_t>();
  wanted.fingerprint.low = in.number<uint64_t>();
  if (!in.at_end() || index != files_.size() || index >= kMostFiles)
    return Status(Code::protocol, cat("an offer of file ", index, ", expected file ", files_.size(),
                                      " of at most ", kMostFiles));
  return accept(wanted).ok() ? Status() : Status(Code::not_found, "the file is not read here");
}

Status WeightFiles::accept(const FileOffer& offer) {
  const Status refused(Code::not_found, "refused");
  if (directory_.empty() || !fs::path(offer.path).is_absolute()) return refused;
  std::error_code error;
  const fs::path directory = fs::canonical(directory_, error);
  if (error) return refused;
  const fs::path path = fs::canonical(offer.path, error);
  if (error || !is_within(path, directory) || !fs::is_regular_file(path, error)) return refused;
  WEFT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path.string()));
  WEFT_TRY_ASSIGN(const Digest found, file.fingerprint());
  if (found != offer.fingerprint) return refused;
  files_.push_back(std::move(file));
  return {};
}

Result<Weights::Tensor> WeightFiles::find(std::span<const std::byte> place) const {
  ByteReader in(place);
  const auto index = in.number<uint32_t>();
  const std::string name = in.text();
  if (!in.at_end() || index >= files_.size())
    return Status(Code::protocol,
                  cat("a tensor of file ", index, ", expected one of ", files_.size()));
  const SafetensorsFile& file = files_[index];
  const SafetensorsEntry* const entry = file.find(name);
  if (!entry) return Status(Code::protocol, cat(file.path(), ": has no tensor ", shown(name)));
  return Weights::Tensor{&file, entry};
}

}  // namespace weft
