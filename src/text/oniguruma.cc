#include "text/oniguruma.h"

#include <algorithm>
#include <vector>

#include "base/fault.h"
#include "base/hex.h"
#include "base/text.h"

namespace weft {

namespace {

// Members of classes of characters. The \s of PCRE2 has U+180E too; its \w depends on the version.
constexpr const char* kSpace = R"(\x{09}-\x{0d}\x{85}\p{Z})";
constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr const char* kHex = "0-9A-Fa-f";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> run();

 private:
  bool at_end() const { return rest_.empty(); }
  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool take_if(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  std::string take_hex(size_t most);

  Status piece();
  Status open_group();
  Status escape();
  Status escape_in_class();
  Status code_point(char kind);
  Status property(char kind);
  Status set();
  Status range_name();
  Status count();
  void quantifier(const std::string& text, bool braces);
  void begin_atom() { atom_ = out_.size(); }

  static constexpr size_t kNone = std::string::npos;
  std::string_view rest_;
  std::string out_;
  size_t atom_ = kNone;         // where the part begins that a quantifier would repeat
  std::vector<size_t> groups_;  // where the open groups begin
};

Result<std::string> Translator::run() {
  while (!at_end()) WEFT_TRY(piece());
  return std::move(out_);
}

Status Translator::piece() {
  const char c = rest_.front();
  switch (c) {
    case '\\': return escape();
    case '[': begin_atom(); return set();
    case '(': return open_group();
    case '{': return count();
    default: break;
  }
  take();
  if (c == '*' || c == '+' || c == '?') {
    quantifier(std::string(1, c), false);
  } else if (c == ')') {
    out_ += c;
    if (groups_.empty()) return fault("expected '(' before ')'");
    atom_ = groups_.back();
    groups_.pop_back();
  } else if (c == '|' || c == '^' || c == '$') {
    out_ += c;
    atom_ = kNone;
  } else {
    begin_atom();
    out_ += c;
    const auto lead = static_cast<unsigned char>(c);
    while (lead >= 0x80 && !at_end() && (static_cast<unsigned char>(rest_.front()) & 0xc0) == 0x80)
      out_ += take();
  }
  return {};
}

Status Translator::open_group() {
  const size_t begin = out_.size();
  take();
  out_ += '(';
  if (take_if("?")) {
    out_ += '?';
    bool known = false;
    for (const char* kind : {":", "=", "!", ">", "<=", "<!"}) {
      if (known || !take_if(kind)) continue;
      out_ += kind;
      known = true;
    }
    if (!known) {  // (?i: or (?i)
      if (!take_if("i")) return fault(cat("'(?", head_of(rest_, 2), "' is not known to weft"));
      out_ += 'i';
      if (begin == 0 && take_if(")")) {  // elsewhere the two differ in where it ends
        out_ += ')';
        atom_ = kNone;
        return {};
      }
      if (!take_if(":")) return fault(cat("'(?i", head_of(rest_, 2), "' is not known to weft"));
      out_ += ':';
    }
  } else if (rest_.starts_with('*')) {
    return fault("'(*' is not known to weft");
  }
  groups_.push_back(begin);
  atom_ = kNone;
  return {};
}

// {n,m} in braces; any other brace is a character.
// The characters that a long repetition passes are not counted one by one (regex.h).
Status Translator::count() {
  constexpr int64_t kMost = 1000;
  take();
  size_t n = 0;
  while (n < rest_.size() && (is_digit(rest_[n]) || rest_[n] == ',')) ++n;
  const std::string_view inside = rest_.substr(0, n);
  const bool counts = n < rest_.size() && rest_[n] == '}' && inside.size() > 0 && inside != "," &&
                      std::count(inside.begin(), inside.end(), ',') <= 1;
  if (!counts) {
    begin_atom();
    out_ += "\\{";
    return {};
  }
  rest_.remove_prefix(n + 1);
  const std::string_view last = inside.substr(inside.rfind(',') + 1);
  for (const std::string_view number : {inside.substr(0, inside.find(',')), last})
    if (number.size() > 4 || (!number.empty() && std::stoll(std::string(number)) > kMost))
      return fault(cat("repeats ", number, " times, expected at most ", kMost));
  const std::string least = inside.starts_with(',') ? "0" : "";
  quantifier(cat("{", least, inside, "}"), true);
  return {};
}

// After braces, '+' repeats again; it is not possessive as with PCRE2.
void Translator::quantifier(const std::string& text, bool braces) {
  out_ += text;
  // {n}? may repeat zero times; it is not lazy as with PCRE2.
  const bool exact = braces && text.find(',') == text.npos;
  if (!exact && take_if("?")) {
    out_ += '?';
  } else if (!braces && take_if("+")) {
    out_ += '+';
  }
  const bool again = !at_end() && (rest_.front() == '*' || rest_.front() == '+' ||
                                   rest_.front() == '?' || rest_.front() == '{');
  if (again && atom_ != kNone) {
    out_.insert(atom_, "(?:");
    out_ += ')';
  }
}

std::string Translator::take_hex(size_t most) {
  std::string digits;
  while (digits.size() < most && !at_end() && hex_digit(rest_.front()) >= 0) digits += take();
  return digits;
}

// \xHH, \x{H...} and \uHHHH.
Status Translator::code_point(char kind) {
  const bool braces = kind == 'x' && take_if("{");
  const std::string digits = take_hex(braces ? 6 : kind == 'x' ? 2 : 4);
  if (digits.empty() || (kind == 'u' && digits.size() < 4) || (braces && !take_if("}")))
    return fault(
        cat("'\\", kind, "' expects hexadecimal digits, found ", shown(head_of(rest_, 8))));
  append(out_, "\\x{", digits, "}");
  return {};
}

// A name that is neither a category nor a property is that of a script. PCRE2 would also accept the
// characters that a script shares with others.
Status Translator::property(char kind) {
  const size_t end = rest_.starts_with('{') ? rest_.find('}') : kNone;
  if (end == kNone) return fault(cat("'\\", kind, "' expects a name in braces"));
  std::string_view name = rest_.substr(1, end - 1);
  rest_.remove_prefix(end + 1);
  const bool negated = name.starts_with('^');
  if (negated) name.remove_prefix(1);
  if (name.empty() ||
      !std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || c == '_'; }))
    return fault(cat(shown(cat("\\", kind, "{", name, "}")), " is not known to weft"));
  const bool category = name.size() <= 2 || name == "Any" || name == "Alphabetic" ||
                        name == "Uppercase" || name == "Lowercase" || name == "White_Space";
  append(out_, "\\", kind, "{", negated ? "^" : "", category ? "" : "sc:", name, "}");
  return {};
}

Status Translator::escape() {
  take();
  if (at_end()) return fault("expected a character after '\\'");
  const char c = take();
  begin_atom();
  switch (c) {
    case 's': append(out_, "[", kSpace, "]"); return {};
    case 'S': append(out_, "[^", kSpace, "]"); return {};
    case 'w': append(out_, "[", kWord, "]"); return {};
    case 'W': append(out_, "[^", kWord, "]"); return {};
    case 'h': append(out_, "[", kHex, "]"); return {};
    case 'H': append(out_, "[^", kHex, "]"); return {};
    case 'd': out_ += "\\p{Nd}"; return {};
    case 'D': out_ += "\\P{Nd}"; return {};
    case 'b':
    case 'B': {
      const std::string word = cat("[", kWord, "]");
      const char *first = c == 'b' ? "(?!" : "(?=", *second = c == 'b' ? "(?=" : "(?!";
      append(out_, "(?:(?<=", word, ")", first, word, ")|(?<!", word, ")", second, word, "))");
      atom_ = kNone;
      return {};
    }
    case 'A':
    case 'z':
    case 'Z':
      append(out_, "\\", c);
      atom_ = kNone;
      return {};
    default: rest_ = {rest_.data() - 1, rest_.size() + 1}; return escape_in_class();
  }
}

// What follows '\', and means one character or a property, in and outside of classes.
Status Translator::escape_in_class() {
  const char c = take();
  switch (c) {
    case 's': out_ += kSpace; return {};
    case 'w': out_ += kWord; return {};
    case 'h': out_ += kHex; return {};
    case 'd': out_ += "\\p{Nd}"; return {};
    case 'D': out_ += "\\P{Nd}"; return {};
    case 'S': out_ += "\\S\\x{180e}"; return {};  // the \s of PCRE2 has U+180E
    case 'v': out_ += "\\x{0b}"; return {};
    case 'p':
    case 'P': return property(c);
    case 'x':
    case 'u': return code_point(c);
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e': append(out_, "\\", c); return {};
    case '0': out_ += "\\x{00}"; return {};
    default: break;
  }
  if (is_letter(c) || is_digit(c)) return fault(cat("'\\", c, "' is not known to weft"));
  if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';
  out_ += c;
  return {};
}

// [:name:] in a class.
Status Translator::range_name() {
  const size_t end = rest_.find(":]");
  const std::string_view name = rest_.substr(2, end == kNone ? 0 : end - 2);
  const std::pair<std::string_view, const char*> known[] = {{"alpha", "\\p{Alphabetic}"},
                                                            {"digit", "\\p{Nd}"},
                                                            {"space", kSpace},
                                                            {"upper", "\\p{Uppercase}"},
                                                            {"lower", "\\p{Lowercase}"},
                                                            {"word", kWord},
                                                            {"xdigit", kHex}};
  for (const auto& [word, text] : known) {
    if (word != name) continue;
    out_ += text;
    rest_.remove_prefix(end + 2);
    return {};
  }
  return fault(cat(shown(cat("[:", head_of(name, 16), ":]")), " is not known to weft"));
}

Status Translator::set() {
  take();
  out_ += '[';
  if (take_if("^")) out_ += '^';
  bool first = true;
  for (; !at_end(); first = false) {
    if (rest_.front() == ']' && !first) {
      out_ += take();
      return {};
    }
    if (rest_.starts_with("&&")) return fault("'&&' in a class is not known to weft");
    if (rest_.starts_with("[:")) {
      WEFT_TRY(range_name());
      continue;
    }
    const char c = take();
    if (c == '[') return fault("a class inside of a class is not known to weft");
    if (c == '\\') {
      if (at_end()) break;
      WEFT_TRY(escape_in_class());
      continue;
    }
    if (c == ']') out_ += '\\';
    out_ += c;
  }
  return fault("expected ']' at the end of a class");
}

}  // namespace

Result<std::string> translate_oniguruma(std::string_view pattern) {
  if (!valid_utf8(pattern)) return fault("expected UTF-8");
  return Translator(pattern).run();
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !is_letter(c) && !is_digit(c)) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace weft
