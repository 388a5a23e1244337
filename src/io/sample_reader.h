// Turns a line of NAME.jsonl into the ids of a sample.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/chat_source.h"
#include "io/json.h"
#include "text/tokenizer.h"

namespace weft {

struct SampleIds {
  std::vector<int32_t> ids;
  std::vector<bool> learned;  // whether an id is to be learned

  // Leaves out what follows the last target among the first `most`. False: there is none.
  bool cut(size_t most);
};

// What it is made with is borrowed.
class SampleReader {
 public:
  // `chat`: or why there is none. `end`: the token after a completion or text that does not end
  // with it or one of `ends`; -1: none.
  SampleReader(const Tokenizer& tokenizer, const Result<ChatSource>& chat, int64_t vocabulary,
               int32_t end, const std::vector<int32_t>& ends)
      : tokenizer_(tokenizer), chat_(chat), vocabulary_(vocabulary), end_(end), ends_(ends) {}

  // Of {"prompt": TEXT, "completion": TEXT}, whose completion is learned, {"text": TEXT}, which is
  // learned as a whole, or {"messages": [{"role": TEXT, "content": TEXT}, ...]}, of which the
  // answers are. Fails if nothing is learned.
  Result<SampleIds> read(std::string_view line) const;

 private:
  Result<SampleIds> read_completion(const Json& object) const;
  Result<SampleIds> read_text(const Json& object) const;
  Result<SampleIds> read_messages(const Json& object) const;
  void add_end(std::vector<int32_t>& ids) const;
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_begin) const;

  const Tokenizer& tokenizer_;
  const Result<ChatSource>& chat_;
  int64_t vocabulary_;
  int32_t end_;
  const std::vector<int32_t>& ends_;
};

}  // namespace weft
