#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/text.h"

namespace weft {

namespace {

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

// Letters in circles and squares: symbols that are Alphabetic.
bool is_letter_symbol(char32_t point) {
  return (point >= 0x24b6 && point <= 0x24e9) || (point >= 0x1f130 && point <= 0x1f149) ||
         (point >= 0x1f150 && point <= 0x1f169) || (point >= 0x1f170 && point <= 0x1f189);
}

struct Range {
  char32_t first, last;
};
constexpr Range kNewer[] = {
#define WEFT_NEWER_FORMS(first, last) {first, last},
#include "text/newer_forms.def"
#undef WEFT_NEWER_FORMS
};

bool is_newer(char32_t point) {
  const auto at = std::lower_bound(std::begin(kNewer), std::end(kNewer), point,
                                   [](const Range& range, char32_t x) { return range.last < x; });
  return at != std::end(kNewer) && point >= at->first;
}

int combining_class(utf8proc_int32_t point) {
  return utf8proc_get_property(point)->combining_class;
}

// Sorts each run of combining marks by class. utf8proc_decompose() does the same in quadratic time.
void sort_marks(std::vector<utf8proc_int32_t>& points) {
  const auto is_mark = [](utf8proc_int32_t point) { return combining_class(point) != 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if(begin, points.end(), is_mark);
    const auto end = std::find_if_not(begin, points.end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

void append_decomposed(std::vector<utf8proc_int32_t>& out, char32_t point, bool compatible) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts, 32,
                                         static_cast<utf8proc_option_t>(options), &boundary);
  if (n > 0 && n <= 32)
    out.insert(out.end(), parts, parts + n);
  else
    out.push_back(static_cast<utf8proc_int32_t>(point));
}

// The text has no newer code point.
void append_normalized(std::string& out, std::string_view text, NormalForm form,
                       std::vector<utf8proc_int32_t>& points) {
  const bool compatible = form == NormalForm::kc || form == NormalForm::kd;
  points.clear();
  while (!text.empty()) append_decomposed(points, take_code_point(text), compatible);
  sort_marks(points);
  auto size = static_cast<utf8proc_ssize_t>(points.size());
  if (form == NormalForm::c || form == NormalForm::kc) {
    const auto composed = utf8proc_normalize_utf32(
        points.data(), size, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed >= 0) size = composed;
  }
  points.resize(static_cast<size_t>(size));
  std::vector<utf8proc_int32_t> parts;
  for (utf8proc_int32_t point : points) {
    parts.clear();
    if (is_newer(static_cast<char32_t>(point)))
      append_decomposed(parts, static_cast<char32_t>(point), false);
    else
      parts.push_back(point);
    for (utf8proc_int32_t part : parts) append_code_point(out, static_cast<char32_t>(part));
  }
}

// Newer code points stay as they are, and separate what is before from what is after them.
void append_parts(std::string& out, std::string_view text, NormalForm form,
                  std::vector<utf8proc_int32_t>& points) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view before = rest;
    if (!is_newer(take_code_point(rest))) continue;
    append_normalized(out, text.substr(0, text.size() - before.size()), form, points);
    out += before.substr(0, before.size() - rest.size());
    text = rest;
  }
  append_normalized(out, text, form, points);
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

char32_t take_code_point(std::string_view& text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  const size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t point = n == 1 ? lead : lead & (0x7f >> n);
  for (size_t i = 1; i < n; ++i) point = point << 6 | (at(i) & 0x3f);
  text.remove_prefix(n);
  return point;
}

char32_t take_last_code_point(std::string_view& text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  std::string_view last = text.substr(begin);
  text = text.substr(0, begin);
  return take_code_point(last);
}

void append_code_point(std::string& out, char32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xc0 | point >> 6);
    out += tail(0);
  } else if (point < 0x10000) {
    out += static_cast<char>(0xe0 | point >> 12);
    out += tail(6);
    out += tail(0);
  } else {
    out += static_cast<char>(0xf0 | point >> 18);
    out += tail(12);
    out += tail(6);
    out += tail(0);
  }
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool is_white_space(char32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13);
  const utf8proc_category_t of = category(point);
  return point == 0x85 || of == UTF8PROC_CATEGORY_ZS || of == UTF8PROC_CATEGORY_ZL ||
         of == UTF8PROC_CATEGORY_ZP;
}

bool is_numeric(char32_t point) {
  const utf8proc_category_t of = category(point);
  return of == UTF8PROC_CATEGORY_ND || of == UTF8PROC_CATEGORY_NL || of == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t point) {
  if (point < 0x80)
    return (point >= '!' && point <= '/') || (point >= ':' && point <= '@') ||
           (point >= '[' && point <= '`') || (point >= '{' && point <= '~');
  const utf8proc_category_t of = category(point);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO;
}

bool is_printable(char32_t point) {
  if (point == ' ') return true;
  const utf8proc_category_t of = category(point);
  return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_SO;
}

bool is_word(char32_t point) {
  const utf8proc_category_t of = category(point);
  const bool letter = of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO,
             mark = of >= UTF8PROC_CATEGORY_MN && of <= UTF8PROC_CATEGORY_ME,
             number = of == UTF8PROC_CATEGORY_ND || of == UTF8PROC_CATEGORY_NL;
  return letter || mark || number || of == UTF8PROC_CATEGORY_PC || point == 0x200c ||
         point == 0x200d || is_letter_symbol(point);
}

// A character of ASCII does not combine with what comes before it, so the text is normalized in
// parts that begin with one.
std::string normalized(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && is_ascii(text[plain])) ++plain;
    if (plain == text.size()) return out += text;
    const size_t begin = plain > 0 ? plain - 1 : 0;
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    size_t end = 1;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    append_parts(out, text.substr(0, end), form, points);
    text.remove_prefix(end);
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char32_t point = take_code_point(text);
    // The only letter whose small form has two code points.
    if (point == 0x130)
      out += "i\xcc\x87";
    else
      append_code_point(
          out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
  }
  return out;
}

}  // namespace weft
