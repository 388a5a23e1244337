#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/text.h"
#include "jinja/expression_parser.h"
#include "jinja/expressions.h"
#include "jinja/functions.h"

namespace weft::jinja {

using Form = Expression::Kind;

Result<ExpressionPtr> ExpressionParser::primary() {
  const uint32_t line = reader_.line();
  switch (reader_.now().kind) {
    case Token::Kind::name: return name();
    case Token::Kind::integer:
    case Token::Kind::real: return number();
    case Token::Kind::text: {
      Expression out;
      out.line = line;
      std::string text;
      while (reader_.is(Token::Kind::text)) text += reader_.take().text;
      out.value = Value(std::move(text));
      return make(std::move(out));
    }
    default: break;
  }
  if (reader_.is_symbol("[")) return list();
  if (reader_.is_symbol("{")) return dict();
  if (!reader_.take_symbol("(")) return reader_.unexpected("an expression");
  WEFT_TRY_ASSIGN(ExpressionPtr value, tuple(true, true));
  WEFT_TRY(reader_.expect_symbol(")"));
  return value;
}

Result<ExpressionPtr> ExpressionParser::name() {
  const Token& token = reader_.take();
  Expression out;
  out.line = token.line;
  if (token.text == "true" || token.text == "True") {
    out.value = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    out.value = Value(false);
  } else if (token.text != "none" && token.text != "None") {
    WEFT_TRY(check_name(token.text, token.line));
    out.kind = Form::name;
    out.name = token.text;
  }
  return make(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::number() {
  const Token& token = reader_.take();
  Expression out;
  out.line = token.line;
  const char* end = token.text.data() + token.text.size();
  int64_t whole = 0;
  double real = 0;
  const auto read = token.kind == Token::Kind::integer
                        ? std::from_chars(token.text.data(), end, whole)
                        : std::from_chars(token.text.data(), end, real);
  if (read.ec != std::errc() || read.ptr != end)
    return at_line(token.line, cat("the number ", shown(token.text), " is out of range"));
  out.value = token.kind == Token::Kind::integer ? Value(whole) : Value(real);
  return make(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::list() {
  const uint32_t line = reader_.take().line;
  std::vector<ExpressionPtr> parts;
  while (!reader_.is_symbol("]")) {
    if (!parts.empty()) WEFT_TRY(reader_.expect_symbol(","));
    if (reader_.is_symbol("]")) break;
    WEFT_TRY_ASSIGN(ExpressionPtr part, condition());
    parts.push_back(std::move(part));
  }
  reader_.take();
  return make(Form::list, line, {}, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::dict() {
  const uint32_t line = reader_.take().line;
  std::vector<ExpressionPtr> parts;
  while (!reader_.is_symbol("}")) {
    if (!parts.empty()) WEFT_TRY(reader_.expect_symbol(","));
    if (reader_.is_symbol("}")) break;
    WEFT_TRY_ASSIGN(ExpressionPtr key, condition());
    parts.push_back(std::move(key));
    WEFT_TRY(reader_.expect_symbol(":"));
    WEFT_TRY_ASSIGN(ExpressionPtr value, condition());
    parts.push_back(std::move(value));
  }
  reader_.take();
  return make(Form::dict, line, {}, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::tuple(bool with_condition, bool in_brackets) {
  const uint32_t line = reader_.line();
  std::vector<ExpressionPtr> parts;
  bool has_comma = false;
  const auto ends = [&] {
    return reader_.is_symbol(")") || reader_.is(Token::Kind::block_end) ||
           reader_.is(Token::Kind::print_end) || reader_.is_name("recursive");
  };
  while (!ends()) {
    WEFT_TRY_ASSIGN(ExpressionPtr part, with_condition ? condition() : disjunction());
    parts.push_back(std::move(part));
    if (!reader_.take_symbol(",")) break;
    has_comma = true;
  }
  if (parts.size() == 1 && !has_comma) return std::move(parts[0]);
  if (parts.empty() && !in_brackets) return reader_.unexpected("an expression");
  return make(Form::tuple, line, {}, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (reader_.is_symbol(".")) {
      WEFT_TRY_ASSIGN(value, attribute(std::move(value)));
    } else if (reader_.is_symbol("[")) {
      WEFT_TRY_ASSIGN(value, item(std::move(value)));
    } else if (reader_.is_symbol("(")) {
      Expression out;
      out.kind = Form::call;
      out.line = reader_.line();
      WEFT_TRY_ASSIGN(out.arguments, arguments());
      out.parts.push_back(std::move(value));
      WEFT_TRY_ASSIGN(value, make(std::move(out)));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::attribute(ExpressionPtr value) {
  const uint32_t line = reader_.take().line;
  if (reader_.is(Token::Kind::integer)) {
    WEFT_TRY_ASSIGN(ExpressionPtr index, number());
    return make(Form::item, line, {}, parts_of(std::move(value), std::move(index)));
  }
  WEFT_TRY_ASSIGN(std::string name, reader_.expect_name("an attribute"));
  if (name.starts_with("__"))
    return at_line(line, cat("the attribute ", shown(name), " is not allowed"));
  return make(Form::attribute, line, std::move(name), std::move(value));
}

Result<ExpressionPtr> ExpressionParser::item(ExpressionPtr value) {
  const uint32_t line = reader_.take().line;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(value));
  const auto bound = [&]() -> Status {
    parts.emplace_back();
    if (reader_.is_symbol(":") || reader_.is_symbol("]")) return {};
    WEFT_TRY_ASSIGN(parts.back(), condition());
    return {};
  };
  WEFT_TRY(bound());
  const bool is_slice = reader_.is_symbol(":");
  while (is_slice && parts.size() < 4 && reader_.take_symbol(":")) WEFT_TRY(bound());
  if (!is_slice && !parts[1]) return reader_.unexpected("an index");
  WEFT_TRY(reader_.expect_symbol("]"));
  if (is_slice) parts.resize(4);
  return make(is_slice ? Form::slice : Form::item, line, {}, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::filters(ExpressionPtr value) {
  for (;;) {
    if (reader_.is_name("is")) {
      WEFT_TRY_ASSIGN(value, test(std::move(value)));
      continue;
    }
    if (!reader_.take_symbol("|")) return value;
    Expression out;
    out.kind = Form::filter;
    out.line = reader_.line();
    WEFT_TRY_ASSIGN(out.name, reader_.expect_name("a filter"));
    if (!has_filter(out.name))
      return at_line(out.line, cat("the filter ", shown(out.name), " is not supported"));
    if (reader_.is_symbol("(")) {
      WEFT_TRY_ASSIGN(out.arguments, arguments());
    }
    out.parts.push_back(std::move(value));
    WEFT_TRY_ASSIGN(value, make(std::move(out)));
  }
}

Result<ExpressionPtr> ExpressionParser::test(ExpressionPtr value) {
  reader_.take();
  const bool negated = reader_.take_name("not");
  Expression out;
  out.kind = Form::test;
  out.line = reader_.line();
  WEFT_TRY_ASSIGN(out.name, reader_.expect_name("a test"));
  if (!has_test(out.name))
    return at_line(out.line, cat("the test ", shown(out.name), " is not supported"));
  const auto begins_argument = [&] {
    const Token& now = reader_.now();
    switch (now.kind) {
      case Token::Kind::name:
        return now.text != "else" && now.text != "or" && now.text != "and" && now.text != "is" &&
               now.text != "if" && now.text != "in" && now.text != "not";
      case Token::Kind::text:
      case Token::Kind::integer:
      case Token::Kind::real: return true;
      default: return reader_.is_symbol("[") || reader_.is_symbol("{");
    }
  };
  if (reader_.is_symbol("(")) {
    WEFT_TRY_ASSIGN(out.arguments, arguments());
  } else if (begins_argument()) {
    WEFT_TRY_ASSIGN(ExpressionPtr argument, primary());
    WEFT_TRY_ASSIGN(argument, postfix(std::move(argument)));
    out.arguments.positional.push_back(std::move(argument));
  }
  const uint32_t line = out.line;
  out.parts.push_back(std::move(value));
  WEFT_TRY_ASSIGN(ExpressionPtr tested, make(std::move(out)));
  return negated ? make(Form::negation, line, {}, std::move(tested))
                 : Result<ExpressionPtr>(std::move(tested));
}

Result<ArgumentList> ExpressionParser::arguments() {
  reader_.take();
  ArgumentList out;
  while (!reader_.is_symbol(")")) {
    if (reader_.is_symbol("*") || reader_.is_symbol("**"))
      return at_line(reader_.line(), "unpacked arguments are not supported");
    const Token& after = reader_.after();
    if (reader_.is(Token::Kind::name) && after.kind == Token::Kind::symbol && after.text == "=") {
      std::string name = reader_.take().text;
      reader_.take();
      WEFT_TRY_ASSIGN(ExpressionPtr value, condition());
      out.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!out.named.empty()) return reader_.unexpected("an argument with a name");
      WEFT_TRY_ASSIGN(ExpressionPtr value, condition());
      out.positional.push_back(std::move(value));
    }
    if (!reader_.is_symbol(")")) WEFT_TRY(reader_.expect_symbol(","));
  }
  reader_.take();
  return out;
}

Status check_name(const std::string& name, uint32_t line) {
  constexpr std::string_view kRefused[] = {"caller", "varargs", "kwargs", "self",
                                           "super",  "cycler",  "joiner", "lipsum"};
  if (std::find(std::begin(kRefused), std::end(kRefused), name) == std::end(kRefused)) return {};
  return at_line(line, cat("the name ", shown(name), " is not supported"));
}

}  // namespace weft::jinja
