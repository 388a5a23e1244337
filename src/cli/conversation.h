// The messages between a user and a model, as texts for the model.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/handles.h"
#include "cli/outcome.h"

namespace weft::cli {

class Conversation {
 public:
  // `system`: the message that comes first; empty: none.
  explicit Conversation(const std::string& system);

  // The text after which the model answers `question`, with the chat template of the tokenizer and
  // the time of this call.
  Outcome prompt(const weft_tokenizer* tokenizer, const std::string& question,
                 std::string& text) const;
  void add(const std::string& question, const std::string& answer);

 private:
  std::vector<std::pair<std::string, std::string>> messages_;  // role and content
};

// The next line of standard input that is not blank. False at its end, and after a signal.
bool read_question(std::string& line);

}  // namespace weft::cli
