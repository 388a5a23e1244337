// The parts of the parser of expressions, for its two files.
#pragma once

#include <string>
#include <vector>

#include "jinja/syntax.h"
#include "jinja/tokens.h"

namespace weft::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  Result<ExpressionPtr> condition();
  Result<ExpressionPtr> disjunction();
  Result<ExpressionPtr> tuple(bool with_condition, bool in_brackets);

 private:
  using Step = Result<ExpressionPtr> (ExpressionParser::*)();

  Result<ExpressionPtr> make(Expression expression);
  Result<ExpressionPtr> make(Expression::Kind kind, uint32_t line, std::string name,
                             std::vector<ExpressionPtr> parts);
  Result<ExpressionPtr> make(Expression::Kind kind, uint32_t line, std::string name,
                             ExpressionPtr part) {
    return make(kind, line, std::move(name), parts_of(std::move(part)));
  }
  template <typename... Parts>
  static std::vector<ExpressionPtr> parts_of(Parts... parts) {
    std::vector<ExpressionPtr> out;
    (out.push_back(std::move(parts)), ...);
    return out;
  }
  // expressions.cc: operators, from the weakest to the strongest
  Result<ExpressionPtr> conjunction();
  Result<ExpressionPtr> negation();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concat();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> unary(bool with_filters);
  Result<ExpressionPtr> chain(Step next, std::initializer_list<std::string_view> symbols);
  // operands.cc: what operators connect
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> name();
  Result<ExpressionPtr> number();
  Result<ExpressionPtr> list();
  Result<ExpressionPtr> dict();
  Result<ExpressionPtr> postfix(ExpressionPtr value);
  Result<ExpressionPtr> attribute(ExpressionPtr value);
  Result<ExpressionPtr> item(ExpressionPtr value);
  Result<ExpressionPtr> filters(ExpressionPtr value);
  Result<ExpressionPtr> test(ExpressionPtr value);
  Result<ArgumentList> arguments();
  std::string comparison_symbol();

  TokenReader& reader_;
};

}  // namespace weft::jinja
