// The reader of tokenizer.json: any text is refused or is a tokenizer, which encodes and decodes
// without a fault, and whose stream of texts is UTF-8. What follows a NUL is the text to encode.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/text.h"
#include "io/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const auto tokenizer = weft::parse_tokenizer(input.substr(0, end));
  if (!tokenizer.ok()) return 0;
  const std::string_view text =
      end < size ? input.substr(end + 1) : "Hello, <s> w\xc3\xb6rld 123\n";
  std::vector<uint32_t> ids;
  if (!tokenizer.value().encode(text, {.add_begin = true, .add_end = true}, ids).ok()) return 0;
  weft::TokenStream stream(tokenizer.value(), false);
  const auto check = [&](const weft::Result<std::string>& part) {
    if (!part.ok() || weft::valid_utf8(part.value())) return;
    std::fprintf(stderr, "not UTF-8: %s\n", weft::quoted(part.value(), 100).c_str());
    std::abort();
  };
  for (uint32_t id : ids) check(stream.add(id));
  check(stream.finish());
  check(tokenizer.value().decode(ids, true));
  return 0;
}
