#include "graph/preset_builder.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace weft {

Status read_keys(std::string_view name, std::string_view text, std::vector<Key>& keys) {
  std::vector<std::string_view> given;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
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
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      return Status(Code::invalid,
                    cat("model '", name, "': ", key, " is '", value, "', expected a number"));
    if (!(number >= at->least && number <= at->most) || (at->whole && number != std::floor(number)))
      return Status(Code::invalid, cat("model '", name, "': ", key, " is ", value, ", expected ",
                                       at->whole ? "a whole number" : "a number", " from ",
                                       at->least, " to ", at->most));
    at->value = number;
  }
  return {};
}

double value_of(const std::vector<Key>& keys, std::string_view name) {
  return std::find_if(keys.begin(), keys.end(), [name](const Key& k) { return k.name == name; })
      ->value;
}

std::string preset_text(std::string_view name, const std::vector<Key>& keys) {
  std::string out(name);
  for (size_t i = 0; i < keys.size(); ++i)
    out += cat(i ? "," : ":", keys[i].name, "=", keys[i].value);
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
