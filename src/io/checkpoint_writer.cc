#include <algorithm>

#include "base/text.h"
#include "io/checkpoint.h"
#include "io/checkpoint_lock.h"
#include "io/checkpoint_names.h"
#include "io/replacement.h"

namespace weft {

namespace {

// Whether the checkpoint causes the failure. Other failures depend on the process that reads it.
bool is_of_checkpoint(const Status& status) {
  return status.code() != Code::no_memory && status.code() != Code::io;
}

std::string shard_name(ShardPart part, size_t index) {
  return cat(part_name(part), "-", zero_padded(index + 1, 5), ".safetensors");
}

// Renamed first, so that a partly removed directory is never treated as a checkpoint.
Status remove_step(const std::string& directory, uint64_t step) {
  const std::string hidden = join_path(directory, hidden_directory(step, "removed"));
  WEFT_TRY(rename_path(join_path(directory, step_directory(step)), hidden));
  return remove_path(hidden);
}

// Keeps `step`, and the newest intact one before it. What is at `intact` is not read to find out.
// Newer damaged ones are kept for the user.
Status prune(const std::string& directory, uint64_t step, const std::string& intact) {
  WEFT_TRY_ASSIGN(const auto steps, list_steps(directory));
  bool kept = false;
  for (const uint64_t other : steps) {
    if (other >= step) continue;
    const std::string path = join_path(directory, step_directory(other));
    auto checkpoint = Checkpoint::open(path);
    Status opened = checkpoint.status();
    if (opened.ok() && !kept && path != intact) opened = checkpoint.value().verify();
    if (!is_of_checkpoint(opened)) return opened;
    if (!kept && opened.ok())
      kept = true;
    else if (check_only_checkpoint(path).ok())
      WEFT_TRY(remove_step(directory, other));
  }
  return {};
}

}  // namespace

std::string optimizer_tensor_name(std::string_view parameter, std::string_view slot) {
  return cat(parameter, ".", slot);
}

Status CheckpointWriter::may_write(const std::string& directory, uint64_t step) {
  // commit() could not replace a directory or a pipe, and a link would not be read.
  if (const std::string latest = join_path(directory, kLatestFile); path_exists(latest))
    WEFT_TRY(File::open(latest, Links::refuse).status());
  // The checkpoint from which a resumed run would start. If `latest` does not name a checkpoint,
  // its writer was killed, and it does not count. Usually the checkpoint is older, as its manifest
  // shows; only a newer one is read completely.
  const auto blocks = [&](Checkpoint::Check check) -> Status {
    const auto current = Checkpoint::open(directory, check);
    if (!current.ok()) return is_of_checkpoint(current.status()) ? Status() : current.status();
    if (current.value().manifest().step <= step) return {};
    return Status(Code::state, cat(current.value().path(), ": is newer than step ", step,
                                   "; remove it or use another directory"));
  };
  return blocks(Checkpoint::Check::sizes).ok() ? Status() : blocks(Checkpoint::Check::checksums);
}

Result<CheckpointWriter> CheckpointWriter::begin(const std::string& directory, Manifest manifest,
                                                 const std::vector<TensorSpec>& model,
                                                 const std::vector<TensorSpec>& optimizer,
                                                 uint64_t shard_bytes, const Frozen& frozen) {
  CheckpointWriter out;
  manifest.shards.clear();
  WEFT_TRY(print_manifest(manifest).status().within(directory));
  WEFT_TRY(out.divide(ShardPart::model, frozen.tensors, shard_bytes).within(directory));
  const size_t frozen_shards = out.shards_.size();
  WEFT_TRY(out.divide(ShardPart::model, model, shard_bytes).within(directory));
  WEFT_TRY(out.divide(ShardPart::optimizer, optimizer, shard_bytes).within(directory));

  WEFT_TRY(check_directory_of_checkpoints(directory));
  WEFT_TRY(make_directory(directory, /*with_parents=*/true));
  WEFT_TRY_ASSIGN(out.lock_, lock_directory(directory));
  // Under the lock, so that the result remains the newest until this writer has ended.
  WEFT_TRY(may_write(directory, manifest.step));
  // What killed writers left.
  WEFT_TRY_ASSIGN(const auto steps, list_steps(directory));
  for (const uint64_t step : steps)
    WEFT_TRY(restore_directory(join_path(directory, step_directory(step))));
  WEFT_TRY_ASSIGN(const auto names, list_directory(directory));
  for (const std::string& name : names)
    if (is_hidden_directory(name)) {
      WEFT_TRY(check_only_checkpoint(join_path(directory, name)));
      WEFT_TRY(remove_path(join_path(directory, name)));
    }
  WEFT_TRY(check_only_checkpoint(join_path(directory, step_directory(manifest.step))));

  out.directory_ = directory;
  out.name_ = step_directory(manifest.step);
  out.temporary_ = Temporary(join_path(directory, hidden_directory(manifest.step, "tmp")));
  out.manifest_ = std::move(manifest);
  WEFT_TRY(make_directory(out.temporary_.path(), /*with_parents=*/false));
  const size_t linked = frozen.same.empty() ? 0 : out.link_shards(frozen.same, frozen_shards);
  for (size_t i = linked; i < out.shards_.size(); ++i) {
    Shard& shard = out.shards_[i];
    const std::string path = join_path(out.temporary_.path(), shard.listed.file);
    WEFT_TRY_ASSIGN(shard.writer, SafetensorsWriter::create(path, shard.tensors));
  }
  return out;
}

Status CheckpointWriter::divide(ShardPart part, const std::vector<TensorSpec>& tensors,
                                uint64_t shard_bytes) {
  WEFT_TRY_ASSIGN(const auto ends, split_tensors(tensors, shard_bytes).within(part_name(part)));
  size_t begin = 0;
  const auto is_of_part = [part](const Shard& shard) { return shard.listed.part == part; };
  auto index = static_cast<size_t>(std::count_if(shards_.begin(), shards_.end(), is_of_part));
  for (const size_t end : ends) {
    Shard shard;
    shard.listed.file = shard_name(part, index++);
    shard.listed.part = part;
    for (; begin < end; ++begin) {
      shard.tensors.push_back(tensors[begin]);
      shard.listed.tensors.push_back(tensors[begin].name);
      shard_of_[static_cast<size_t>(part)].emplace(tensors[begin].name, shards_.size());
    }
    shards_.push_back(std::move(shard));
  }
  return {};
}

// Ends at the first shard that is damaged or cannot be linked.
size_t CheckpointWriter::link_shards(const std::string& other, size_t count) {
  auto checkpoint = Checkpoint::open(other);
  if (!checkpoint.ok()) return 0;
  const std::vector<CheckpointShard> listed = checkpoint.value().manifest().shards;
  size_t linked = 0;
  for (; linked < std::min(count, listed.size()); ++linked) {
    CheckpointShard& own = shards_[linked].listed;
    const CheckpointShard& shard = listed[linked];
    if (shard.file != own.file || shard.tensors != own.tensors) break;
    if (!checkpoint.value().find(ShardPart::model, shard.tensors.front()).ok()) break;
    const std::string from = join_path(other, own.file);
    if (!link_path(from, join_path(temporary_.path(), own.file)).ok()) break;
    own = shard;
  }
  return linked;
}

std::vector<CheckpointWriter::Place> CheckpointWriter::order() const {
  std::vector<Place> out;
  for (const Shard& shard : shards_) {
    if (!shard.writer) continue;
    for (const SafetensorsEntry& entry : shard.writer->order())
      out.push_back({shard.listed.part, entry.name});
  }
  return out;
}

Status CheckpointWriter::write(ShardPart part, std::string_view name, uint64_t offset,
                               std::span<const std::byte> bytes) {
  const auto refuse = [&](const char* why) {
    return Status(Code::state,
                  cat(directory_, ": ", part_name(part), " tensor ", shown(name), ": ", why));
  };
  if (!temporary_) return refuse("the checkpoint is finished");
  const auto& shard_of = shard_of_[static_cast<size_t>(part)];
  const auto it = shard_of.find(name);
  if (it == shard_of.end()) return refuse("was not declared");
  std::optional<SafetensorsWriter>& writer = shards_[it->second].writer;
  return writer ? writer->write_piece(name, offset, bytes)
                : refuse("is in a file of another checkpoint");
}

Result<std::string> CheckpointWriter::commit(const std::string& intact) {
  if (!temporary_) return Status(Code::state, cat(directory_, ": the checkpoint is finished"));
  Temporary temporary = std::move(temporary_);
  for (Shard& shard : shards_) {
    if (shard.writer) {
      WEFT_TRY_ASSIGN(const auto written, shard.writer->finish());
      shard.listed.bytes = written.bytes;
      shard.listed.checksum = written.checksum;
    }
    manifest_.shards.push_back(std::move(shard.listed));
  }
  shards_.clear();
  WEFT_TRY_ASSIGN(const std::string text, print_manifest(manifest_));
  WEFT_TRY(write_text(join_path(temporary.path(), kManifestFile), text));
  WEFT_TRY(sync_directory(temporary.path()));
  const std::string path = join_path(directory_, name_);
  bool swapped = false;
  WEFT_TRY(rename_or_swap(temporary.path(), path, &swapped));
  // After a swap the hidden name is the replaced checkpoint.
  if (!swapped) temporary.keep();
  WEFT_TRY(lock_.sync());
  WEFT_TRY(replace_text(join_path(directory_, kLatestFile), name_ + "\n"));
  // The checkpoint is complete; old ones that could not be removed are removed after the next save.
  (void)prune(directory_, manifest_.step, intact);
  return path;
}

}  // namespace weft
