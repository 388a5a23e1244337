// The files of a model that are neither weights nor checkpoints: its description and its tokenizer,
// in a directory of Transformers. A directory of checkpoints keeps them in DIR/source, so that
// exports of its checkpoints have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

bool is_source_file(std::string_view name);

// Copies the files of directory `source`, with the tokenizer of `tokenizer` in place of its own:
// tokenizer.json in any directory and under any name. Either may be empty.
Status keep_source(const std::string& checkpoints, const std::string& source,
                   const std::string& tokenizer);
// The directory of those files beside a checkpoint, or empty.
std::string source_of(const std::string& checkpoint);

// The absolute path of the directory of Transformers from which they were copied, or empty.
std::string base_of(const std::string& source);

// Copies all files except config.json, which describes the weights in its directory.
Status copy_source(const std::string& source, const std::string& to);
// Removes the files of another source, which `source` lacks; it may be empty.
Status remove_other_source(const std::string& source, const std::string& at);
// The text of that config.json; empty if there is none.
Result<std::string> source_config(const std::string& source);
// The tokens that end a text: of generation_config.json, otherwise of config.json.
Result<std::vector<int32_t>> end_tokens(const std::string& source);
// Of the text of such a file: a number, a list of numbers, or none.
Result<std::vector<int32_t>> parse_end_tokens(std::string_view json);

}  // namespace weft
