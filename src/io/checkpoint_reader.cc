#include <algorithm>

#include "base/text.h"
#include "io/adapters.h"
#include "io/checkpoint.h"
#include "io/checkpoint_names.h"

namespace weft {

namespace {

constexpr size_t kLatestBytes = 256;

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Tensors for a message about the file that holds them.
std::string holding(const CheckpointShard& shard) {
  std::vector<std::string> names;
  for (const std::string& name : shard.tensors) names.push_back(shown(name));
  return cat(part_name(shard.part), " tensors ", listed(names));
}

bool has_locked_file(const std::string& directory) {
  const auto names = list_directory(directory);
  if (!names.ok()) return is_locked(directory);
  return std::any_of(names.value().begin(), names.value().end(), [&](const std::string& name) {
    return is_locked(join_path(directory, name));
  });
}

Result<std::string> read_latest(const std::string& directory) {
  const std::string path = join_path(directory, kLatestFile);
  WEFT_TRY_ASSIGN(std::string name, read_text(path, kLatestBytes, Links::refuse));
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' '))
    name.pop_back();
  if (!step_of_directory(name))
    return Status(Code::data,
                  cat(path, ": expected a name such as step-00000010, found ", shown(name)));
  return name;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& given, Check check) {
  const std::string path = without_slashes(given);
  if (step_of_directory(last_name(path)) || path_exists(join_path(path, kManifestFile)))
    return open_step(path);
  return open_newest(path, check);
}

Result<Checkpoint> Checkpoint::open_newest(const std::string& path, Check check) {
  WEFT_TRY(File::open_directory(path).status());
  const auto latest = read_latest(path);
  if (!latest.ok() && is_locked(join_path(path, kLatestFile))) return latest.status();
  WEFT_TRY_ASSIGN(const auto steps, list_steps(path));
  std::vector<std::string> names;
  for (const uint64_t step : steps) names.push_back(step_directory(step));
  if (names.empty())
    return Status(Code::not_found,
                  cat(path, ": contains no checkpoint such as ", step_directory(10), ", no ",
                      kModelConfigFile, " and no ", kAdapterConfigFile));
  if (latest.ok()) {
    std::erase(names, latest.value());
    names.insert(names.begin(), latest.value());
  }

  std::string passed_over = latest.status().text();
  Code code = latest.status().code();
  for (const std::string& name : names) {
    auto opened = open_step(join_path(path, name));
    Status status = opened.status();
    if (status.ok() && check == Check::checksums) status = opened.value().verify();
    if (status.ok()) {
      if (!passed_over.empty())
        opened.value().warning_ = printable(cat("fell back to ", name, ": ", passed_over));
      return opened;
    }
    // Neither is caused by the checkpoint.
    if (status.code() == Code::no_memory || has_locked_file(join_path(path, name))) return status;
    if (code == Code::ok) code = status.code();
    passed_over += cat(passed_over.empty() ? "" : "; ", name, " is damaged: ", status.text());
  }
  return Status(code,
                cat(path, ": none of its ", names.size(), " checkpoints is intact: ", passed_over));
}

Result<Checkpoint> Checkpoint::open_step(const std::string& given) {
  const std::string path = directory_or_aside(given);
  Checkpoint out;
  out.path_ = path;
  WEFT_TRY_ASSIGN(const std::string text, read_manifest_text(path));
  WEFT_TRY_ASSIGN(out.manifest_, parse_manifest(text).within(join_path(path, kManifestFile)));
  for (const CheckpointShard& shard : out.manifest_.shards) WEFT_TRY(out.add_shard(shard));
  return out;
}

Status Checkpoint::add_shard(const CheckpointShard& listed) {
  const std::string path = join_path(path_, listed.file);
  const auto failed = [&](const Status& status) {
    return Status(status.code(), cat(status.text(), " (", holding(listed), ")"));
  };
  auto opened = SafetensorsFile::open(path, {}, Links::refuse);
  if (!opened.ok()) return failed(opened.status());
  SafetensorsFile& file = opened.value();
  if (file.bytes() != listed.bytes)
    return failed(
        Status(Code::data, cat(path, ": has ", file.bytes(), " bytes, expected ", listed.bytes)));

  const size_t part = static_cast<size_t>(listed.part);
  std::vector<std::string> missing, surplus;
  for (const std::string& name : listed.tensors) {
    const SafetensorsEntry* entry = file.find(name);
    if (!entry) {
      missing.push_back(shown(name));
      continue;
    }
    WEFT_TRY_ASSIGN(TensorSpec spec, entry->spec().within(path));
    tensors_[part].push_back(std::move(spec));
    shard_of_[part].emplace(name, shards_.size());
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto it = shard_of_[part].find(entry.name);
    if (it == shard_of_[part].end() || it->second != shards_.size())
      surplus.push_back(shown(entry.name));
  }
  if (!missing.empty())
    return Status(Code::data, cat(path, ": missing ", part_name(listed.part),
                                  " tensors: ", weft::listed(missing)));
  if (!surplus.empty())
    return Status(Code::data, cat(path, ": surplus ", part_name(listed.part),
                                  " tensors: ", weft::listed(surplus)));
  shards_.push_back({opened.take(), false});
  return {};
}

Status Checkpoint::verify(size_t shard) {
  if (shards_[shard].verified) return {};
  const CheckpointShard& listed = manifest_.shards[shard];
  WEFT_TRY_ASSIGN(const Digest actual, shards_[shard].file.checksum());
  if (actual != listed.checksum)
    return Status(Code::data, cat(shards_[shard].file.path(), ": checksum is ", actual.hex(),
                                  ", expected ", listed.checksum.hex()));
  shards_[shard].verified = true;
  return {};
}

Status Checkpoint::verify() {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Status status = verify(i);
    if (!status.ok())
      return Status(status.code(), cat(status.text(), " (", holding(manifest_.shards[i]), ")"));
  }
  return {};
}

Result<const SafetensorsFile*> Checkpoint::file_of(ShardPart part, std::string_view name) {
  const auto& shard_of = shard_of_[static_cast<size_t>(part)];
  const auto it = shard_of.find(name);
  if (it == shard_of.end())
    return Status(Code::not_found,
                  cat(path_, ": contains no ", part_name(part), " tensor ", shown(name)));
  WEFT_TRY(verify(it->second).within(cat(part_name(part), " tensor ", shown(name))));
  return &shards_[it->second].file;
}

Result<Weights::Tensor> Checkpoint::find(ShardPart part, std::string_view name) {
  WEFT_TRY_ASSIGN(const SafetensorsFile* file, file_of(part, name));
  return Weights::Tensor{file, file->find(name)};
}

Status Checkpoint::read(ShardPart part, std::string_view name, std::span<std::byte> out) {
  WEFT_TRY_ASSIGN(const SafetensorsFile* file, file_of(part, name));
  return file->read_bytes(*file->find(name), out);
}

Status Checkpoint::read_piece(ShardPart part, std::string_view name, uint64_t offset,
                              std::span<std::byte> out) {
  WEFT_TRY_ASSIGN(const SafetensorsFile* file, file_of(part, name));
  return file->read_piece(*file->find(name), offset, out);
}

}  // namespace weft
