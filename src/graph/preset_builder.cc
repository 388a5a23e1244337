#include "graph/preset_builder.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace weft {

namespace {

// A number, or an item of a list.
Status read_number(std::string_view name, const Key& key, std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size())
    return Status(Code::invalid,
                  cat("model '", name, "': ", key.name, " is '", text, "', expected a number"));
  if (!(out >= key.least && out <= key.most) || (key.whole && out != std::floor(out)))
    return Status(Code::invalid, cat("model '", name, "': ", key.name, " is ", text, ", expected ",
                                     key.whole ? "a whole number" : "a number", " from ", key.least,
                                     " to ", key.most));
  return {};
}

Status read_list(std::string_view name, Key& key, std::string_view text) {
  key.list.clear();
  while (!text.empty())
    WEFT_TRY(read_number(name, key, take_item(text, '/'), key.list.emplace_back()));
  return {};
}

const Key& find_key(const std::vector<Key>& keys, std::string_view name) {
  return *std::find_if(keys.begin(), keys.end(), [name](const Key& k) { return k.name == name; });
}

std::string text_of(const Key& key) {
  if (!key.is_list) return to_text(key.value);
  std::string out;
  for (const double item : key.list) out += cat(out.empty() ? "" : "/", item);
  return out;
}

}  // namespace

Status read_keys(std::string_view name, std::string_view text, std::vector<Key>& keys) {
  std::vector<std::string_view> given;
  while (!text.empty()) {
    const std::string_view pair = take_item(text, ',');
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos)
      return Status(Code::invalid,
                    cat("model '", name, "': expected key=value, found '", pair, "'"));
    const std::string_view key = pair.substr(0, equals), value = pair.substr(equals + 1);
    auto at = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == key; });
    if (at == keys.end()) {
      std::string known;
      for (const Key& k : keys) known += cat(known.empty() ? "" : ", ", k.name);
      return Status(Code::invalid,
                    cat("model '", name, "' has no key '", key, "'; it has ", known));
    }
    if (std::find(given.begin(), given.end(), key) != given.end())
      return Status(Code::invalid, cat("model '", name, "' has the key ", key, " twice"));
    given.push_back(key);
    if (at->is_list)
      WEFT_TRY(read_list(name, *at, value));
    else
      WEFT_TRY(read_number(name, *at, value, at->value));
  }
  return {};
}

double value_of(const std::vector<Key>& keys, std::string_view name) {
  return find_key(keys, name).value;
}

const std::vector<double>& list_of(const std::vector<Key>& keys, std::string_view name) {
  return find_key(keys, name).list;
}

std::string preset_text(std::string_view name, const std::vector<Key>& keys) {
  std::string out(name);
  for (size_t i = 0; i < keys.size(); ++i)
    out += cat(i ? "," : ":", keys[i].name, "=", text_of(keys[i]));
  return out;
}

int64_t whole_of(const std::vector<Key>& keys, std::string_view name) {
  return static_cast<int64_t>(value_of(keys, name));
}

Preset token_preset(std::string_view name, const std::vector<Key>& keys) {
  Preset out;
  out.text = preset_text(name, keys);
  out.tokens = true;
  out.width = whole_of(keys, "width");
  out.context = whole_of(keys, "context");
  out.vocabulary = whole_of(keys, "vocabulary");
  return out;
}

Status check_heads(std::string_view name, int64_t width, int64_t heads) {
  if (width % heads == 0) return {};
  return Status(Code::invalid,
                cat("model '", name, "': width ", width, " is not a multiple of heads ", heads));
}

Result<CacheOptions> choose_length(std::string_view name, const PresetOptions& options,
                                   Preset& preset) {
  CacheOptions cache = options.cache;
  const bool decodes = cache.sequences > 0;
  const int64_t given = decodes ? cache.length : options.seq_len;
  preset.seq_len = cache.length = given ? given : preset.context;
  if (preset.seq_len >= 1 && preset.seq_len <= preset.context) return cache;
  return Status(Code::invalid, cat(decodes ? "context" : "sequence length", " is ", given,
                                   ", model '", name, "' has a context of ", preset.context));
}

}  // namespace weft
