// Texts and ids of tokens: files of both, and the tokenizer of a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/handles.h"
#include "cli/outcome.h"

namespace weft::cli {

// The whole file; "-" is standard input.
Outcome read_file(const std::string& path, std::string& out);

// Of such a path, or of one that the library names in its error.
Outcome open_tokenizer(const std::string& path, TokenizerPtr& out);
// The path of a tokenizer: a file NAME.json, a directory with tokenizer.json, or what training has
// kept beside a checkpoint or in a directory of checkpoints. Empty: there is none.
std::string tokenizer_of(const std::string& path);

Outcome encode(const weft_tokenizer* tokenizer, std::string_view text, uint32_t flags,
               std::vector<int32_t>& out);
// `bytes`: the size of the text.
Outcome encode_file(const weft_tokenizer* tokenizer, const std::string& file, uint32_t flags,
                    std::vector<int32_t>& out, size_t& bytes);
Outcome decode(const weft_tokenizer* tokenizer, const std::vector<int32_t>& ids, uint32_t flags,
               std::string& out);

// The content of a file NAME.u16 or NAME.u32; `width` is the bytes of an id.
uint32_t id_width(std::string_view path);  // 0 for another name
std::string id_bytes(const std::vector<int32_t>& ids, uint32_t width);
Outcome read_ids(const std::string& path, std::vector<int32_t>& out);

}  // namespace weft::cli
