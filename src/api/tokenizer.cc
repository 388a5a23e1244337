// Tokenizers and streams of text.
#include <algorithm>
#include <cctype>
#include <set>

#include "api/handles.h"
#include "io/file.h"
#include "io/replacement.h"
#include "io/source_files.h"
#include "io/tokenizer_json.h"
#include "text/unicode.h"

using namespace weft;
using namespace weft::api;

struct weft_text_stream {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenStream stream;
  std::string text;
};

namespace {

constexpr uint32_t kBytes = 256;
constexpr int64_t kSecond = 1000 * kMillisecond;

Status check_flags(uint32_t flags, uint32_t known, const char* expected) {
  if ((flags & ~known) == 0) return {};
  return Status(Code::invalid, cat("flags are ", flags, ", expected ", expected));
}

Status make(Result<Tokenizer> opened, Result<ChatSource> chat, Result<std::vector<int32_t>> ends,
            weft_tokenizer** out) {
  WEFT_TRY_ASSIGN(Tokenizer tokenizer, std::move(opened));
  auto shared = std::make_shared<const Tokenizer>(std::move(tokenizer));
  *out = new weft_tokenizer{std::move(shared), std::move(chat), std::move(ends)};
  return {};
}

Status check_switch(const char* field, uint32_t value) {
  if (value <= 1) return {};
  return Status(Code::invalid, cat("weft_chat_config.", field, " is ", value, ", expected 0 or 1"));
}

Result<std::vector<ChatMessage>> messages_of(const weft_chat_message* messages, size_t n) {
  std::vector<ChatMessage> out;
  if (n > 0) WEFT_TRY(require(messages, "messages"));
  for (size_t i = 0; i < n; ++i) {
    WEFT_TRY(require(messages[i].role, "weft_chat_message.role"));
    WEFT_TRY(require(messages[i].content, "weft_chat_message.content"));
    out.push_back({messages[i].role, messages[i].content});
  }
  return out;
}

// Roles choose special tokens, so the program must choose them. With other characters, a role could
// also end the text around it.
Status check_role(size_t message, const std::string& role) {
  const bool is_word = std::all_of(role.begin(), role.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c >= 0x80;
  });
  if (is_word) return {};
  return Status(Code::invalid, cat("message ", message, " has the role ", shown(role),
                                   ", expected letters, digits, '_' and '-'"));
}

// Has a character that is no letter, digit or white space.
bool has_sign(std::string_view text) {
  while (!text.empty()) {
    const char32_t point = take_code_point(text);
    if (!is_word(point) && !is_white_space(point)) return true;
  }
  return false;
}

// The tokens that mark parts of a conversation: special tokens, and the added tokens that a
// template writes around contents, which a file may declare not special. Words and white space are
// none: any text may have them.
class Marks {
 public:
  explicit Marks(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // `text`: what a template makes of contents without marks.
  Status add(const std::string& text) {
    std::vector<uint32_t> ids;
    WEFT_TRY(tokenizer_.encode(text, {}, ids));
    for (const uint32_t id : ids)
      if (tokenizer_.is_added(id) && has_sign(*tokenizer_.token(id))) written_.insert(id);
    return {};
  }
  Result<std::vector<uint32_t>> in(const std::string& text) const {
    std::vector<uint32_t> ids;
    WEFT_TRY(tokenizer_.encode(text, {}, ids));
    std::erase_if(
        ids, [&](uint32_t id) { return !tokenizer_.is_special(id) && !written_.contains(id); });
    return ids;
  }
  std::string name(uint32_t id) const { return shown(*tokenizer_.token(id)); }

 private:
  const Tokenizer& tokenizer_;
  std::set<uint32_t> written_;
};

Status refuse_marks(const Marks& marks, size_t message, const std::string& text) {
  WEFT_TRY_ASSIGN(const std::vector<uint32_t> found, marks.in(text));
  if (found.empty()) return {};
  return Status(Code::invalid, cat("message ", message, " contains the special token ",
                                   marks.name(found.front())));
}

// `text`: the rendered messages; `plain`: the same with other contents. A template can also join
// parts of messages to the name of a special token.
Status compare_marks(const Marks& marks, const std::string& text, const std::string& plain) {
  WEFT_TRY_ASSIGN(const std::vector<uint32_t> found, marks.in(text));
  WEFT_TRY_ASSIGN(const std::vector<uint32_t> expected, marks.in(plain));
  if (found == expected) return {};
  size_t same = 0;
  while (same < found.size() && same < expected.size() && found[same] == expected[same]) ++same;
  const auto name = [&](const std::vector<uint32_t>& ids) {
    return same < ids.size() ? marks.name(ids[same]) : "none";
  };
  return Status(Code::invalid, cat("the contents of the messages change special token ", same,
                                   " of the text to ", name(found), ", expected ", name(expected)));
}

class Rendering {
 public:
  Rendering(const weft_tokenizer& tokenizer, const weft_chat_config& config)
      : tokenizer_(*tokenizer.tokenizer), source_(tokenizer.chat.value()), config_(config) {
    variables_.texts = source_.tokens;
    if (config.local_time_ns != 0) variables_.now = config.local_time_ns / kSecond;
  }

  Result<std::string> text(const std::vector<ChatMessage>& messages) const {
    return source_.chat.render(messages, variables_, config_.add_generation_prompt != 0);
  }

  Status refuse_specials_of(const std::vector<ChatMessage>& messages,
                            const std::string& rendered) const {
    for (size_t i = 0; i < messages.size(); ++i) WEFT_TRY(check_role(i, messages[i].role));
    std::vector<ChatMessage> others = messages;
    for (ChatMessage& message : others)
      if (!message.content.empty()) message.content = "a";
    WEFT_TRY_ASSIGN(const std::string plain, text(others));
    Marks marks(tokenizer_);
    WEFT_TRY(marks.add(plain));
    // A content may have the marks of a role that is not in these messages.
    for (const char* role : {"system", "user", "assistant", "tool"}) {
      const ChatMessage message{role, "a"};
      const Result<std::string> of_role = source_.chat.render({&message, 1}, variables_, true);
      if (of_role.ok()) WEFT_TRY(marks.add(of_role.value()));
    }
    for (size_t i = 0; i < messages.size(); ++i)
      WEFT_TRY(refuse_marks(marks, i, messages[i].content));
    return compare_marks(marks, rendered, plain);
  }

 private:
  const Tokenizer& tokenizer_;
  const ChatSource& source_;
  const weft_chat_config& config_;
  ChatVariables variables_;
};

// Writes at most `capacity` bytes, with a NUL if there is space for it.
void copy_text(const std::string& from, char* text, size_t capacity, size_t* size) {
  std::copy_n(from.c_str(), std::min(capacity, from.size() + 1), text);
  *size = from.size();
}

Status check_ids(const int32_t* ids, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (ids[i] < 0)
      return Status(Code::invalid, cat("id ", i, " is ", ids[i], ", expected 0 or more"));
  return {};
}

Status give(weft_text_stream& stream, Result<std::string> made, const char** text, size_t* size) {
  WEFT_TRY_ASSIGN(stream.text, std::move(made));
  *text = stream.text.c_str();
  *size = stream.text.size();
  return {};
}

Result<std::vector<std::string>> specials_of(const weft_tokenizer_config& c) {
  std::vector<std::string> out;
  if (c.n_specials) WEFT_TRY(require(c.specials, "weft_tokenizer_config.specials"));
  for (uint32_t i = 0; i < c.n_specials; ++i) {
    WEFT_TRY(require(c.specials[i], "a special token"));
    const std::string token = c.specials[i];
    if (token.empty() || !valid_utf8(token) ||
        std::find(out.begin(), out.end(), token) != out.end())
      return Status(Code::invalid,
                    cat("special token ", shown(token), " is empty, not UTF-8, or given twice"));
    if (token.size() > AddedToken::kMostBytes)
      return Status(Code::invalid, cat("special token ", shown(token), " has ", token.size(),
                                       " bytes, expected at most ", AddedToken::kMostBytes));
    out.push_back(token);
  }
  return out;
}

}  // namespace

weft_status weft_tokenizer_open(const char* path, weft_tokenizer** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require(out, "out"));
    return make(open_tokenizer(path), open_chat(path), end_tokens(directory_of(path)), out);
  });
}

weft_status weft_tokenizer_parse(const char* json, size_t size, weft_tokenizer** out,
                                 weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(json, "json"));
    WEFT_TRY(require(out, "out"));
    return make(parse_tokenizer({json, size}).within("tokenizer"),
                Status(Code::not_found, "a tokenizer without a file has no chat template"),
                std::vector<int32_t>(), out);
  });
}

void weft_tokenizer_free(weft_tokenizer* tokenizer) { delete tokenizer; }

int64_t weft_tokenizer_vocabulary(const weft_tokenizer* tokenizer) {
  return tokenizer ? tokenizer->tokenizer->size() : 0;
}

// These three return no status, so they must not allocate.
int32_t weft_tokenizer_id(const weft_tokenizer* tokenizer, const char* token) {
  if (!tokenizer || !token) return -1;
  const auto id = tokenizer->tokenizer->id(token);
  return id ? static_cast<int32_t>(*id) : -1;
}

int32_t weft_tokenizer_end_token(const weft_tokenizer* tokenizer) {
  if (!tokenizer) return -1;
  const auto id = tokenizer->tokenizer->end_token();
  return id ? static_cast<int32_t>(*id) : -1;
}

const char* weft_tokenizer_token(const weft_tokenizer* tokenizer, int32_t id, uint32_t* special) {
  if (special) *special = 0;
  if (!tokenizer || id < 0) return nullptr;
  const std::string* token = tokenizer->tokenizer->token(static_cast<uint32_t>(id));
  if (special) *special = tokenizer->tokenizer->is_special(static_cast<uint32_t>(id));
  return token ? token->c_str() : nullptr;
}

weft_status weft_tokenizer_encode(const weft_tokenizer* tokenizer, const char* text, size_t size,
                                  uint32_t flags, int32_t* ids, size_t capacity, size_t* n_ids,
                                  weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(tokenizer, "tokenizer"));
    if (size > 0) WEFT_TRY(require(text, "text"));
    if (capacity > 0) WEFT_TRY(require(ids, "ids"));
    WEFT_TRY(require(n_ids, "n_ids"));
    WEFT_TRY(check_flags(flags, WEFT_ADD_SPECIALS | WEFT_PLAIN_SPECIALS,
                         "WEFT_ADD_SPECIALS, WEFT_PLAIN_SPECIALS, both or 0"));
    const bool add = (flags & WEFT_ADD_SPECIALS) != 0;
    const EncodeOptions options{
        .add_begin = add, .add_end = add, .find_specials = (flags & WEFT_PLAIN_SPECIALS) == 0};
    std::vector<uint32_t> made;
    WEFT_TRY(tokenizer->tokenizer->encode({size > 0 ? text : "", size}, options, made));
    std::copy_n(made.begin(), std::min(capacity, made.size()), ids);
    *n_ids = made.size();
    return {};
  });
}

weft_status weft_tokenizer_decode(const weft_tokenizer* tokenizer, const int32_t* ids, size_t n_ids,
                                  uint32_t flags, char* text, size_t capacity, size_t* size,
                                  weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(tokenizer, "tokenizer"));
    if (n_ids > 0) WEFT_TRY(require(ids, "ids"));
    if (capacity > 0) WEFT_TRY(require(text, "text"));
    WEFT_TRY(require(size, "size"));
    WEFT_TRY(check_flags(flags, WEFT_SKIP_SPECIALS, "WEFT_SKIP_SPECIALS or 0"));
    WEFT_TRY(check_ids(ids, n_ids));
    const std::vector<uint32_t> all(ids, ids + n_ids);
    WEFT_TRY_ASSIGN(const std::string made, tokenizer->tokenizer->decode(all, flags != 0));
    copy_text(made, text, capacity, size);
    return {};
  });
}

weft_status weft_tokenizer_chat(const weft_tokenizer* tokenizer, const weft_chat_message* messages,
                                size_t n_messages, const weft_chat_config* config, char* text,
                                size_t capacity, size_t* size, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(tokenizer, "tokenizer"));
    if (capacity > 0) WEFT_TRY(require(text, "text"));
    WEFT_TRY(require(size, "size"));
    weft_chat_config c;
    WEFT_TRY(read_config(config, "weft_chat_config", c));
    WEFT_TRY(check_switch("add_generation_prompt", c.add_generation_prompt));
    WEFT_TRY(check_switch("refuse_specials", c.refuse_specials));
    WEFT_TRY_ASSIGN(const std::vector<ChatMessage> all, messages_of(messages, n_messages));
    if (!tokenizer->chat.ok()) return tokenizer->chat.status();
    const Rendering rendering(*tokenizer, c);
    WEFT_TRY_ASSIGN(const std::string made, rendering.text(all));
    if (c.refuse_specials != 0) WEFT_TRY(rendering.refuse_specials_of(all, made));
    copy_text(made, text, capacity, size);
    return {};
  });
}

weft_status weft_text_stream_new(const weft_tokenizer* tokenizer, uint32_t flags,
                                 weft_text_stream** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(tokenizer, "tokenizer"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(check_flags(flags, WEFT_SKIP_SPECIALS, "WEFT_SKIP_SPECIALS or 0"));
    *out = new weft_text_stream{
        tokenizer->tokenizer, TokenStream(*tokenizer->tokenizer, flags != 0), {}};
    return {};
  });
}

void weft_text_stream_free(weft_text_stream* stream) { delete stream; }

weft_status weft_text_stream_add(weft_text_stream* stream, int32_t id, const char** text,
                                 size_t* size, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(stream, "stream"));
    WEFT_TRY(require(text, "text"));
    WEFT_TRY(require(size, "size"));
    WEFT_TRY(check_ids(&id, 1));
    return give(*stream, stream->stream.add(static_cast<uint32_t>(id)), text, size);
  });
}

weft_status weft_text_stream_finish(weft_text_stream* stream, const char** text, size_t* size,
                                    weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(stream, "stream"));
    WEFT_TRY(require(text, "text"));
    WEFT_TRY(require(size, "size"));
    return give(*stream, stream->stream.finish(), text, size);
  });
}

weft_status weft_tokenizer_train(const char* text, size_t n_text,
                                 const weft_tokenizer_config* config, const char* path,
                                 weft_error* err) {
  return guard(err, [&]() -> Status {
    if (n_text > 0) WEFT_TRY(require(text, "text"));
    WEFT_TRY(require(path, "path"));
    weft_tokenizer_config c;
    WEFT_TRY(read_config(config, "weft_tokenizer_config", c));
    WEFT_TRY_ASSIGN(const std::vector<std::string> specials, specials_of(c));
    const std::string_view all(n_text > 0 ? text : "", n_text);
    const auto least = kBytes + specials.size();
    if (c.vocabulary < least)
      return Status(Code::invalid, cat("weft_tokenizer_config.vocabulary is ", c.vocabulary,
                                       ", expected at least ", least));
    if (!valid_utf8(all)) return Status(Code::data, "the text is not UTF-8");
    WEFT_TRY_ASSIGN(const TrainedBpe bpe, train_bpe(all, c.vocabulary, c.min_count, specials));
    return replace_text(path, print_tokenizer(bpe, specials.size()));
  });
}
