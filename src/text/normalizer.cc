#include "text/normalizer.h"

#include "text/byte_level.h"

namespace weft {

namespace {

void strip(const Normalizer& stage, TextPart& segment) {
  std::string_view rest = segment.text;
  while (stage.left && !rest.empty()) {
    std::string_view next = rest;
    if (!is_white_space(take_code_point(next))) break;
    rest = next;
    segment.first = false;
  }
  size_t end = 0;  // of the last character that is not a space
  for (std::string_view at = rest; !at.empty();) {
    const bool space = is_white_space(take_code_point(at));
    if (!space) end = rest.size() - at.size();
  }
  segment.text = std::string(stage.right ? rest.substr(0, end) : rest);
}

Status apply(const Normalizer& stage, TextPart& segment) {
  std::string& text = segment.text;
  switch (stage.kind) {
    case Normalizer::Kind::form: text = normalized(text, stage.form); return {};
    case Normalizer::Kind::lowercase: text = lower_case(text); return {};
    case Normalizer::Kind::strip: strip(stage, segment); return {};
    case Normalizer::Kind::byte_level: text = to_byte_letters(text); return {};
    case Normalizer::Kind::prepend:
      if (!text.empty()) text.insert(0, stage.content);
      return {};
    case Normalizer::Kind::replace: {
      WEFT_TRY_ASSIGN(text, replaced(text, stage.pattern, stage.content));
      return {};
    }
  }
  return {};
}

}  // namespace

Status normalize(const std::vector<Normalizer>& stages, TextPart& segment) {
  for (const Normalizer& stage : stages) WEFT_TRY(apply(stage, segment));
  return {};
}

Result<std::string> replaced(std::string_view text, const Regex& pattern,
                             std::string_view content) {
  std::string out;
  if (text.empty()) return out;
  size_t done = 0;
  Matches matches(pattern, text);
  for (;;) {
    WEFT_TRY_ASSIGN(const bool found, matches.next());
    if (!found) break;
    out += text.substr(done, matches.begin() - done);
    out += content;
    done = matches.end();
  }
  return out += text.substr(done);
}

}  // namespace weft
