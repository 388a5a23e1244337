// Checkpoints: DIR/step-00000010/{manifest.json, model-00001.safetensors, ...,
// optimizer-00001.safetensors, ...} and DIR/latest, which contains the name of the newest. Tensors
// are stored by name, so that a checkpoint can be loaded with any number of stages.
//
// The directory of a step appears by one rename, when all its files are on the disk: a crash at any
// time preserves the earlier checkpoints. The newest two are kept. Parameters that a run does not
// train have files of their own, which its checkpoints share.
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
#include "io/weights.h"

namespace weft {

constexpr uint64_t kShardBytes = uint64_t{1} << 30;

// "layer.weight" and "exp_avg" -> "layer.weight.exp_avg".
std::string optimizer_tensor_name(std::string_view parameter, std::string_view slot);

class CheckpointWriter {
 public:
  // Whether a checkpoint of this step can be written to the directory: not if it contains a newer
  // one, for example of another run. Call it before the work that the checkpoint will keep.
  static Status may_write(const std::string& directory, uint64_t step);

  // Other tensors of the model, in shards of their own before those of `model`.
  struct Frozen {
    std::vector<TensorSpec> tensors;
    std::string same;  // a checkpoint of these lists that has the same values; empty: none
  };
  // Makes the directory if it does not exist, locks it, and reserves the memory on disk for all
  // files. A shard contains tensors of at most `shard_bytes`, or one tensor. Shards of frozen
  // tensors that another checkpoint has are linked, if the file system can do that.
  static Result<CheckpointWriter> begin(const std::string& directory, Manifest manifest,
                                        const std::vector<TensorSpec>& model,
                                        const std::vector<TensorSpec>& optimizer,
                                        uint64_t shard_bytes = kShardBytes,
                                        const Frozen& frozen = {});

  struct Place {
    ShardPart part = ShardPart::model;
    std::string name;  // of the tensor
  };
  // The tensors to write, in the order of the files. If the bytes are not written in this order,
  // commit() reads the files once for their checksums.
  std::vector<Place> order() const;
  // All bytes of all declared tensors, in pieces that do not overlap, in any order.
  Status write(ShardPart part, std::string_view name, uint64_t offset,
               std::span<const std::byte> bytes);
  // Returns the path of the checkpoint, which is then on the disk. A writer that is destroyed
  // without commit() leaves no files. Of older checkpoints, the newest intact one is kept. To find
  // it, they are read completely, except the one at `intact`.
  Result<std::string> commit(const std::string& intact = {});

 private:
  struct Shard {
    CheckpointShard listed;
    std::vector<TensorSpec> tensors;
    std::optional<SafetensorsWriter> writer;  // none: is linked
  };

  CheckpointWriter() = default;
  Status divide(ShardPart part, const std::vector<TensorSpec>& tensors, uint64_t shard_bytes);
  // Links the first `count` shards to those of another checkpoint, as far as they are the same and
  // intact. Returns how many.
  size_t link_shards(const std::string& other, size_t count);

  std::string directory_, name_;
  File lock_;
  Temporary temporary_;  // outlives the writers of files in it
  Manifest manifest_;
  std::vector<Shard> shards_;
  std::map<std::string, size_t, std::less<>> shard_of_[2];
};

class Checkpoint {
 public:
  // The check of the newest checkpoint in a directory; if it fails, the next one is checked. Either
  // the manifest and the sizes of the files, or also their checksums, for which all files are read.
  enum class Check : uint8_t { sizes, checksums };
  // The directory of a step, which is opened after a check of sizes, or the directory that contains
  // it: then the one that `latest` names, or the newest intact one.
  static Result<Checkpoint> open(const std::string& path, Check check = Check::checksums);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // The reason why it is not the one that `latest` names, with the name of each damaged one; empty
  // if it is.
  const std::string& warning() const { return warning_; }
  // In the order in which they were written. compare_tensors compares them with those of a model.
  const std::vector<TensorSpec>& model() const { return tensors_[0]; }
  const std::vector<TensorSpec>& optimizer() const { return tensors_[1]; }

  // The first read of a shard checks the checksum of its file.
  Status read_model(std::string_view name, std::span<std::byte> out) {
    return read(ShardPart::model, name, out);
  }
  Status read_optimizer(std::string_view name, std::span<std::byte> out) {
    return read(ShardPart::optimizer, name, out);
  }
  // A piece that begins at this byte of the tensor.
  Status read_piece(ShardPart part, std::string_view name, uint64_t offset,
                    std::span<std::byte> out);
  // Its file, whose checksum is checked, and its place there. Valid as long as this object.
  Result<Weights::Tensor> find(ShardPart part, std::string_view name);
  // All shards now.
  Status verify();

 private:
  struct Shard {
    SafetensorsFile file;
    bool verified = false;
  };

  static Result<Checkpoint> open_step(const std::string& given);
  static Result<Checkpoint> open_newest(const std::string& path, Check check);
  Status add_shard(const CheckpointShard& listed);
  Status verify(size_t shard);
  Result<const SafetensorsFile*> file_of(ShardPart part, std::string_view name);
  Status read(ShardPart part, std::string_view name, std::span<std::byte> out);

  std::string path_, warning_;
  Manifest manifest_;
  std::vector<Shard> shards_;
  std::vector<TensorSpec> tensors_[2];
  std::map<std::string, size_t, std::less<>> shard_of_[2];
};

}  // namespace weft
