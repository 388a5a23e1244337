// The reader of tokenizer_config.json: any text is refused or changes a tokenizer, which then
// encodes without a fault.
#include "io/strict_json.h"
#include "io/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kTokenizer =
      R"({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel",)"
      R"( "add_prefix_space": true}, "model": {"type": "BPE", "vocab": {"a": 0, "\u0120": 1,)"
      R"( "<s>": 2}, "merges": []}})";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = weft::read_json(text, {.fractions = weft::Fractions::allow, .depth = 32});
  if (!config.ok()) return 0;
  const auto tokenizer = weft::parse_tokenizer(kTokenizer, config.value());
  std::vector<uint32_t> ids;
  if (tokenizer.ok())
    (void)tokenizer.value().encode("a <s>", {.add_begin = true, .add_end = true}, ids).ok();
  return 0;
}
