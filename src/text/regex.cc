#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/text.h"
#include "text/oniguruma.h"

namespace weft {

namespace {

constexpr size_t kLongest = 1 << 16;  // bytes of an expression
// A match within these limits takes nothing from the budget.
constexpr uint32_t kFreeSteps = 64;
constexpr size_t kFreeBytes = 256;
constexpr uint32_t kMostHeap = 64 * 1024;  // KiB

std::string pcre2_text(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof text) < 0) return cat("error ", error);
  return reinterpret_cast<const char*>(text);
}

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using CompiledCode = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;

Status no_memory() { return Status(Code::no_memory, "not enough memory"); }

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

struct Regex::Code {
  explicit Code(std::string of) : name(std::move(of)) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  const std::string name;  // in messages
  CompiledCode code, counted;
};

Result<Regex> Regex::make(std::string_view pattern) {
  const std::string name = cat("regular expression ", shown(pattern));
  if (pattern.size() > kLongest)
    return Status(weft::Code::data,
                  cat(name, " has ", pattern.size(), " bytes, expected at most ", kLongest));
  WEFT_TRY_ASSIGN(const std::string text, translate_oniguruma(pattern).within(name));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) return no_memory();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  auto made = std::make_shared<Regex::Code>(name);
  const auto compile = [&](CompiledCode& code, uint32_t more) -> Status {
    int error = 0;
    size_t position = 0;
    code.reset(
        pcre2_compile(bytes_of(text), text.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | more,
                      &error, &position, context.get()));
    return code ? Status() : Status(weft::Code::data, cat(name, ": ", pcre2_text(error)));
  };
  WEFT_TRY(compile(made->code, 0));
  WEFT_TRY(compile(made->counted, PCRE2_AUTO_CALLOUT));
  // Where PCRE2 cannot compile to machine code, it interprets. It always interprets an anchored
  // match.
  (void)pcre2_jit_compile(made->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  Regex out;
  out.code_ = std::move(made);
  return out;
}

struct Matches::State {
  MatchContext context, counted;
  MatchData data;
};

namespace {

// What a match has taken up to now.
struct Progress {
  SearchBudget& budget;
  size_t at;
};

// PCRE2 calls it before each item of the expression.
int count(pcre2_callout_block* block, void* data) {
  Progress& progress = *static_cast<Progress*>(data);
  const size_t at = block->current_position;
  const size_t passed = std::max(at, progress.at) - std::min(at, progress.at);
  progress.at = at;
  return progress.budget.spend(1 + passed) ? 0 : PCRE2_ERROR_CALLOUT;
}

}  // namespace

Matches::Matches(const Regex& regex, std::string_view text, SearchBudget& budget)
    : regex_(regex), text_(text), budget_(budget) {}

Matches::~Matches() = default;

Status Matches::prepare() {
  auto state = std::make_unique<State>();
  state->context.reset(pcre2_match_context_create(nullptr));
  state->counted.reset(pcre2_match_context_create(nullptr));
  state->data.reset(pcre2_match_data_create_from_pattern(regex_.code()->code.get(), nullptr));
  if (!state->context || !state->counted || !state->data) return no_memory();
  pcre2_set_match_limit(state->context.get(), kFreeSteps);
  pcre2_set_match_limit(state->counted.get(), UINT32_MAX);
  for (pcre2_match_context* context : {state->context.get(), state->counted.get()})
    pcre2_set_heap_limit(context, kMostHeap);
  state_ = std::move(state);
  return {};
}

// Searches in the text before `end`; PCRE2_ERROR_PARTIAL: what follows may decide.
int Matches::match(size_t from, size_t end, uint32_t options) {
  if (end < text_.size()) options |= PCRE2_PARTIAL_HARD;
  const auto run = [&](uint32_t more) {
    return pcre2_match(regex_.code()->code.get(), bytes_of(text_), end, from,
                       options | more | PCRE2_NO_UTF_CHECK, state_->data.get(),
                       state_->context.get());
  };
  const int found = run(0);
  return found == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_JIT) : found;
}

// A match at this place only; PCRE2_ERROR_CALLOUT: it takes too much.
int Matches::match_counted(size_t from) {
  Progress progress{budget_, from};
  pcre2_set_callout(state_->counted.get(), count, &progress);
  return pcre2_match(regex_.code()->counted.get(), bytes_of(text_), text_.size(), from,
                     PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, state_->data.get(),
                     state_->counted.get());
}

// PCRE2 limits the steps at each place where a match may begin, and not the characters that a
// repetition passes in one step. So the search sees a part of the text and takes few steps; where
// they do not suffice, both are counted.
Result<bool> Matches::search(size_t from) {
  if (!state_) WEFT_TRY(prepare());
  const std::string& name = regex_.code()->name;
  const size_t* const range = pcre2_get_ovector_pointer(state_->data.get());
  uint32_t options = 0;
  for (;;) {
    size_t end = from + std::min(kFreeBytes, text_.size() - from);
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;
    int found = match(from, end, options);
    if (found == PCRE2_ERROR_MATCHLIMIT && options == 0) {
      // The place is not known.
      options = PCRE2_ANCHORED;
      continue;
    }
    const bool is_counted = found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_PARTIAL;
    if (is_counted) {
      if (found == PCRE2_ERROR_PARTIAL) from = range[0];
      end = text_.size();
      found = match_counted(from);
    }
    if (found == PCRE2_ERROR_NOMATCH || (found > 0 && range[0] == end && end < text_.size())) {
      const bool is_one_place = is_counted || options != 0;
      if (is_one_place ? from == text_.size() : end == text_.size()) return false;
      from = is_one_place ? from + utf8_bytes(text_.substr(from)) : end;
      continue;
    }
    if (found == PCRE2_ERROR_NOMEMORY) return no_memory();
    if (found == PCRE2_ERROR_CALLOUT)
      return Status(Code::data,
                    cat(name, ": the search takes too many steps at byte ", from, " of a text of ",
                        text_.size(), ", expected at most ", SearchBudget::kSteps, " and ",
                        SearchBudget::kStepsPerByte, " for each byte"));
    if (found < 0)
      return Status(Code::data, cat(name, ": the search failed at byte ", from,
                                    " of the text: ", pcre2_text(found)));
    break;
  }
  begin_ = range[0];
  end_ = range[1];
  // \K, which moves the begin, is not translated.
  if (begin_ > end_ || begin_ < from)
    return Status(Code::internal, "a match ends before it begins");
  return true;
}

// An empty match is not accepted where the last match ended; the search goes on after the next
// character.
Result<bool> Matches::next() {
  while (from_ <= text_.size()) {
    const size_t last = end_;
    WEFT_TRY_ASSIGN(const bool found, search(from_));
    if (!found) break;
    if (begin_ == end_) {
      const size_t n = utf8_bytes(text_.substr(end_));
      from_ = n > 0 ? end_ + n : text_.size() + 1;
      if (matched_ && begin_ == last) continue;
    } else {
      from_ = end_;
    }
    matched_ = true;
    return true;
  }
  from_ = text_.size() + 1;
  return false;
}

}  // namespace weft
