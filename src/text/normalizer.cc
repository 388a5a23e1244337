#include "text/normalizer.h"

#include <algorithm>

#include "text/byte_level.h"

namespace weft {

namespace {

void strip(const Normalizer& stage, TextPart& segment) {
  std::string_view rest = segment.text;
  while (stage.left && !rest.empty()) {
    std::string_view next = rest;
    if (!is_white_space(take_code_point(next))) break;
    rest = next;
  }
  const size_t stripped = segment.text.size() - rest.size();
  segment.first = segment.first > stripped ? segment.first - stripped : 0;
  size_t end = 0;  // of the last character that is not a space
  for (std::string_view at = rest; !at.empty();) {
    const bool space = is_white_space(take_code_point(at));
    if (!space) end = rest.size() - at.size();
  }
  segment.text = std::string(stage.right ? rest.substr(0, end) : rest);
}

// Changes the text; `change` does the same with its start.
template <typename F>
void convert(TextPart& segment, F&& change) {
  std::string text = change(segment.text);
  if (segment.first > 0) {
    // If what follows has become a part of the first character, that is all that comes from it.
    const std::string start = change(std::string_view(segment.text).substr(0, segment.first));
    std::string_view rest = text;
    if (!text.starts_with(start) && !rest.empty()) take_code_point(rest);
    segment.first = text.starts_with(start) ? start.size() : text.size() - rest.size();
  }
  segment.text = std::move(text);
}

Status apply(const Normalizer& stage, Growth& growth, TextPart& segment) {
  std::string& text = segment.text;
  switch (stage.kind) {
    case Normalizer::Kind::form:
      convert(segment, [&](std::string_view part) { return normalized(part, stage.form); });
      break;
    case Normalizer::Kind::lowercase: convert(segment, lower_case); break;
    case Normalizer::Kind::strip: strip(stage, segment); break;
    case Normalizer::Kind::byte_level: convert(segment, to_byte_letters); break;
    case Normalizer::Kind::prepend:
      if (text.empty()) break;
      text.insert(0, stage.content);
      if (segment.first > 0) segment.first += stage.content.size();
      break;
    case Normalizer::Kind::replace: {
      WEFT_TRY_ASSIGN(segment, replaced(segment, stage.pattern, stage.content, growth));
      return {};
    }
  }
  return growth.add(text.size());
}

}  // namespace

Status normalize(const std::vector<Normalizer>& stages, std::vector<Growth>& growth,
                 TextPart& segment) {
  for (size_t i = 0; i < stages.size(); ++i) WEFT_TRY(apply(stages[i], growth[i], segment));
  return {};
}

Result<TextPart> replaced(const TextPart& part, const Regex& pattern, std::string_view content,
                          Growth& growth) {
  const std::string_view text = part.text;
  TextPart out{.text = {}, .first = 0};
  if (text.empty()) return out;
  size_t done = 0;
  const auto append = [&](std::string_view more) -> Status {
    WEFT_TRY(growth.add(more.size()));
    out.text += more;
    return {};
  };
  const auto keep = [&](size_t end) {
    if (done < part.first) out.first += std::min(end, part.first) - done;
    return append(text.substr(done, end - done));
  };
  Matches matches(pattern, text, growth.searches());
  for (;;) {
    WEFT_TRY_ASSIGN(const bool found, matches.next());
    if (!found) break;
    WEFT_TRY(keep(matches.begin()));
    done = matches.end();
    // It comes from the last character that it replaces.
    if (part.first > 0 && done <= part.first) out.first += content.size();
    WEFT_TRY(append(content));
  }
  WEFT_TRY(keep(text.size()));
  return out;
}

}  // namespace weft
