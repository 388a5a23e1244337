// Regular expressions in the syntax of Oniguruma, which tokenizer.json uses, matched by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// Immutable; several threads may search with it.
class Regex {
 public:
  // Fails for an expression that PCRE2 would match in another way than Oniguruma.
  static Result<Regex> make(std::string_view pattern);

  struct Code;
  const std::shared_ptr<const Code>& code() const { return code_; }

 private:
  std::shared_ptr<const Code> code_;
};

// The matches in a text, from left to right.
class Matches {
 public:
  // Both are borrowed. The text is valid UTF-8.
  Matches(const Regex& regex, std::string_view text);
  ~Matches();
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;

  // False at the end. Fails if the search takes too many steps.
  Result<bool> next();
  size_t begin() const { return begin_; }
  size_t end() const { return end_; }

 private:
  struct State;
  Status prepare();
  Result<bool> search(size_t from);

  const Regex& regex_;
  const std::string_view text_;
  std::unique_ptr<State> state_;
  size_t begin_ = 0, end_ = 0, from_ = 0;
  bool matched_ = false;
};

}  // namespace weft
