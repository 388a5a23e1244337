#include "jinja/parser.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "jinja/expressions.h"

namespace weft::jinja {

namespace {

using Form = Statement::Kind;
// The tags that end a block.
using Ends = std::span<const std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : reader_(std::move(tokens)) {}

  // Until a tag of `ends`, whose name is the next token; without ends, until the end of the text.
  Result<Block> block(Ends ends);

 private:
  Result<Statement> statement();
  Result<Statement> condition();
  Result<Statement> loop();
  Result<Statement> set();
  Result<Statement> macro();
  Result<Statement> generation();
  Status parameters(Macro& out);
  Result<Target> target();
  Status end_tag() { return reader_.expect(Token::Kind::block_end, "'%}'"); }
  // The body of a block, its tag and the tag that ends it.
  Result<Block> body(std::string_view end);

  TokenReader reader_;
  uint32_t loops_ = 0;   // that the place is in
  uint32_t scopes_ = 0;  // that a macro at this place would see
  bool in_generation_ = false;
};

Result<Block> Parser::block(Ends ends) {
  const TokenReader::Level level(reader_);
  WEFT_TRY(level.check());
  Block out;
  for (;;) {
    const uint32_t line = reader_.line();
    if (reader_.is(Token::Kind::end)) {
      if (ends.empty()) return out;
      return reader_.unexpected(cat("the tag '", ends.back(), "'"));
    }
    if (reader_.is(Token::Kind::data)) {
      Statement data;
      data.line = line;
      data.text = reader_.take().text;
      out.push_back(std::move(data));
      continue;
    }
    if (reader_.is(Token::Kind::print_begin)) {
      reader_.take();
      Statement print;
      print.kind = Form::print;
      print.line = line;
      WEFT_TRY_ASSIGN(print.value, parse_tuple(reader_));
      WEFT_TRY(reader_.expect(Token::Kind::print_end, "'}}'"));
      out.push_back(std::move(print));
      continue;
    }
    WEFT_TRY(reader_.expect(Token::Kind::block_begin, "a tag"));
    if (!reader_.is(Token::Kind::name)) return reader_.unexpected("the name of a tag");
    if (std::find(ends.begin(), ends.end(), reader_.now().text) != ends.end()) return out;
    WEFT_TRY_ASSIGN(Statement next, statement());
    next.line = line;
    out.push_back(std::move(next));
  }
}

Result<Block> Parser::body(std::string_view end) {
  WEFT_TRY(end_tag());
  const std::string_view ends[] = {end};
  WEFT_TRY_ASSIGN(Block out, block(ends));
  reader_.take();
  WEFT_TRY(end_tag());
  return out;
}

Result<Statement> Parser::statement() {
  const Token& name = reader_.take();
  if (name.text == "if") return condition();
  if (name.text == "for") return loop();
  if (name.text == "set") return set();
  if (name.text == "macro") return macro();
  if (name.text == "generation") return generation();
  if (name.text == "break" || name.text == "continue") {
    if (loops_ == 0) return at_line(name.line, cat("'", name.text, "' is not in a loop"));
    Statement out;
    out.kind = name.text == "break" ? Form::leave : Form::next;
    WEFT_TRY(end_tag());
    return out;
  }
  return at_line(name.line, cat("the tag ", shown(name.text), " is not supported here"));
}

Result<Statement> Parser::condition() {
  constexpr std::string_view kEnds[] = {"elif", "else", "endif"};
  Statement out;
  out.kind = Form::condition;
  std::string_view tag = "if";
  while (tag != "endif") {
    Statement::Branch branch;
    if (tag != "else") {
      WEFT_TRY_ASSIGN(branch.test, parse_tuple(reader_, false));
    }
    WEFT_TRY(end_tag());
    WEFT_TRY_ASSIGN(branch.body, block(tag == "else" ? Ends(kEnds).last(1) : Ends(kEnds)));
    out.branches.push_back(std::move(branch));
    tag = reader_.take().text;
  }
  WEFT_TRY(end_tag());
  return out;
}

Result<Target> Parser::target() {
  Target out;
  WEFT_TRY_ASSIGN(std::string first, reader_.expect_name("a name to assign to"));
  out.names.push_back(std::move(first));
  if (reader_.take_symbol(".")) {
    WEFT_TRY_ASSIGN(out.attribute, reader_.expect_name("an attribute of a namespace"));
    return out;
  }
  while (reader_.take_symbol(",")) {
    out.unpacks = true;
    if (!reader_.is(Token::Kind::name) || reader_.is_name("in")) break;
    out.names.push_back(reader_.take().text);
  }
  for (const std::string& name : out.names) {
    constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
    WEFT_TRY(check_name(name, reader_.line()));
    if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants))
      return at_line(reader_.line(), cat("cannot assign to ", shown(name)));
  }
  return out;
}

Result<Statement> Parser::loop() {
  constexpr std::string_view kEnds[] = {"else", "endfor"};
  Statement out;
  out.kind = Form::loop;
  WEFT_TRY_ASSIGN(out.target, target());
  if (!out.target.attribute.empty() ||
      std::find(out.target.names.begin(), out.target.names.end(), "loop") != out.target.names.end())
    return at_line(reader_.line(), "a loop assigns to names other than 'loop'");
  if (!reader_.take_name("in")) return reader_.unexpected("'in'");
  WEFT_TRY_ASSIGN(out.value, parse_tuple(reader_, false));
  if (reader_.take_name("if")) {
    WEFT_TRY_ASSIGN(out.filter, parse_expression(reader_));
  }
  if (reader_.is_name("recursive"))
    return at_line(reader_.line(), "a recursive loop is not supported");
  WEFT_TRY(end_tag());
  ++loops_;
  ++scopes_;
  WEFT_TRY_ASSIGN(out.body, block(kEnds));
  --loops_;
  if (reader_.take().text == "else") {
    WEFT_TRY(end_tag());
    WEFT_TRY_ASSIGN(out.otherwise, block(Ends(kEnds).last(1)));
    reader_.take();
  }
  --scopes_;
  WEFT_TRY(end_tag());
  return out;
}

Result<Statement> Parser::set() {
  Statement out;
  WEFT_TRY_ASSIGN(out.target, target());
  if (reader_.take_symbol("=")) {
    out.kind = Form::set;
    WEFT_TRY_ASSIGN(out.value, parse_tuple(reader_));
    WEFT_TRY(end_tag());
    return out;
  }
  out.kind = Form::set_block;
  if (reader_.is_symbol("|"))
    return at_line(reader_.line(), "a filter of a block 'set' is not supported");
  const uint32_t loops = std::exchange(loops_, 0);
  ++scopes_;
  WEFT_TRY_ASSIGN(out.body, body("endset"));
  --scopes_;
  loops_ = loops;
  return out;
}

Status Parser::parameters(Macro& out) {
  WEFT_TRY(reader_.expect_symbol("("));
  while (!reader_.is_symbol(")")) {
    WEFT_TRY_ASSIGN(std::string name, reader_.expect_name("a parameter"));
    WEFT_TRY(check_name(name, reader_.line()));
    out.parameters.push_back(std::move(name));
    if (reader_.take_symbol("=")) {
      WEFT_TRY_ASSIGN(ExpressionPtr value, parse_expression(reader_));
      out.defaults.push_back(std::move(value));
    } else if (!out.defaults.empty()) {
      return reader_.unexpected("a parameter with a default");
    }
    if (!reader_.is_symbol(")")) WEFT_TRY(reader_.expect_symbol(","));
  }
  reader_.take();
  return {};
}

Result<Statement> Parser::macro() {
  const uint32_t line = reader_.line();
  if (scopes_ > 0)
    return at_line(line, "a macro inside of a loop, a macro or another block is not supported");
  Macro out;
  WEFT_TRY_ASSIGN(out.name, reader_.expect_name("the name of a macro"));
  WEFT_TRY(check_name(out.name, line));
  WEFT_TRY(parameters(out));
  ++scopes_;
  WEFT_TRY_ASSIGN(Block content, body("endmacro"));
  --scopes_;
  out.body = std::make_shared<const Block>(std::move(content));
  Statement statement;
  statement.kind = Form::macro;
  statement.macro = std::make_shared<const Macro>(std::move(out));
  return statement;
}

Result<Statement> Parser::generation() {
  if (in_generation_)
    return at_line(reader_.line(), "'generation' inside of 'generation' is not supported");
  Statement out;
  out.kind = Form::generation;
  in_generation_ = true;
  const uint32_t loops = std::exchange(loops_, 0);
  ++scopes_;
  WEFT_TRY_ASSIGN(out.body, body("endgeneration"));
  in_generation_ = false;
  --scopes_;
  loops_ = loops;
  return out;
}

}  // namespace

Result<Block> parse_template(std::string_view text) {
  WEFT_TRY_ASSIGN(std::vector<Token> tokens, tokens_of(text));
  return Parser(std::move(tokens)).block({});
}

}  // namespace weft::jinja
