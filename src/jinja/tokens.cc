#include "jinja/tokens.h"

#include "base/text.h"

namespace weft::jinja {

namespace {

std::string shown_token(const Token& token) {
  switch (token.kind) {
    case Token::Kind::data: return "text outside of tags";
    case Token::Kind::print_begin: return "'{{'";
    case Token::Kind::print_end: return "'}}'";
    case Token::Kind::block_begin: return "'{%'";
    case Token::Kind::block_end: return "'%}'";
    case Token::Kind::end: return "the end of the template";
    case Token::Kind::text: return cat("the text ", shown(token.text));
    default: return shown(token.text);
  }
}

}  // namespace

const Token& TokenReader::take() {
  const Token& token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::take_symbol(std::string_view text) {
  const bool found = is_symbol(text);
  if (found) take();
  return found;
}

bool TokenReader::take_name(std::string_view text) {
  const bool found = is_name(text);
  if (found) take();
  return found;
}

Status TokenReader::expect_symbol(std::string_view text) {
  return take_symbol(text) ? Status() : unexpected(cat("'", text, "'"));
}

Status TokenReader::expect(Token::Kind kind, std::string_view what) {
  if (!is(kind)) return unexpected(what);
  take();
  return {};
}

Result<std::string> TokenReader::expect_name(std::string_view what) {
  if (!is(Token::Kind::name)) return unexpected(what);
  return take().text;
}

Status TokenReader::unexpected(std::string_view what) const {
  return at_line(line(), cat("expected ", what, ", found ", shown_token(now())));
}

Status TokenReader::Level::check() const {
  if (reader_.depth_ <= kMostDepth) return {};
  return at_line(reader_.line(),
                 cat("expressions and blocks are nested more than ", kMostDepth, " levels"));
}

}  // namespace weft::jinja
