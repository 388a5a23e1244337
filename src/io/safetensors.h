// Files of named tensors in the safetensors format: 8 bytes with the size of the header, a JSON
// header, then the bytes of the tensors.
//
// The reader treats a file as hostile. It accepts what the reference reader accepts within the
// limits below, and refuses holes, overlaps, trailing bytes, duplicate keys and unknown dtypes. The
// writer's files are byte for byte those of the reference writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "io/file.h"
#include "io/names.h"
#include "io/replacement.h"
#include "tensor/shape.h"

namespace weft {

// Its name in a file: "F32", "BF16", ...
const char* file_dtype(DType dtype);

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as in the file, see file_dtype()
  Shape shape;
  uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header

  // Its type and shape; none for a dtype that weft does not load. Allocates nothing.
  std::optional<DType> known() const;
  // The same with name and shape; fails for such a dtype.
  Result<TensorSpec> spec() const;
  // As SafetensorsFile::read_floats converts it: of float32, or a failure.
  Result<TensorSpec> float_spec() const;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  SafetensorsMetadata metadata;
};

struct SafetensorsLimits {
  uint64_t header_bytes = 16u << 20;  // the format's own limit is 100 000 000
  uint64_t tensors = 1'000'000;
};

// The size of the header from the first 8 bytes of a file, checked against the limits and the size
// of the file before the header is read.
Result<uint64_t> safetensors_header_bytes(const unsigned char prefix[8], uint64_t file_bytes,
                                          const SafetensorsLimits& limits);
// All checks without the bytes of tensors. `data_bytes` is the number of bytes after the header.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                                   const SafetensorsLimits& limits);
// The 8 bytes and the padded JSON that open a file with these entries.
std::string print_safetensors_header(const SafetensorsHeader& header);
// The order of tensors in a file: the widest dtype first, then by name. Fails for a name that is
// not valid or occurs twice.
Result<SafetensorsHeader> lay_out_safetensors(const std::vector<TensorSpec>& tensors,
                                              const SafetensorsMetadata& metadata);
// Divides tensors among files, in their order: the end of each file. The tensors of a file have at
// most `shard_bytes`, unless it is one. Fails if no file accepts one of them.
Result<std::vector<size_t>> split_tensors(const std::vector<TensorSpec>& tensors,
                                          uint64_t shard_bytes);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path, const SafetensorsLimits& limits = {},
                                      Links links = Links::follow);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  uint64_t bytes() const { return data_begin_ + data_bytes_; }
  const SafetensorsEntry* find(std::string_view name) const;  // null if there is none

  // The whole tensor without conversion; another size than that of `out` is a failure.
  Status read_bytes(const SafetensorsEntry& entry, std::span<std::byte> out) const;
  // The bytes of a piece that begins at this byte of the tensor.
  Status read_piece(const SafetensorsEntry& entry, uint64_t offset, std::span<std::byte> out) const;
  // The elements of an F32, F16 or BF16 tensor from this one on. Each has an equal float32.
  Status read_floats(const SafetensorsEntry& entry, uint64_t first, std::span<float> out) const;
  // Of the whole file.
  Result<Digest> checksum() const;
  // Of the bytes of a tensor, as hash_bytes() computes it.
  Result<Digest> digest(const SafetensorsEntry& entry) const;
  // Of its size, its header and the first bytes of each tensor: differs between models of the same
  // form, and between steps of a training.
  Result<Digest> fingerprint() const;

 private:
  File file_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;
  uint64_t data_begin_ = 0, data_bytes_ = 0;
};

// Writes tensors in pieces, so that no whole tensor needs to be in memory. The file gets its name
// when finish succeeds, complete and synced. Until then it is a hidden file in the same directory,
// which is removed with the writer.
class SafetensorsWriter {
 public:
  struct Written {
    uint64_t bytes = 0;
    Digest checksum;
  };

  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::vector<TensorSpec>& tensors,
                                          const SafetensorsMetadata& metadata = {});
  // The tensors in the order of the file. If the bytes are not written in this order, finish reads
  // the file once for its checksum.
  const std::vector<SafetensorsEntry>& order() const { return header_.entries; }
  // Each declared tensor exactly once, all its bytes.
  Status write(std::string_view name, std::span<const std::byte> bytes);
  // The same in pieces that do not overlap, in any order.
  Status write_piece(std::string_view name, uint64_t offset, std::span<const std::byte> bytes);
  // The writer cannot be used afterwards, on success or failure.
  Result<Written> finish();

 private:
  SafetensorsWriter() = default;
  Status refuse(std::string_view name, const std::string& why) const;
  Result<size_t> find(std::string_view name) const;  // of a tensor that is not written yet

  std::string path_;
  Replacement file_;  // until finish
  SafetensorsHeader header_;
  std::map<std::string_view, size_t>
      by_name_;  // views into header_, whose entries keep their addresses when this object is moved
  std::vector<bool> written_;
  std::vector<uint64_t> missing_;  // bytes of each tensor
  uint64_t hashed_ = 0;            // bytes after the header
  bool in_order_ = true;
  uint64_t data_begin_ = 0, data_bytes_ = 0;
  std::unique_ptr<Hasher> hasher_;
};

}  // namespace weft
