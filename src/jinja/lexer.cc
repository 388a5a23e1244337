#include "jinja/lexer.h"

#include <algorithm>

#include "base/hex.h"
#include "base/text.h"
#include "jinja/python_text.h"
#include "text/unicode.h"

namespace weft::jinja {

namespace {

constexpr size_t kMostName = 256;  // bytes; a step may compare names

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// All ends of lines become "\n", and the one at the end is removed.
std::string with_plain_lines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// The value of `digits` hexadecimal digits at the start of the text, or -1.
int64_t hexadecimal(std::string_view text, size_t digits) {
  if (text.size() < digits) return -1;
  int64_t value = 0;
  for (char c : text.substr(0, digits)) {
    const int digit = hex_digit(c);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : source_(with_plain_lines(text)) {}
  Result<std::vector<Token>> run();

 private:
  enum class Sign : uint8_t { none, minus, plus };

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool sees(std::string_view text) const { return rest().starts_with(text); }
  void add(Token::Kind kind, std::string text = {}) {
    out_.push_back({kind, line_, std::move(text)});
  }
  void advance(size_t n);
  Status fault(std::string text) const { return at_line(line_, std::move(text)); }
  Status data_and_tag();
  void add_data(size_t end, Sign sign, bool is_block);
  Status comment();
  Status tag(bool is_block);
  bool close_tag(bool is_block);
  Status expression_token();
  Status string();
  Status escape(std::string& out);
  void number();
  Status symbol();

  const std::string source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  std::vector<Token> out_;
  std::string open_;  // brackets that are expected to close
};

void Lexer::advance(size_t n) {
  line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                            source_.begin() + static_cast<std::ptrdiff_t>(at_ + n),
                                            '\n'));
  at_ += n;
}

Result<std::vector<Token>> Lexer::run() {
  while (at_ < source_.size()) WEFT_TRY(data_and_tag());
  add(Token::Kind::end);
  return std::move(out_);
}

Status Lexer::data_and_tag() {
  size_t end = at_;
  const auto begins_tag = [&](size_t i) {
    return source_[i] == '{' &&
           (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#');
  };
  while (end + 1 < source_.size() && !begins_tag(end)) ++end;
  if (end + 1 >= source_.size()) {
    add(Token::Kind::data, std::string(rest()));
    advance(source_.size() - at_);
    return {};
  }
  const char second = source_[end + 1];
  const char sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
  const Sign strip = sign == '-' ? Sign::minus : sign == '+' ? Sign::plus : Sign::none;
  add_data(end, strip, second != '{');
  advance(end - at_ + 2 + (strip == Sign::none ? 0 : 1));
  return second == '#' ? comment() : tag(second == '%');
}

// The text up to a tag.
void Lexer::add_data(size_t end, Sign sign, bool is_block) {
  const bool line_begins = at_ == 0 || source_[at_ - 1] == '\n';
  std::string_view text = std::string_view(source_).substr(at_, end - at_);
  if (sign == Sign::minus) {
    text = stripped(text, Side::right);
  } else if (sign == Sign::none && is_block) {
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == text.npos ? 0 : newline + 1;
    if ((begin > 0 || line_begins) && stripped(text.substr(begin), Side::right).empty())
      text = text.substr(0, begin);
  }
  if (!text.empty()) add(Token::Kind::data, std::string(text));
}

Status Lexer::comment() {
  const size_t end = source_.find("#}", at_);
  if (end == source_.npos) return fault("the comment has no end '#}'");
  const char sign = end > at_ ? source_[end - 1] : ' ';
  advance(end + 2 - at_);
  if (sign == '-')
    advance(rest().size() - stripped(rest(), Side::left).size());
  else if (sign != '+' && sees("\n"))
    advance(1);
  return {};
}

Status Lexer::tag(bool is_block) {
  add(is_block ? Token::Kind::block_begin : Token::Kind::print_begin);
  open_.clear();
  for (;;) {
    while (at_ < source_.size() && is_blank(source_[at_])) advance(1);
    if (at_ >= source_.size())
      return fault(cat("the tag has no end '", is_block ? "%}" : "}}", "'"));
    if (open_.empty() && close_tag(is_block)) return {};
    WEFT_TRY(expression_token());
  }
}

bool Lexer::close_tag(bool is_block) {
  const std::string_view end = is_block ? "%}" : "}}";
  const bool signed_end =
      (sees("-") || (is_block && sees("+"))) && rest().substr(1).starts_with(end);
  if (!signed_end && !sees(end)) return false;
  const bool strips = signed_end && sees("-");
  advance(signed_end ? 3 : 2);
  add(is_block ? Token::Kind::block_end : Token::Kind::print_end);
  if (strips)
    advance(rest().size() - stripped(rest(), Side::left).size());
  else if (is_block && !signed_end && sees("\n"))
    advance(1);
  return true;
}

Status Lexer::expression_token() {
  const char c = source_[at_];
  if (begins_name(c)) {
    size_t n = 1;
    while (n < rest().size() && (begins_name(rest()[n]) || is_digit(rest()[n]))) ++n;
    if (n > kMostName) return fault(cat("a name has ", n, " bytes, expected at most ", kMostName));
    add(Token::Kind::name, std::string(rest().substr(0, n)));
    advance(n);
    return {};
  }
  if (c == '\'' || c == '"') return string();
  if (is_digit(c)) {
    number();
    return {};
  }
  return symbol();
}

Status Lexer::string() {
  const char quote = source_[at_];
  Token token{Token::Kind::text, line_, {}};
  advance(1);
  while (at_ < source_.size() && source_[at_] != quote) {
    if (source_[at_] == '\\') {
      WEFT_TRY(escape(token.text));
    } else {
      token.text += source_[at_];
      advance(1);
    }
  }
  if (at_ >= source_.size()) return at_line(token.line, "the text has no closing quote");
  advance(1);
  out_.push_back(std::move(token));
  return {};
}

// Those of Python; an escape that Python does not know stays as it is.
Status Lexer::escape(std::string& out) {
  if (at_ + 1 >= source_.size()) return fault("the text has no closing quote");
  const char c = source_[at_ + 1];
  const std::string_view codes = "\\'\"abfnrtv";
  if (const size_t code = codes.find(c); code != codes.npos) {
    out += "\\'\"\a\b\f\n\r\t\v"[code];
    advance(2);
    return {};
  }
  if (c == '\n') {
    advance(2);
    return {};
  }
  const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits > 0) {
    const int64_t point = hexadecimal(rest().substr(2), digits);
    if (point < 0 || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
      return fault(
          cat("the escape '\\", c, "' expects ", digits, " hexadecimal digits of a character"));
    append_code_point(out, static_cast<char32_t>(point));
    advance(2 + digits);
    return {};
  }
  if (is_digit(c) || c == 'N') return fault(cat("the escape '\\", c, "' is not supported"));
  out += '\\';
  advance(1);
  return {};
}

void Lexer::number() {
  const bool after_dot = !out_.empty() && at_ > 0 && source_[at_ - 1] == '.';
  size_t n = 1;
  const auto digit_at = [&](size_t i) { return i < rest().size() && is_digit(rest()[i]); };
  while (digit_at(n)) ++n;
  Token::Kind kind = Token::Kind::integer;
  if (!after_dot && n < rest().size() && rest()[n] == '.' && digit_at(n + 1)) {
    kind = Token::Kind::real;
    ++n;
    while (digit_at(n)) ++n;
  }
  add(kind, std::string(rest().substr(0, n)));
  advance(n);
}

Status Lexer::symbol() {
  constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                           "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ","};
  for (std::string_view symbol : kSymbols) {
    if (!sees(symbol)) continue;
    const char c = symbol[0];
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_.empty() || open_.back() != c) return fault(cat("unexpected '", c, "'"));
      open_.pop_back();
    }
    add(Token::Kind::symbol, std::string(symbol));
    advance(symbol.size());
    return {};
  }
  return fault(
      cat("unexpected ", quoted(rest().substr(0, std::max<size_t>(1, utf8_bytes(rest()))))));
}

}  // namespace

Result<std::vector<Token>> tokens_of(std::string_view text) { return Lexer(text).run(); }

Status at_line(uint32_t line, std::string text) {
  return Status(Code::data, cat("line ", line, ": ", text));
}

}  // namespace weft::jinja
