// Byte pair encoding: the characters of a word are merged, pair by pair, in the order of a list of
// merges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"

namespace weft {

struct BpeOptions {
  std::optional<std::string> unknown;  // the token for a character that the vocabulary lacks
  bool fuse_unknown = false;           // adjacent unknown characters become one token
  bool byte_fallback = false;          // an unknown character becomes tokens <0x00> to <0xFF>
  bool ignore_merges = false;          // a word that is a token is not merged from characters
};

// Immutable, except that merges are added before its use.
class Bpe {
 public:
  Bpe() = default;
  static Result<Bpe> make(Vocabulary vocabulary, BpeOptions options);
  // Merges are tried in the order in which they are added.
  Status add_merge(std::string_view left, std::string_view right);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  static constexpr size_t kMostBytes = ~uint32_t{0} - 1;  // of a word; its places have 32 bits
  // Appends the ids of the tokens of a word, which is valid UTF-8.
  Status encode(std::string_view word, std::vector<uint32_t>& out) const;

 private:
  struct Merge {
    uint64_t pair = 0;
    uint32_t rank = kNone, id = 0;
  };
  struct Symbol {
    uint32_t id, next, previous;
    bool gone;
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  const Merge* find(uint32_t left, uint32_t right) const;
  size_t slot(uint64_t pair) const;
  void grow();
  std::vector<Symbol> symbols(std::string_view word) const;
  bool add_bytes(std::string_view character, std::vector<Symbol>& out) const;
  void merge(std::vector<Symbol>& symbols) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  uint32_t unknown_ = kNone;
  std::vector<uint32_t> characters_;  // ids of the first code points, kNone if there is none
  std::vector<uint32_t> bytes_;       // ids of <0x00> to <0xFF>
  std::vector<Merge> merges_;         // a hash table with open addressing
  uint32_t n_merges_ = 0, n_slots_used_ = 0;
};

}  // namespace weft
