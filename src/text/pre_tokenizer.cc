#include "text/pre_tokenizer.h"

#include "text/byte_level.h"
#include "text/unicode.h"

namespace weft {

namespace {

using Stages = std::vector<PreTokenizer>;

struct Word {
  std::string_view text;
  size_t first;  // the bytes at its start that come from the first character of the whole text

  Word part(size_t begin, size_t size) const {
    return {text.substr(begin, size), first > begin ? first - begin : 0};
  }
};
using Next = std::function<Status(Word)>;

// Joins adjacent parts of a text, each matched or not, as a behavior says.
class Joiner {
 public:
  Joiner(Behavior behavior, Word whole, const Next& next)
      : behavior_(behavior), whole_(whole), next_(next) {}

  Status add(size_t begin, size_t end, bool matched) {
    if (joins(matched)) {
      end_ = end;
    } else {
      WEFT_TRY(flush());
      begin_ = begin;
      end_ = end;
      dropped_ = matched && behavior_ == Behavior::removed;
      pending_ = true;
    }
    previous_ = matched;
    return {};
  }
  Status flush() {
    if (pending_ && !dropped_ && end_ > begin_) WEFT_TRY(next_(whole_.part(begin_, end_ - begin_)));
    pending_ = false;
    return {};
  }

 private:
  bool joins(bool matched) const {
    if (!pending_) return false;
    switch (behavior_) {
      case Behavior::contiguous: return matched == previous_;
      case Behavior::merged_with_previous: return matched && !previous_;
      case Behavior::merged_with_next: return !matched && previous_;
      default: return false;
    }
  }

  const Behavior behavior_;
  const Word whole_;
  const Next& next_;
  bool pending_ = false, dropped_ = false, previous_ = false;
  size_t begin_ = 0, end_ = 0;
};

Status split_by_pattern(const Regex& pattern, Behavior behavior, bool invert, Word word,
                        SearchBudget& searches, const Next& next) {
  Joiner joiner(behavior, word, next);
  Matches matches(pattern, word.text, searches);
  size_t done = 0;
  for (;;) {
    WEFT_TRY_ASSIGN(const bool found, matches.next());
    if (!found) break;
    if (done != matches.begin()) WEFT_TRY(joiner.add(done, matches.begin(), invert));
    WEFT_TRY(joiner.add(matches.begin(), matches.end(), !invert));
    done = matches.end();
  }
  if (done != word.text.size()) WEFT_TRY(joiner.add(done, word.text.size(), invert));
  return joiner.flush();
}

// Each character for which `matches` holds is a match.
template <typename F>
Status split_by_character(F&& matches, Behavior behavior, Word word, const Next& next) {
  Joiner joiner(behavior, word, next);
  size_t done = 0;
  for (std::string_view rest = word.text; !rest.empty();) {
    const size_t begin = word.text.size() - rest.size();
    const bool matched = matches(take_code_point(rest));
    if (!matched) continue;
    if (done < begin) WEFT_TRY(joiner.add(done, begin, false));
    done = word.text.size() - rest.size();
    WEFT_TRY(joiner.add(begin, done, true));
  }
  if (done < word.text.size()) WEFT_TRY(joiner.add(done, word.text.size(), false));
  return joiner.flush();
}

// Runs of characters of words, and runs of other characters that are not spaces.
Status split_whitespace(Word word, const Next& next) {
  enum class Kind : uint8_t { space, letters, other };
  const auto kind_of = [](char32_t point) {
    return is_word(point) ? Kind::letters : is_white_space(point) ? Kind::space : Kind::other;
  };
  size_t begin = 0;
  Kind kind = Kind::space;
  const auto emit = [&](size_t end) -> Status {
    if (kind == Kind::space || end == begin) return {};
    return next(word.part(begin, end - begin));
  };
  for (std::string_view rest = word.text; !rest.empty();) {
    const size_t at = word.text.size() - rest.size();
    const Kind found = kind_of(take_code_point(rest));
    if (found == kind) continue;
    WEFT_TRY(emit(at));
    begin = at;
    kind = found;
  }
  return emit(word.text.size());
}

Status byte_level(const PreTokenizer& stage, Word word, SearchBudget& searches, const Next& next) {
  std::string with_prefix;
  if (stage.prefix == PreTokenizer::Prefix::always && !word.text.starts_with(' ')) {
    with_prefix = " ";
    with_prefix += word.text;
    word.text = with_prefix;
  }
  const Next map = [&](Word part) {
    const std::string letters = to_byte_letters(part.text);
    return next({letters, part.first});
  };
  if (!stage.uses_pattern) return map(word);
  return split_by_pattern(stage.pattern, Behavior::isolated, false, word, searches, map);
}

Status metaspace(const PreTokenizer& stage, Word word, const Next& next) {
  std::string separator, text;
  append_code_point(separator, stage.separator);
  for (char c : word.text) {
    if (c == ' ')
      text += separator;
    else
      text += c;
  }
  const bool prefixes = stage.prefix == PreTokenizer::Prefix::always ||
                        (stage.prefix == PreTokenizer::Prefix::first && word.first > 0);
  if (prefixes && !text.starts_with(separator)) text.insert(0, separator);
  if (!stage.splits) return next({text, word.first});
  return split_by_character([&](char32_t point) { return point == stage.separator; },
                            Behavior::merged_with_next, {text, word.first}, next);
}

Status apply(const PreTokenizer& stage, Word word, SearchBudget& searches, const Next& next) {
  switch (stage.kind) {
    case PreTokenizer::Kind::byte_level: return byte_level(stage, word, searches, next);
    case PreTokenizer::Kind::split:
      return split_by_pattern(stage.pattern, stage.behavior, stage.invert, word, searches, next);
    case PreTokenizer::Kind::digits:
      return split_by_character(is_numeric, stage.behavior, word, next);
    case PreTokenizer::Kind::metaspace: return metaspace(stage, word, next);
    case PreTokenizer::Kind::whitespace: return split_whitespace(word, next);
    case PreTokenizer::Kind::whitespace_split:
      return split_by_character(is_white_space, Behavior::removed, word, next);
    case PreTokenizer::Kind::punctuation:
      return split_by_character(is_punctuation, stage.behavior, word, next);
    case PreTokenizer::Kind::delimiter:
      return split_by_character([&](char32_t point) { return point == stage.separator; },
                                Behavior::removed, word, next);
  }
  return {};
}

Status apply_from(const Stages& stages, std::vector<Growth>& growth, size_t at, Word word,
                  const WordSink& sink) {
  if (word.text.empty()) return {};
  if (at == stages.size()) return sink(word.text);
  return apply(stages[at], word, growth[at].searches(), [&](Word part) -> Status {
    WEFT_TRY(growth[at].add(part.text.size()));
    return apply_from(stages, growth, at + 1, part, sink);
  });
}

}  // namespace

Result<Regex> byte_level_pattern() {
  return Regex::make(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
}

Status split_words(const Stages& stages, std::vector<Growth>& growth, const TextPart& segment,
                   const WordSink& sink) {
  return apply_from(stages, growth, 0, {segment.text, segment.first}, sink);
}

}  // namespace weft
