#include "cli/stop_search.h"

#include <algorithm>

namespace weft::cli {

Outcome StopSearch::add(int32_t token, bool& found) {
  found = false;
  if (stops_.empty()) return {};
  CLI_TRY(add(token, 0, whole_, found));
  return add(token, WEFT_SKIP_SPECIALS, plain_, found);
}

Outcome StopSearch::add(int32_t token, uint32_t flags, Text& text, bool& found) const {
  weft_error err = sized<weft_error>();
  if (!text.stream) CLI_CALL(weft_text_stream_new(tokenizer_, flags, Out(text.stream), &err));
  const char* part = "";
  size_t size = 0, longest = 0;
  CLI_CALL(weft_text_stream_add(text.stream.get(), token, &part, &size, &err));
  text.end.append(part, size);
  for (const std::string& stop : stops_) {
    found = found || text.end.find(stop) != std::string::npos;
    longest = std::max(longest, stop.size());
  }
  if (text.end.size() >= longest) text.end.erase(0, text.end.size() - longest + 1);
  return {};
}

}  // namespace weft::cli
