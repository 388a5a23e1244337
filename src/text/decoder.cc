#include "text/decoder.h"

#include <algorithm>

#include "base/hex.h"
#include "base/text.h"
#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace weft {

namespace {

using Tokens = std::vector<std::string>;

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

// The number of bytes at the start that could begin a character, at least 1.
size_t started(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  const size_t whole = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const unsigned char least = lead == 0xe0   ? 0xa0
                              : lead == 0xf0 ? 0x90
                                             : 0x80,
                      most = lead == 0xed   ? 0x9f
                             : lead == 0xf4 ? 0x8f
                                            : 0xbf;
  size_t n = 1;
  while (n < std::min(whole, bytes.size()) && at(n) >= (n == 1 ? least : 0x80) &&
         at(n) <= (n == 1 ? most : 0xbf))
    ++n;
  return n;
}

// Whether the bytes are the start of a character, without its end.
bool is_incomplete(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  return lead >= 0xc2 && lead <= 0xf4 && started(bytes) == bytes.size() && utf8_bytes(bytes) == 0;
}

Tokens byte_level(const Tokens& tokens, Tail tail) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += from_byte_letters(token).value_or(token);
  return {valid_part(bytes, tail)};
}

Tokens metaspace(const Decoder& stage, const Tokens& tokens) {
  Tokens out;
  for (const std::string& token : tokens) {
    std::string& text = out.emplace_back();
    for (std::string_view rest = token; !rest.empty();) {
      const char32_t point = take_code_point(rest);
      if (point != stage.character)
        append_code_point(text, point);
      else if (out.size() > 1 || !stage.strips_first)
        text += ' ';
    }
  }
  return out;
}

// The byte of a token <0x00> to <0xFF>, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const int digit = hex_digit(c);
    // "+5" is a number for the `tokenizers` library.
    if (digit < 0 && !(c == '+' && value == 0 && token[3] == '+' && token[4] != '+')) return -1;
    value = digit < 0 ? 0 : value * 16 + digit;
  }
  return value;
}

// If a run of bytes is not valid UTF-8, each byte of it becomes U+FFFD.
Tokens byte_fallback(const Tokens& tokens, Tail tail) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (valid_utf8(bytes)) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), kReplacement);
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(token);
  }
  if (tail == Tail::omit) {
    for (size_t n = std::min<size_t>(3, bytes.size()); n > 0; --n) {
      if (!is_incomplete(std::string_view(bytes).substr(bytes.size() - n))) continue;
      bytes.erase(bytes.size() - n);
      break;
    }
  }
  flush();
  return out;
}

std::string strip(const Decoder& stage, std::string_view token) {
  std::string_view rest = token;
  for (uint64_t i = 0; i < stage.start && !rest.empty(); ++i) {
    std::string_view next = rest;
    if (take_code_point(next) != stage.character) break;
    rest = next;
  }
  std::string character;
  append_code_point(character, stage.character);
  for (uint64_t i = 0; i < stage.stop && rest.ends_with(character); ++i)
    rest.remove_suffix(character.size());
  return std::string(rest);
}

size_t bytes_of(const Tokens& tokens) {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return bytes;
}

Status apply(const Decoder& stage, Growth& growth, Tokens& tokens, Tail tail) {
  switch (stage.kind) {
    case Decoder::Kind::byte_level: tokens = byte_level(tokens, tail); break;
    case Decoder::Kind::metaspace: tokens = metaspace(stage, tokens); break;
    case Decoder::Kind::byte_fallback: tokens = byte_fallback(tokens, tail); break;
    case Decoder::Kind::fuse: {
      std::string all;
      for (const std::string& token : tokens) all += token;
      tokens = {std::move(all)};
      break;
    }
    case Decoder::Kind::replace:
      for (std::string& token : tokens) {
        WEFT_TRY_ASSIGN(TextPart part,
                        replaced({.text = std::move(token)}, stage.pattern, stage.content, growth));
        token = std::move(part.text);
      }
      return {};
    case Decoder::Kind::strip:
      for (std::string& token : tokens) token = strip(stage, token);
      break;
  }
  return growth.add(bytes_of(tokens));
}

}  // namespace

std::string valid_part(std::string_view bytes, Tail tail) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    if (const size_t n = utf8_bytes(bytes)) {
      out += bytes.substr(0, n);
      bytes.remove_prefix(n);
      continue;
    }
    if (tail == Tail::omit && is_incomplete(bytes)) break;
    out += kReplacement;
    bytes.remove_prefix(started(bytes));
  }
  return out;
}

Result<std::string> decode_tokens(const std::vector<Decoder>& stages, Tokens tokens, Tail tail) {
  SearchBudget searches(bytes_of(tokens));
  std::vector<Growth> growth = growth_of(stages, bytes_of(tokens), searches);
  for (size_t i = 0; i < stages.size(); ++i) WEFT_TRY(apply(stages[i], growth[i], tokens, tail));
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

}  // namespace weft
