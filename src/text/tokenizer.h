// A tokenizer: from text to the ids of tokens and back, with the results of the `tokenizers`
// library of Hugging Face.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace weft {

struct TokenizerParts {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  Bpe model;
  AddedTokens added;
  std::vector<uint32_t> before, after;  // ids that are added to a text on request
  std::optional<uint32_t> end_token;    // as its configuration names it
  std::vector<Decoder> decoders;
  bool decodes = false;  // otherwise the texts of tokens are joined with spaces
};

struct EncodeOptions {
  bool add_begin = false;  // the tokens for the begin of a text
  bool add_end = false;
  bool find_specials = true;  // a special token in the text becomes its id
};

// Immutable; several threads may use it.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

  // Appends the ids. Fails if the text is not UTF-8; `out` may then have some of the ids.
  Status encode(std::string_view text, const EncodeOptions& options,
                std::vector<uint32_t>& out) const;
  // Skips ids that are not tokens.
  Result<std::string> decode(std::span<const uint32_t> ids, bool skip_specials,
                             Tail tail = Tail::replace) const;

  uint32_t size() const;  // all ids are smaller
  bool is_special(uint32_t id) const;
  bool is_added(uint32_t id) const;  // special or not
  // The text of a token as the vocabulary has it, or null.
  const std::string* token(uint32_t id) const;
  std::optional<uint32_t> id(std::string_view token) const;
  std::optional<uint32_t> end_token() const { return parts_.end_token; }

 private:
  class Encoding;

  TokenizerParts parts_;
};

// Decodes ids that arrive one by one. The tokenizer is borrowed.
class TokenStream {
 public:
  TokenStream(const Tokenizer& tokenizer, bool skip_specials)
      : tokenizer_(tokenizer), skip_specials_(skip_specials) {}

  // The text that this id adds, without a character that is not complete yet.
  Result<std::string> add(uint32_t id);
  // The rest of the text; a character that is still incomplete becomes U+FFFD.
  Result<std::string> finish();

 private:
  Result<std::string> added(Tail tail);

  const Tokenizer& tokenizer_;
  const bool skip_specials_;
  // Ids from a place on where the text is known; of the first `known_` of them, the text is
  // `prefix_`.
  std::vector<uint32_t> ids_;
  size_t known_ = 0;
  std::string prefix_;
};

}  // namespace weft
