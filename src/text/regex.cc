#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text.h"
#include "text/oniguruma.h"

namespace weft {

namespace {

constexpr size_t kLongest = 1 << 16;       // bytes of an expression
constexpr uint32_t kMostSteps = 10000000;  // of one match
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

using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;

Status no_memory() { return Status(Code::no_memory, "not enough memory"); }

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* of) : code(of) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* const code;
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
  int error = 0;
  size_t position = 0;
  pcre2_code* code =
      pcre2_compile(bytes_of(text), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &position, context.get());
  if (!code) return Status(weft::Code::data, cat(name, ": ", pcre2_text(error)));
  // Where PCRE2 cannot compile to machine code, it interprets.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  Regex out;
  out.code_ = std::make_shared<const Regex::Code>(code);
  return out;
}

struct Matches::State {
  MatchContext context;
  MatchData data;
};

Matches::Matches(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}

Matches::~Matches() = default;

Status Matches::prepare() {
  auto state = std::make_unique<State>();
  state->context.reset(pcre2_match_context_create(nullptr));
  state->data.reset(pcre2_match_data_create_from_pattern(regex_.code()->code, nullptr));
  if (!state->context || !state->data) return no_memory();
  pcre2_set_match_limit(state->context.get(), kMostSteps);
  pcre2_set_heap_limit(state->context.get(), kMostHeap);
  state_ = std::move(state);
  return {};
}

Result<bool> Matches::search(size_t from) {
  if (!state_) WEFT_TRY(prepare());
  const auto match = [&](uint32_t options) {
    return pcre2_match(regex_.code()->code, bytes_of(text_), text_.size(), from,
                       options | PCRE2_NO_UTF_CHECK, state_->data.get(), state_->context.get());
  };
  int found = match(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found == PCRE2_ERROR_NOMEMORY) return no_memory();
  if (found < 0)
    return Status(Code::data, cat("the search for a regular expression failed at byte ", from,
                                  " of the text: ", pcre2_text(found)));
  const size_t* range = pcre2_get_ovector_pointer(state_->data.get());
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
