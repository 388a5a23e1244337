// The reader of adapter_config.json: any text is either refused or keys that each preset has. Their
// values may be refused.
#include <cstdio>
#include <cstdlib>

#include "graph/presets.h"
#include "io/adapters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = weft::parse_adapter_config({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) return 0;
  const auto preset = weft::make_preset("mlp:layers=1,width=1," + config.value().keys, {});
  const std::string text = preset.status().text();
  if (preset.ok() || !text.starts_with("model 'mlp' has no key")) return 0;
  std::fprintf(stderr, "%s\n%s\n", config.value().keys.c_str(), text.c_str());
  std::abort();
}
