#include "text/bpe.h"

#include <algorithm>

#include "base/text.h"
#include "text/unicode.h"

namespace weft {

namespace {

constexpr uint32_t kDirect = 0x400;  // code points with an entry in characters_

uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

// The merge of lowest rank comes first, then the leftmost one.
struct Candidate {
  uint64_t order;  // rank, then position
  uint32_t id;
  bool operator<(const Candidate& other) const { return order > other.order; }
};

}  // namespace

Result<Bpe> Bpe::make(Vocabulary vocabulary, BpeOptions options) {
  Bpe out;
  out.vocabulary_ = std::move(vocabulary);
  out.options_ = std::move(options);
  if (const auto& token = out.options_.unknown) {
    const auto id = out.vocabulary_.id(*token);
    if (!id)
      return Status(Code::data, cat("'unk_token' ", shown(*token), " is not in the vocabulary"));
    out.unknown_ = *id;
  }
  for (char32_t point = 0; point < kDirect; ++point) {
    std::string character;
    append_code_point(character, point);
    out.characters_.push_back(out.vocabulary_.id(character).value_or(kNone));
  }
  constexpr const char* kHex = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte)
    out.bytes_.push_back(
        out.vocabulary_.id(cat("<0x", kHex[byte >> 4], kHex[byte & 15], ">")).value_or(kNone));
  out.grow();
  return out;
}

Status Bpe::add_merge(std::string_view left, std::string_view right) {
  const auto first = vocabulary_.id(left), second = vocabulary_.id(right),
             both = vocabulary_.id(cat(left, right));
  if (!first || !second || !both)
    return Status(Code::data,
                  cat("merge ", n_merges_, " of ", shown(left), " and ", shown(right), ": ",
                      shown(!first    ? left
                            : !second ? right
                                      : cat(left, right)),
                      " is not in the vocabulary"));
  if (2 * (n_slots_used_ + 1) > merges_.size()) grow();
  Merge& merge = merges_[slot(pair_of(*first, *second))];
  if (merge.rank == kNone) ++n_slots_used_;
  merge = {pair_of(*first, *second), n_merges_++, *both};
  return {};
}

size_t Bpe::slot(uint64_t pair) const {
  const size_t mask = merges_.size() - 1;
  uint64_t hash = pair * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  size_t at = hash & mask;
  while (merges_[at].rank != kNone && merges_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void Bpe::grow() {
  std::vector<Merge> old(std::max<size_t>(64, 2 * merges_.size()));
  old.swap(merges_);
  for (const Merge& merge : old)
    if (merge.rank != kNone) merges_[slot(merge.pair)] = merge;
}

const Bpe::Merge* Bpe::find(uint32_t left, uint32_t right) const {
  const Merge& merge = merges_[slot(pair_of(left, right))];
  return merge.rank == kNone ? nullptr : &merge;
}

// False if the vocabulary lacks one of the bytes.
bool Bpe::add_bytes(std::string_view character, std::vector<Symbol>& out) const {
  const auto id = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
  for (char c : character)
    if (id(c) == kNone) return false;
  for (char c : character) out.push_back({id(c), 0, 0, false});
  return true;
}

// An unknown token is added when the next known character, not a byte, follows: so does the
// `tokenizers` library.
std::vector<Bpe::Symbol> Bpe::symbols(std::string_view word) const {
  std::vector<Symbol> out;
  out.reserve(word.size());
  bool unknown = false;
  const auto flush = [&] {
    if (unknown) out.push_back({unknown_, 0, 0, false});
    unknown = false;
  };
  while (!word.empty()) {
    const std::string_view before = word;
    const char32_t point = take_code_point(word);
    const std::string_view character = before.substr(0, before.size() - word.size());
    const uint32_t id =
        point < kDirect ? characters_[point] : vocabulary_.id(character).value_or(kNone);
    if (id != kNone) {
      flush();
      out.push_back({id, 0, 0, false});
    } else if (options_.byte_fallback && add_bytes(character, out)) {
      continue;
    } else if (unknown_ != kNone) {
      if (!options_.fuse_unknown) flush();
      unknown = true;
    }
  }
  flush();
  return out;
}

// Merges in the order of a heap. An entry is outdated if its symbols have changed; it is recognized
// by the token that it would make.
void Bpe::merge(std::vector<Symbol>& symbols) const {
  const auto size = static_cast<uint32_t>(symbols.size());
  std::vector<Candidate> heap;
  const auto candidate = [&](uint32_t at, uint32_t next) {
    const Merge* merge = find(symbols[at].id, symbols[next].id);
    if (!merge) return false;
    heap.push_back({uint64_t{merge->rank} << 32 | at, merge->id});
    return true;
  };
  for (uint32_t i = 0; i < size; ++i) {
    symbols[i].previous = i - 1;  // kNone for the first one
    symbols[i].next = i + 1 < size ? i + 1 : kNone;
    if (i + 1 < size) candidate(i, i + 1);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(best.order);
    Symbol& left = symbols[at];
    if (left.gone || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    const Merge* merge = find(left.id, right.id);
    if (!merge || merge->id != best.id) continue;
    left.id = best.id;
    left.next = right.next;
    right.gone = true;
    if (left.next != kNone) symbols[left.next].previous = at;
    if (left.previous != kNone && candidate(left.previous, at))
      std::push_heap(heap.begin(), heap.end());
    if (left.next != kNone && candidate(at, left.next)) std::push_heap(heap.begin(), heap.end());
  }
}

Status Bpe::encode(std::string_view word, std::vector<uint32_t>& out) const {
  if (word.size() > kMostBytes)
    return Status(Code::data, cat("the text has a word of ", word.size(),
                                  " bytes, expected at most ", kMostBytes));
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.id(word)) {
      out.push_back(*id);
      return {};
    }
  }
  std::vector<Symbol> parts = symbols(word);
  if (parts.size() > 1) merge(parts);
  for (const Symbol& symbol : parts)
    if (!symbol.gone) out.push_back(symbol.id);
  return {};
}

}  // namespace weft
