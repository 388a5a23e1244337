#include "jinja/python_text.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/hex.h"
#include "base/text.h"
#include "text/unicode.h"

namespace weft::jinja {

namespace {

bool has(std::string_view chars, char32_t point) {
  while (!chars.empty())
    if (take_code_point(chars) == point) return true;
  return false;
}

void append_escape(std::string& out, std::string_view prefix, char32_t point, size_t digits) {
  out += prefix;
  append_hex(out, point, digits);
}

}  // namespace

bool is_space(char32_t point) { return is_white_space(point) || (point >= 0x1c && point <= 0x1f); }

std::string_view stripped(std::string_view text, Side side, std::optional<std::string_view> chars) {
  const auto goes = [&](char32_t point) { return chars ? has(*chars, point) : is_space(point); };
  while (side != Side::right && !text.empty()) {
    std::string_view rest = text;
    if (!goes(take_code_point(rest))) break;
    text = rest;
  }
  while (side != Side::left && !text.empty()) {
    std::string_view rest = text;
    if (!goes(take_last_code_point(rest))) break;
    text = rest;
  }
  return text;
}

size_t find_text(std::string_view text, std::string_view part, size_t begin) {
  const void* const found =
      memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[400];
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(buffer, end.ptr);
  if (plain && out.find('.') == out.npos) out += ".0";
  return out;
}

std::string repr(std::string_view text) {
  const bool twice = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char32_t quote = twice ? '"' : '\'';
  std::string out(1, static_cast<char>(quote));
  while (!text.empty()) {
    const char32_t point = take_code_point(text);
    if (point == quote || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == '\r') {
      out += "\\r";
    } else if (point == '\t') {
      out += "\\t";
    } else if (is_printable(point)) {
      append_code_point(out, point);
    } else if (point < 0x100) {
      append_escape(out, "\\x", point, 2);
    } else if (point < 0x10000) {
      append_escape(out, "\\u", point, 4);
    } else {
      append_escape(out, "\\U", point, 8);
    }
  }
  out += static_cast<char>(quote);
  return out;
}

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    const std::string_view special = "\"\\\b\f\n\r\t";
    if (const size_t at = special.find(c); at != special.npos) {
      out += '\\';
      out += "\"\\bfnrt"[at];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      append_escape(out, "\\u", static_cast<unsigned char>(c), 4);
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace weft::jinja
