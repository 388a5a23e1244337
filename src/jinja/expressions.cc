#include "jinja/expressions.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/expression_parser.h"

namespace weft::jinja {

using Form = Expression::Kind;

namespace {

// Chains of operators, filters and attributes nest without nested syntax. The interpreter has more
// levels.
constexpr uint32_t kMostDepth = 100;

}  // namespace

Result<ExpressionPtr> ExpressionParser::make(Expression expression) {
  const auto count = [&](const ExpressionPtr& part) {
    if (part) expression.depth = std::max(expression.depth, part->depth + 1);
  };
  for (const ExpressionPtr& part : expression.parts) count(part);
  for (const ExpressionPtr& part : expression.arguments.positional) count(part);
  for (const auto& [name, part] : expression.arguments.named) count(part);
  if (expression.depth > kMostDepth)
    return at_line(expression.line, cat("an expression has more than ", kMostDepth, " levels"));
  return ExpressionPtr(std::make_unique<const Expression>(std::move(expression)));
}

Result<ExpressionPtr> ExpressionParser::make(Form kind, uint32_t line, std::string name,
                                             std::vector<ExpressionPtr> parts) {
  Expression out;
  out.kind = kind;
  out.line = line;
  out.name = std::move(name);
  out.parts = std::move(parts);
  return make(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::condition() {
  const TokenReader::Level level(reader_);
  WEFT_TRY(level.check());
  WEFT_TRY_ASSIGN(ExpressionPtr value, disjunction());
  while (reader_.is_name("if")) {
    const uint32_t line = reader_.take().line;
    WEFT_TRY_ASSIGN(ExpressionPtr test, disjunction());
    ExpressionPtr otherwise;
    if (reader_.take_name("else")) {
      WEFT_TRY_ASSIGN(otherwise, condition());
    }
    WEFT_TRY_ASSIGN(value, make(Form::condition, line, {},
                                parts_of(std::move(value), std::move(test), std::move(otherwise))));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::disjunction() {
  WEFT_TRY_ASSIGN(ExpressionPtr value, conjunction());
  while (reader_.is_name("or")) {
    const uint32_t line = reader_.take().line;
    WEFT_TRY_ASSIGN(ExpressionPtr right, conjunction());
    WEFT_TRY_ASSIGN(
        value, make(Form::disjunction, line, {}, parts_of(std::move(value), std::move(right))));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::conjunction() {
  WEFT_TRY_ASSIGN(ExpressionPtr value, negation());
  while (reader_.is_name("and")) {
    const uint32_t line = reader_.take().line;
    WEFT_TRY_ASSIGN(ExpressionPtr right, negation());
    WEFT_TRY_ASSIGN(
        value, make(Form::conjunction, line, {}, parts_of(std::move(value), std::move(right))));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::negation() {
  const TokenReader::Level level(reader_);
  WEFT_TRY(level.check());
  if (!reader_.is_name("not")) return comparison();
  const uint32_t line = reader_.take().line;
  WEFT_TRY_ASSIGN(ExpressionPtr value, negation());
  return make(Form::negation, line, {}, std::move(value));
}

// The comparison at this place, which is passed, or an empty text.
std::string ExpressionParser::comparison_symbol() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
    if (reader_.take_symbol(symbol)) return symbol;
  if (reader_.take_name("in")) return "in";
  if (!reader_.is_name("not") || reader_.after().kind != Token::Kind::name ||
      reader_.after().text != "in")
    return {};
  reader_.take();
  reader_.take();
  return "not in";
}

Result<ExpressionPtr> ExpressionParser::comparison() {
  Expression out;
  out.kind = Form::comparison;
  out.line = reader_.line();
  WEFT_TRY_ASSIGN(ExpressionPtr first, sum());
  out.parts.push_back(std::move(first));
  for (;;) {
    std::string symbol = comparison_symbol();
    if (symbol.empty()) break;
    out.names.push_back(std::move(symbol));
    WEFT_TRY_ASSIGN(ExpressionPtr next, sum());
    out.parts.push_back(std::move(next));
  }
  if (out.names.empty()) return std::move(out.parts[0]);
  return make(std::move(out));
}

Result<ExpressionPtr> ExpressionParser::chain(Step next,
                                              std::initializer_list<std::string_view> symbols) {
  WEFT_TRY_ASSIGN(ExpressionPtr value, (this->*next)());
  const auto at_operator = [&] {
    return reader_.is(Token::Kind::symbol) &&
           std::find(symbols.begin(), symbols.end(), reader_.now().text) != symbols.end();
  };
  while (at_operator()) {
    const Token& symbol = reader_.take();
    WEFT_TRY_ASSIGN(ExpressionPtr right, (this->*next)());
    WEFT_TRY_ASSIGN(value, make(Form::arithmetic, symbol.line, symbol.text,
                                parts_of(std::move(value), std::move(right))));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::sum() {
  return chain(&ExpressionParser::concat, {"+", "-"});
}

Result<ExpressionPtr> ExpressionParser::concat() {
  const uint32_t line = reader_.line();
  std::vector<ExpressionPtr> parts;
  do {
    WEFT_TRY_ASSIGN(ExpressionPtr part, product());
    parts.push_back(std::move(part));
  } while (reader_.take_symbol("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return make(Form::concat, line, {}, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::product() {
  const auto operand = [](ExpressionParser& parser) { return parser.unary(true); };
  WEFT_TRY_ASSIGN(ExpressionPtr value, operand(*this));
  for (;;) {
    if (reader_.is_symbol("**"))
      return at_line(reader_.line(), "the operator '**' is not supported");
    if (!reader_.is_symbol("*") && !reader_.is_symbol("/") && !reader_.is_symbol("//") &&
        !reader_.is_symbol("%"))
      return value;
    const Token& symbol = reader_.take();
    WEFT_TRY_ASSIGN(ExpressionPtr right, operand(*this));
    WEFT_TRY_ASSIGN(value, make(Form::arithmetic, symbol.line, symbol.text,
                                parts_of(std::move(value), std::move(right))));
  }
}

Result<ExpressionPtr> ExpressionParser::unary(bool with_filters) {
  const TokenReader::Level level(reader_);
  WEFT_TRY(level.check());
  ExpressionPtr value;
  if (reader_.is_symbol("-") || reader_.is_symbol("+")) {
    const Token& sign = reader_.take();
    WEFT_TRY_ASSIGN(ExpressionPtr operand, unary(false));
    WEFT_TRY_ASSIGN(value, make(sign.text == "-" ? Form::negative : Form::positive, sign.line, {},
                                std::move(operand)));
  } else {
    WEFT_TRY_ASSIGN(value, primary());
  }
  WEFT_TRY_ASSIGN(value, postfix(std::move(value)));
  return with_filters ? filters(std::move(value)) : Result<ExpressionPtr>(std::move(value));
}

Result<ExpressionPtr> parse_expression(TokenReader& reader) {
  return ExpressionParser(reader).condition();
}

Result<ExpressionPtr> parse_tuple(TokenReader& reader, bool with_condition) {
  return ExpressionParser(reader).tuple(with_condition, false);
}

}  // namespace weft::jinja
