#include "text/added_tokens.h"

#include <algorithm>

#include "base/fault.h"
#include "base/text.h"
#include "text/unicode.h"

namespace weft {

namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(take_last_code_point(text));
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word(take_code_point(text));
}

size_t without_spaces_at_end(std::string_view text, size_t least) {
  while (text.size() > least) {
    std::string_view rest = text;
    if (!is_white_space(take_last_code_point(rest))) break;
    text = rest;
  }
  return std::max(text.size(), least);
}

size_t spaces_at_start(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view next = rest;
    if (!is_white_space(take_code_point(next))) break;
    rest = next;
  }
  return text.size() - rest.size();
}

Status check_size(std::string_view content) {
  if (content.size() <= AddedToken::kMostBytes) return {};
  return fault(cat("has ", content.size(), " bytes, expected at most ", AddedToken::kMostBytes));
}

}  // namespace

uint32_t AddedTokens::Trie::child(uint32_t node, unsigned char byte) const {
  uint32_t at = nodes[node].child;
  while (at != 0 && nodes[at].byte != byte) at = nodes[at].sibling;
  return at;
}

void AddedTokens::Trie::add(std::string_view text, uint32_t index) {
  if (!text.empty()) begins[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes.size());
      nodes.push_back({.sibling = nodes[node].child, .byte = byte});
      nodes[node].child = next;
    }
    node = next;
  }
  nodes[node].token = index;
}

std::pair<uint32_t, size_t> AddedTokens::Trie::longest(std::string_view text) const {
  std::pair<uint32_t, size_t> out{kNone, 0};
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, static_cast<unsigned char>(text[i]));
    if (node == 0) break;
    if (nodes[node].token != kNone) out = {nodes[node].token, i + 1};
  }
  return out;
}

Status AddedTokens::add(AddedToken token, const Vocabulary& vocabulary,
                        const std::vector<Normalizer>& normalizers) {
  if (token.content.empty()) return fault(cat("the added token with id ", token.id, " is empty"));
  const std::string name = cat("added token ", shown(token.content));
  if (by_content_.contains(token.content)) return fault(cat(name, " occurs twice"));
  const auto size = static_cast<uint32_t>(vocabulary.size());
  const uint32_t expected = vocabulary.id(token.content).value_or(std::max(end_, size));
  if (token.id != expected)
    return fault(cat(name, " has id ", token.id, ", expected ", expected,
                     vocabulary.id(token.content) ? ", as in the vocabulary"
                                                  : ", which follows the ids of all other tokens"));
  if (const std::string* other = vocabulary.token(token.id); other && *other != token.content)
    return fault(cat(name, " has the id ", token.id, " of token ", shown(*other)));
  WEFT_TRY(check_size(token.content).within(name));
  TextPart pattern{token.content, 0};
  SearchBudget searches(pattern.text.size());
  std::vector<Growth> growth = growth_of(normalizers, pattern.text.size(), searches);
  if (token.normalized) WEFT_TRY(normalize(normalizers, growth, pattern).within(name));
  WEFT_TRY(check_size(pattern.text).within(cat(name, ", normalized")));
  const auto index = static_cast<uint32_t>(tokens_.size());
  (token.normalized ? normalized_ : plain_).add(pattern.text, index);
  by_id_[token.id] = index;
  by_content_[token.content] = index;
  end_ = std::max(end_, token.id + 1);
  patterns_.push_back(std::move(pattern.text));
  tokens_.push_back(std::move(token));
  return {};
}

const AddedToken* AddedTokens::token(uint32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

const AddedToken* AddedTokens::token(std::string_view content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? nullptr : &tokens_[at->second];
}

const std::string& AddedTokens::text(const AddedToken& token) const {
  return patterns_[static_cast<size_t>(&token - tokens_.data())];
}

std::vector<TokenOrText> AddedTokens::find(std::string_view text, bool normalized,
                                           bool specials) const {
  const Trie& trie = normalized ? normalized_ : plain_;
  std::vector<TokenOrText> out;
  size_t done = 0, end_of_spaces = 0;  // the latter: of those that are known
  for (size_t at = 0; at < text.size() && trie.nodes.size() > 1;) {
    const bool begins = trie.begins[static_cast<unsigned char>(text[at])];
    const auto [index, length] =
        begins ? trie.longest(text.substr(at)) : std::pair<uint32_t, size_t>{kNone, 0};
    if (index == kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t begin = at, end = at + length;
    at = end;
    if (token.special && !specials) continue;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (token.left_strip)
      begin = without_spaces_at_end(text.substr(0, begin), std::min(done, begin));
    if (token.left_strip) begin = std::max(begin, done);
    if (token.right_strip) {
      // A token of spaces may be in those after an earlier token.
      if (end_of_spaces < end) end_of_spaces = end + spaces_at_start(text.substr(end));
      end = end_of_spaces;
    }
    if (done < begin) out.push_back({nullptr, done, begin});
    out.push_back({&token, begin, end});
    done = end;
  }
  if (done < text.size()) out.push_back({nullptr, done, text.size()});
  return out;
}

}  // namespace weft
