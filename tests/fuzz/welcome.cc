// What processes exchange before a run: any bytes are either refused, or read as what encodes to
// bytes that are read as the same.
#include <cstdio>
#include <cstdlib>

#include "graph/encode.h"
#include "plan/encode.h"
#include "runtime/welcome.h"

namespace weft {
namespace {

template <typename Decode, typename Encode>
void read(std::span<const std::byte> bytes, const Decode& decode, const Encode& encode) {
  const auto first = decode(bytes);
  if (!first.ok()) return;
  const std::vector<std::byte> once = encode(first.value());
  const auto second = decode(once);
  if (second.ok() && encode(second.value()) == once) return;
  std::fprintf(stderr, "reads as another: %s\n", second.status().text().c_str());
  std::abort();
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// The first byte chooses the reader.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size).subspan(1));
  const auto model = [](std::span<const std::byte> in) { return weft::decode_model(in, nullptr); };
  switch (data[0] % 4) {
    case 0: weft::read(bytes, weft::decode_join, weft::encode_join); break;
    case 1: weft::read(bytes, weft::decode_welcome, weft::encode_welcome); break;
    case 2: weft::read(bytes, model, [](const auto& m) { return weft::encode_model(*m); }); break;
    default: weft::read(bytes, weft::decode_config, weft::encode_config);
  }
  return 0;
}
