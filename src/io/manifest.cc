#include "io/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "io/names.h"

namespace weft {

namespace {

using Json = nlohmann::json;  // objects are ordered by key, so a value has one text

constexpr uint64_t kFormat = 1;

Status fault(std::string text) { return Status(Code::data, std::move(text)); }

// The digest of the value's one compact text: white space in the file does not matter, all else does.
Digest checksum_of(const Json& body) {
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return hash_bytes(text.data(), text.size());
}

// Builds the value, but refuses what a tree would hide: duplicate keys, and depth beyond what a manifest has.
class StrictBuilder {
 public:
  Json root;
  Status status;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double, const std::string& text) { return stop(cat("expected no fraction, found ", shown(text))); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return stop("expected no binary data"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (open_.back()->contains(name)) return stop(cat("duplicate key ", shown(name)));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    if (status.ok()) status = fault(cat("is not valid JSON near byte ", position));
    return false;
  }

 private:
  static constexpr size_t kDepth = 5;

  bool stop(std::string text) {
    status = fault(std::move(text));
    return false;
  }
  Json* place(Json value) {
    if (open_.empty()) return &(root = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kDepth) return stop(cat("is nested deeper than ", kDepth));
    open_.push_back(place(std::move(value)));  // stays put: its parent grows only after it is closed
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;
  std::string key_;
};

// Takes the known keys of an object one by one; what is left at the end is unknown.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Status number(const char* key, uint64_t& out) {
    WEFT_TRY_ASSIGN(const Json* value, take(key, "a number from 0", &Json::is_number_unsigned));
    out = value->get<uint64_t>();
    return {};
  }
  Status text(const char* key, std::string& out) {
    WEFT_TRY_ASSIGN(const Json* value, take(key, "a string", &Json::is_string));
    out = value->get_ref<const std::string&>();
    return {};
  }
  Status digest(const char* key, Digest& out) {
    std::string hex;
    WEFT_TRY(text(key, hex));
    constexpr std::string_view digits = "0123456789abcdef";
    if (hex.size() != 32 || hex.find_first_not_of(digits) != hex.npos)
      return fault(cat(where_, shown(key), " expects 32 hexadecimal digits, found ", shown(hex)));
    out = {};
    for (size_t i = 0; i < 32; ++i) {
      uint64_t& half = i < 16 ? out.high : out.low;
      half = half << 4 | digits.find(hex[i]);
    }
    return {};
  }
  Status texts(const char* key, std::map<std::string, std::string>& out) {
    WEFT_TRY_ASSIGN(const Json* value, take(key, "an object", &Json::is_object));
    for (const auto& [name, item] : value->items()) {
      if (!item.is_string())
        return fault(cat(where_, shown(key), ": ", shown(name), " expects a string, found ", item.type_name()));
      out[name] = item.get_ref<const std::string&>();
    }
    return {};
  }
  Result<const Json*> list(const char* key) { return take(key, "an array", &Json::is_array); }
  Status finish() const {
    for (const auto& [name, item] : object_.items())
      if (!taken_.contains(name)) return fault(cat(where_, "unknown key ", shown(name)));
    return {};
  }

 private:
  Result<const Json*> take(const char* key, const char* expected, bool (Json::*is)() const noexcept) {
    const auto it = object_.find(key);
    if (it == object_.end()) return fault(cat(where_, "has no ", shown(key)));
    if (!((*it).*is)()) return fault(cat(where_, shown(key), " expects ", expected, ", found ", it->type_name()));
    taken_.insert(key);
    return &*it;
  }

  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
};

Status read_shard(const Json& value, size_t index, CheckpointShard& out) {
  const std::string where = cat("shard ", index, ": ");
  if (!value.is_object()) return fault(cat(where, "expected an object, found ", value.type_name()));
  Fields fields(value, where);
  WEFT_TRY(fields.text("file", out.file));
  if (!plain_file_name(out.file)) return fault(cat(where, "'file' expects a plain name, found ", shown(out.file)));
  std::string part;
  WEFT_TRY(fields.text("part", part));
  const auto found = std::find_if(std::begin(kParts), std::end(kParts), [&](ShardPart p) { return part == part_name(p); });
  if (found == std::end(kParts)) return fault(cat(where, "'part' expects model or optimizer, found ", shown(part)));
  out.part = *found;
  WEFT_TRY(fields.number("bytes", out.bytes));
  WEFT_TRY(fields.digest("checksum", out.checksum));
  WEFT_TRY_ASSIGN(const Json* tensors, fields.list("tensors"));
  for (const Json& name : *tensors) {
    if (!name.is_string()) return fault(cat(where, "'tensors' expects strings, found ", name.type_name()));
    out.tensors.push_back(name.get_ref<const std::string&>());
  }
  return fields.finish();
}

Status check_unique(const Manifest& manifest) {
  std::set<std::string_view> files;
  std::set<std::pair<ShardPart, std::string_view>> tensors;
  for (const CheckpointShard& shard : manifest.shards) {
    if (!files.insert(shard.file).second) return fault(cat("file ", shown(shard.file), " occurs twice"));
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
  Json body = {{"format", kFormat},     {"weft", manifest.weft},       {"model", manifest.model},   {"seed", manifest.seed},
               {"step", manifest.step}, {"optimizer", Json::object()}, {"options", Json::object()}, {"shards", Json::array()}};
  for (const auto& [key, value] : manifest.optimizer) body["optimizer"][key] = value;
  for (const auto& [key, value] : manifest.options) body["options"][key] = value;
  for (const CheckpointShard& shard : manifest.shards) {
    Json row = {{"file", shard.file},
                {"part", part_name(shard.part)},
                {"bytes", shard.bytes},
                {"checksum", shard.checksum.hex()},
                {"tensors", Json::array()}};
    for (const std::string& name : shard.tensors) row["tensors"].push_back(name);
    body["shards"].push_back(std::move(row));
  }
  body["checksum"] = checksum_of(body).hex();
  return body.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, Checksum mode) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') return fault("expected an object");
  if (text.find('\0') != text.npos) return fault("is not valid JSON: it holds a NUL");
  StrictBuilder builder;
  const bool read = Json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.status.ok()) return builder.status;
  if (!read) return fault("is not valid JSON");

  Manifest out;
  Fields fields(builder.root, "");
  uint64_t format = 0;
  WEFT_TRY(fields.number("format", format));
  if (format != kFormat) return fault(cat("'format' is ", format, ", this version of weft reads ", kFormat));
  Digest checksum;
  WEFT_TRY(fields.digest("checksum", checksum));
  Json rest = builder.root;
  rest.erase("checksum");
  if (const Digest actual = checksum_of(rest); mode == Checksum::check && actual != checksum)
    return fault(cat("checksum is ", checksum.hex(), ", but the rest has ", actual.hex()));
  WEFT_TRY(fields.text("weft", out.weft));
  WEFT_TRY(fields.text("model", out.model));
  WEFT_TRY(fields.number("seed", out.seed));
  WEFT_TRY(fields.number("step", out.step));
  WEFT_TRY(fields.texts("optimizer", out.optimizer));
  WEFT_TRY(fields.texts("options", out.options));
  WEFT_TRY_ASSIGN(const Json* shards, fields.list("shards"));
  for (const Json& value : *shards) {
    CheckpointShard& shard = out.shards.emplace_back();
    WEFT_TRY(read_shard(value, out.shards.size(), shard));
  }
  WEFT_TRY(fields.finish());
  WEFT_TRY(check_unique(out));
  return out;
}

}  // namespace weft
