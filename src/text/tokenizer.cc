#include "text/tokenizer.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"

namespace weft {

namespace {

// Results of words of one text, because most words occur many times.
class WordCache {
 public:
  const std::pair<size_t, size_t>* find(std::string_view word) const {
    const auto at = words_.find(word);
    return at == words_.end() ? nullptr : &at->second;
  }
  void add(std::string_view word, std::span<const uint32_t> ids) {
    if (word.size() > kLongest || words_.size() == kMost) return;
    words_.emplace(word, std::pair(ids_.size(), ids.size()));
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  std::span<const uint32_t> ids(std::pair<size_t, size_t> range) const {
    return std::span(ids_).subspan(range.first, range.second);
  }

 private:
  static constexpr size_t kLongest = 64, kMost = 1 << 16;
  std::unordered_map<std::string, std::pair<size_t, size_t>, TextHash, std::equal_to<>> words_;
  std::vector<uint32_t> ids_;
};

// The bytes of the first character.
size_t first_size(std::string_view text) { return text.empty() ? 0 : utf8_bytes(text); }

size_t first_invalid(std::string_view text) {
  size_t at = 0;
  while (const size_t n = utf8_bytes(text.substr(at))) at += n;
  return at;
}

}  // namespace

// One call of encode().
class Tokenizer::Encoding {
 public:
  // Both are borrowed.
  Encoding(const TokenizerParts& parts, std::string_view text, bool find_specials,
           std::vector<uint32_t>& out)
      : parts_(parts),
        text_(text),
        find_specials_(find_specials),
        searches_(text.size()),
        normalized_(growth_of(parts.normalizers, text.size(), searches_)),
        split_(growth_of(parts.pre_tokenizers, text.size(), searches_)),
        out_(out) {}

  Status run() {
    for (const TokenOrText& part : parts_.added.find(text_, false, find_specials_)) {
      if (part.token) {
        out_.push_back(part.token->id);
        continue;
      }
      TextPart segment{std::string(text_.substr(part.begin, part.end - part.begin)),
                       part.begin == 0 ? first_size(text_) : 0};
      WEFT_TRY(normalize(parts_.normalizers, normalized_, segment));
      WEFT_TRY(normalized_text(segment));
    }
    return {};
  }

 private:
  Status normalized_text(const TextPart& segment) {
    for (const TokenOrText& part : parts_.added.find(segment.text, true, find_specials_)) {
      if (part.token)
        out_.push_back(part.token->id);
      else
        WEFT_TRY(split_words(parts_.pre_tokenizers, split_,
                             {segment.text.substr(part.begin, part.end - part.begin),
                              segment.first > part.begin ? segment.first - part.begin : 0},
                             [&](std::string_view of) { return word(of); }));
    }
    return {};
  }

  Status word(std::string_view word) {
    if (const auto* known = cache_.find(word)) {
      const auto ids = cache_.ids(*known);
      out_.insert(out_.end(), ids.begin(), ids.end());
      return {};
    }
    const size_t before = out_.size();
    WEFT_TRY(parts_.model.encode(word, out_));
    cache_.add(word, std::span(out_).subspan(before));
    return {};
  }

  const TokenizerParts& parts_;
  const std::string_view text_;
  const bool find_specials_;
  SearchBudget searches_;
  std::vector<Growth> normalized_, split_;
  std::vector<uint32_t>& out_;
  WordCache cache_;
};

Status Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                         std::vector<uint32_t>& out) const {
  if (!valid_utf8(text))
    return Status(Code::data, cat("the text is not UTF-8 at byte ", first_invalid(text)));
  if (options.add_begin) out.insert(out.end(), parts_.before.begin(), parts_.before.end());
  WEFT_TRY(Encoding(parts_, text, options.find_specials, out).run());
  if (options.add_end) out.insert(out.end(), parts_.after.begin(), parts_.after.end());
  return {};
}

Result<std::string> Tokenizer::decode(std::span<const uint32_t> ids, bool skip_specials,
                                      Tail tail) const {
  std::vector<std::string> tokens;
  for (uint32_t id : ids) {
    if (const AddedToken* added = parts_.added.token(id)) {
      if (!skip_specials || !added->special) tokens.push_back(parts_.added.text(*added));
    } else if (const std::string* token = parts_.model.vocabulary().token(id)) {
      tokens.push_back(*token);
    }
  }
  if (parts_.decodes) return decode_tokens(parts_.decoders, std::move(tokens), tail);
  std::string out;
  for (const std::string& token : tokens) append(out, out.empty() ? "" : " ", token);
  return out;
}

uint32_t Tokenizer::size() const {
  return std::max(parts_.model.vocabulary().end(), parts_.added.end());
}

bool Tokenizer::is_special(uint32_t id) const {
  const AddedToken* added = parts_.added.token(id);
  return added && added->special;
}

bool Tokenizer::is_added(uint32_t id) const { return parts_.added.token(id) != nullptr; }

const std::string* Tokenizer::token(uint32_t id) const {
  const AddedToken* added = parts_.added.token(id);
  return added ? &added->content : parts_.model.vocabulary().token(id);
}

std::optional<uint32_t> Tokenizer::id(std::string_view token) const {
  if (const AddedToken* added = parts_.added.token(token)) return added->id;
  return parts_.model.vocabulary().id(token);
}

Result<std::string> TokenStream::added(Tail tail) {
  WEFT_TRY_ASSIGN(const std::string text, tokenizer_.decode(ids_, skip_specials_, tail));
  if (text.starts_with(prefix_)) return text.substr(prefix_.size());
  // Bytes that follow have made the text of earlier bytes invalid; it has been returned already.
  return tokenizer_.decode(std::span(ids_).subspan(known_), skip_specials_, tail);
}

Result<std::string> TokenStream::add(uint32_t id) {
  if (!tokenizer_.token(id) || (skip_specials_ && tokenizer_.is_special(id))) return std::string();
  ids_.push_back(id);
  WEFT_TRY_ASSIGN(std::string text, added(Tail::omit));
  // More ids without text are not the bytes of one character.
  constexpr size_t kMostWithoutText = 16;
  if (text.empty() && ids_.size() - known_ < kMostWithoutText) return text;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(known_));
  known_ = ids_.size();
  WEFT_TRY_ASSIGN(prefix_, tokenizer_.decode(ids_, skip_specials_, Tail::omit));
  return text;
}

Result<std::string> TokenStream::finish() {
  WEFT_TRY_ASSIGN(std::string text, added(Tail::replace));
  ids_.clear();
  known_ = 0;
  prefix_.clear();
  return text;
}

}  // namespace weft
