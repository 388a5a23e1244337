#include "io/manifest.h"

#include <algorithm>
#include <set>

#include "base/fault.h"
#include "base/text.h"
#include "io/names.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr uint64_t kFormat = 1;
constexpr size_t kMostValues = size_t{1} << 20;  // one for each tensor

// The digest of the compact text of the value: white space in the file is ignored.
Digest checksum_of(const Json& body) {
  const std::string text = body.dump();
  return hash_bytes(text.data(), text.size());
}

Status read_shard(const Json& value, size_t index, CheckpointShard& out) {
  const std::string where = cat("shard ", index, ": ");
  if (!value.is_object()) return fault(cat(where, "expected an object, found ", value.type_name()));
  Fields fields(value, where);
  WEFT_TRY(fields.text("file", out.file));
  if (!plain_file_name(out.file))
    return fault(cat(where, "'file' expects a plain name, found ", shown(out.file)));
  std::string part;
  WEFT_TRY(fields.text("part", part));
  const auto found = std::find_if(std::begin(kParts), std::end(kParts),
                                  [&](ShardPart p) { return part == part_name(p); });
  if (found == std::end(kParts))
    return fault(cat(where, "'part' expects model or optimizer, found ", shown(part)));
  out.part = *found;
  WEFT_TRY(fields.number("bytes", out.bytes));
  WEFT_TRY(fields.digest("checksum", out.checksum));
  WEFT_TRY_ASSIGN(const Json* tensors, fields.list("tensors"));
  WEFT_TRY(read_texts(*tensors, cat(where, "'tensors'"), out.tensors));
  return fields.finish();
}

Status check_unique(const Manifest& manifest) {
  std::set<std::string_view> files;
  std::set<std::pair<ShardPart, std::string_view>> tensors;
  for (const CheckpointShard& shard : manifest.shards) {
    if (!files.insert(shard.file).second)
      return fault(cat("file ", shown(shard.file), " occurs twice"));
    for (const std::string& name : shard.tensors)
      if (!tensors.insert({shard.part, name}).second)
        return fault(cat(part_name(shard.part), " tensor ", shown(name), " occurs twice"));
  }
  return {};
}

bool all_utf8(const Manifest& manifest) {
  bool good = valid_utf8(manifest.weft) && valid_utf8(manifest.model);
  for (const auto* texts : {&manifest.optimizer, &manifest.options})
    for (const auto& [key, value] : *texts) good = good && valid_utf8(key) && valid_utf8(value);
  for (const CheckpointShard& shard : manifest.shards)
    for (const std::string& name : shard.tensors) good = good && valid_utf8(name);
  return good;
}

}  // namespace

const char* part_name(ShardPart part) { return part == ShardPart::model ? "model" : "optimizer"; }

Result<std::string> print_manifest(const Manifest& manifest) {
  if (!all_utf8(manifest)) return Status(Code::invalid, "a text for the manifest is not UTF-8");
  Json body = Json::object({{"format", kFormat},
                            {"weft", manifest.weft},
                            {"model", manifest.model},
                            {"seed", manifest.seed},
                            {"step", manifest.step},
                            {"optimizer", Json::object()},
                            {"options", Json::object()},
                            {"shards", Json::array()}});
  for (const auto& [key, value] : manifest.optimizer) body["optimizer"][key] = value;
  for (const auto& [key, value] : manifest.options) body["options"][key] = value;
  for (const CheckpointShard& shard : manifest.shards)
    body["shards"].push_back(Json::object({{"file", shard.file},
                                           {"part", part_name(shard.part)},
                                           {"bytes", shard.bytes},
                                           {"checksum", shard.checksum.hex()},
                                           {"tensors", shard.tensors}}));
  body["checksum"] = checksum_of(body).hex();
  return body.dump(1) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, Checksum mode) {
  WEFT_TRY_ASSIGN(Json root, read_json(text, {.values = kMostValues}));
  Manifest out;
  Fields fields(root, "");
  WEFT_TRY(fields.format(kFormat));
  Digest checksum;
  WEFT_TRY(fields.digest("checksum", checksum));
  root.members().erase("checksum");
  if (const Digest actual = checksum_of(root); mode == Checksum::check && actual != checksum)
    return fault(cat("checksum is ", checksum.hex(), ", but the rest has ", actual.hex()));
  WEFT_TRY(fields.text("weft", out.weft));
  WEFT_TRY(fields.text("model", out.model));
  WEFT_TRY(fields.number("seed", out.seed));
  WEFT_TRY(fields.number("step", out.step));
  WEFT_TRY(fields.texts("optimizer", out.optimizer));
  WEFT_TRY(fields.texts("options", out.options));
  WEFT_TRY_ASSIGN(const Json* shards, fields.list("shards"));
  for (const Json& value : shards->items()) {
    CheckpointShard& shard = out.shards.emplace_back();
    WEFT_TRY(read_shard(value, out.shards.size(), shard));
  }
  WEFT_TRY(fields.finish());
  WEFT_TRY(check_unique(out));
  return out;
}

}  // namespace weft
