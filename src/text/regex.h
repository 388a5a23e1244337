// Regular expressions in the syntax of Oniguruma, which tokenizer.json uses, matched by PCRE2.
#pragma once

#include <cstdint>
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

// What the searches in a text may take together, so that their time is in proportion to its length.
class SearchBudget {
 public:
  static constexpr uint64_t kSteps = 30'000'000, kStepsPerByte = 1000;

  explicit SearchBudget(size_t text_bytes) : steps_(kSteps + kStepsPerByte * text_bytes) {}
  // False if there are not so many left.
  bool spend(uint64_t steps) {
    if (steps > steps_) return false;
    steps_ -= steps;
    return true;
  }

 private:
  uint64_t steps_;
};

// The matches in a text, from left to right.
class Matches {
 public:
  // All are borrowed. The text is valid UTF-8.
  Matches(const Regex& regex, std::string_view text, SearchBudget& budget);
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
  int match(size_t from, size_t end, uint32_t options);
  int match_counted(size_t from);
  Result<bool> search(size_t from);

  const Regex& regex_;
  const std::string_view text_;
  SearchBudget& budget_;
  std::unique_ptr<State> state_;
  size_t begin_ = 0, end_ = 0, from_ = 0;
  bool matched_ = false;
};

}  // namespace weft
