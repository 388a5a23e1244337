// Tokens that are found in a text before it is split into words, such as <|endoftext|>.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace weft {

struct AddedToken {
  static constexpr size_t kMostBytes = 4096;  // each place of a text may be compared with all
  uint32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // not next to a letter or digit
  bool left_strip = false;   // takes the spaces before it
  bool right_strip = false;  // takes the spaces after it
  bool normalized = false;   // is found in the normalized text
};

// A part of a text: an added token, or the text between.
struct TokenOrText {
  const AddedToken* token = nullptr;
  size_t begin = 0, end = 0;
};

class AddedTokens {
 public:
  // The id must be that of the vocabulary, or the one that follows all others.
  Status add(AddedToken token, const Vocabulary& vocabulary,
             const std::vector<Normalizer>& normalizers);

  // The longest token at each position, from left to right. `specials`: also those that are
  // special.
  std::vector<TokenOrText> find(std::string_view text, bool normalized, bool specials) const;
  const AddedToken* token(uint32_t id) const;
  const AddedToken* token(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }
  uint32_t end() const { return end_; }  // all ids are smaller
  // What a decoder gets for it.
  const std::string& text(const AddedToken& token) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Node {
    uint32_t child = 0, sibling = 0;  // the first child and the next sibling; 0: there is none
    uint32_t token = kNone;           // the index of the token that ends here
    unsigned char byte = 0;
  };
  struct Trie {
    std::vector<Node> nodes{1};  // the first one is the root
    bool begins[256] = {};       // bytes with which a token begins
    void add(std::string_view text, uint32_t index);
    uint32_t child(uint32_t node, unsigned char byte) const;  // 0: there is none
    // The index and length of the longest token at the start of the text.
    std::pair<uint32_t, size_t> longest(std::string_view text) const;
  };

  std::vector<AddedToken> tokens_;
  std::vector<std::string> patterns_;  // the content as it is searched, one per token
  std::unordered_map<uint32_t, uint32_t> by_id_;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> by_content_;
  Trie plain_, normalized_;
  uint32_t end_ = 0;
};

}  // namespace weft
