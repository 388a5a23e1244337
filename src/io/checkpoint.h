// Checkpoints: DIR/step-00000010/{manifest.json, model-00001.safetensors, ...,
// optimizer-00001.safetensors, ...} and DIR/latest, which names the newest. Tensors go by name, so
// a checkpoint loads at any number of stages.
//
// A step's directory appears by one rename, when all in it is on the disk: a crash at any moment
// leaves the checkpoints before it. The newest two are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "io/manifest.h"
#include "io/names.h"
#include "io/safetensors.h"

namespace weft {

constexpr uint64_t kShardBytes = uint64_t{1} << 30;

// "layer.weight" and "exp_avg" -> "layer.weight.exp_avg".
std::string optimizer_tensor_name(std::string_view parameter, std::string_view slot);

class CheckpointWriter {
 public:
  // Whether a checkpoint of this step can go into the directory: not if it opens at a newer one,
  // which another run may have made. To be asked before the work whose result shall be kept.
  static Status may_write(const std::string& directory, uint64_t step);

  // Makes the directory if there is none, and keeps other writers out of it. A shard holds tensors
  // of at most `shard_bytes`, or one.
  static Result<CheckpointWriter> begin(const std::string& directory, Manifest manifest,
                                        const std::vector<TensorSpec>& model,
                                        const std::vector<TensorSpec>& optimizer,
                                        uint64_t shard_bytes = kShardBytes);

  // Each list in its declared order, one tensor at a time; the two may alternate.
  Status write_model(std::string_view name, std::span<const std::byte> bytes) {
    return write(series_[0], name, bytes);
  }
  Status write_optimizer(std::string_view name, std::span<const std::byte> bytes) {
    return write(series_[1], name, bytes);
  }
  // The path of the checkpoint, which is on the disk by then. A writer that goes away without
  // leaves nothing behind.
  Result<std::string> commit();

 private:
  // The shards of one part, written one after another.
  struct Series {
    ShardPart part = ShardPart::model;
    std::vector<TensorSpec> tensors;
    std::vector<size_t> ends;  // shard i holds the tensors from ends[i - 1] to ends[i]
    size_t next = 0, shard = 0;
    std::optional<SafetensorsWriter> writer;
  };

  CheckpointWriter() = default;
  Status write(Series& series, std::string_view name, std::span<const std::byte> bytes);
  Status open_shard(Series& series);
  Status close_shard(Series& series);

  std::string directory_, name_;
  File lock_;
  Temporary temporary_;  // outlives the writers of files in it
  Manifest manifest_;
  Series series_[2];
};

class Checkpoint {
 public:
  // What the newest in a directory has to pass, or else the next one is taken: its manifest and the
  // sizes of its files, or also their checksums, for which all of it is read.
  enum class Check : uint8_t { sizes, checksums };
  // A step's directory, which is opened after a check of sizes, or the directory above: then the
  // one that `latest` names, or else the newest that is whole.
  static Result<Checkpoint> open(const std::string& path, Check check = Check::checksums);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // Why it is not the one that `latest` names, with the name of each that was passed over; empty if
  // it is.
  const std::string& warning() const { return warning_; }
  // In the order in which they were written. compare_tensors says how they differ from what a model
  // expects.
  const std::vector<TensorSpec>& model() const { return tensors_[0]; }
  const std::vector<TensorSpec>& optimizer() const { return tensors_[1]; }

  // The first read of a shard checks the checksum of its file.
  Status read_model(std::string_view name, std::span<std::byte> out) {
    return read(ShardPart::model, name, out);
  }
  Status read_optimizer(std::string_view name, std::span<std::byte> out) {
    return read(ShardPart::optimizer, name, out);
  }
  // All shards now.
  Status verify();

 private:
  struct Shard {
    SafetensorsFile file;
    bool verified = false;
  };

  static Result<Checkpoint> open_step(const std::string& path);
  static Result<Checkpoint> open_newest(const std::string& path, Check check);
  Status add_shard(const CheckpointShard& listed);
  Status verify(size_t shard);
  Status read(ShardPart part, std::string_view name, std::span<std::byte> out);

  std::string path_, warning_;
  Manifest manifest_;
  std::vector<Shard> shards_;
  std::vector<TensorSpec> tensors_[2];
  std::map<std::string, size_t, std::less<>> shard_of_[2];
};

}  // namespace weft
