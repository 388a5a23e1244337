// Finds the strings of --stop in a text that grows token by token.
#pragma once

#include <string>
#include <vector>

#include "cli/handles.h"
#include "cli/outcome.h"

namespace weft::cli {

// The text of a tokenizer is searched with its special tokens and without them. All are borrowed.
class StopSearch {
 public:
  StopSearch(const weft_tokenizer* tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops) {}

  // Sets `found` if this token completes a string, after which it may go on.
  Outcome add(int32_t token, bool& found);

 private:
  struct Text {
    TextStreamPtr stream;
    std::string end;  // only what the start of a string may be
  };
  Outcome add(int32_t token, uint32_t flags, Text& text, bool& found) const;

  const weft_tokenizer* tokenizer_;
  const std::vector<std::string>& stops_;
  Text whole_, plain_;
};

}  // namespace weft::cli
