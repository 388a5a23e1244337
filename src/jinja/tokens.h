// The position of a parser in the tokens of a template.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"

namespace weft::jinja {

class TokenReader {
 public:
  // Levels of nested expressions and statements.
  static constexpr uint32_t kMostDepth = 100;

  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  uint32_t line() const { return now().line; }
  bool is(Token::Kind kind) const { return now().kind == kind; }
  bool is_symbol(std::string_view text) const {
    return now().kind == Token::Kind::symbol && now().text == text;
  }
  bool is_name(std::string_view text) const {
    return now().kind == Token::Kind::name && now().text == text;
  }
  // The current token, which is passed. The last token is never passed.
  const Token& take();
  bool take_symbol(std::string_view text);
  bool take_name(std::string_view text);
  Status expect_symbol(std::string_view text);
  Status expect(Token::Kind kind, std::string_view what);
  Result<std::string> expect_name(std::string_view what);
  // "line 3: expected WHAT, found ..."
  Status unexpected(std::string_view what) const;

  // One level of nesting.
  class Level {
   public:
    explicit Level(TokenReader& reader) : reader_(reader) { ++reader_.depth_; }
    ~Level() { --reader_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Status check() const;

   private:
    TokenReader& reader_;
  };

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
};

}  // namespace weft::jinja
