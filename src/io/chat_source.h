// The chat template in the directory of a tokenizer, as Hugging Face's Transformers writes it.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "jinja/chat_template.h"

namespace weft {

struct ChatSource {
  ChatTemplate chat;
  std::map<std::string, std::string> tokens;  // bos_token, eos_token, ...
};

// `tokenizer` is a directory, or a file tokenizer.json in it. The template is chat_template.jinja
// or, without this file, 'chat_template' of tokenizer_config.json: a text, or a list of named
// templates of which "default" is taken. Code::not_found: there is none.
Result<ChatSource> open_chat(const std::string& tokenizer);

}  // namespace weft
