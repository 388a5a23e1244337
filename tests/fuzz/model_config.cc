// The readers of config.json: any text is either refused or a model, which is the same after it has
// been written and read again, also with the ids of special tokens of the text. And its writer: a
// model comes from the manifest of a checkpoint, which can be any text.
#include <cstdio>
#include <cstdlib>

#include "io/model_config.h"
#include "io/source_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)weft::parse_end_tokens(text);
  (void)weft::print_model_config(text, {});
  const auto model = weft::parse_model_config(text);
  if (!model.ok()) return 0;
  const auto written = weft::print_model_config(model.value(), {.source = text});
  const auto again = written.ok() ? weft::parse_model_config(written.value()) : written;
  if (again.ok() && again.value() == model.value()) return 0;
  std::fprintf(stderr, "%s\n%s\n", model.value().c_str(), again.status().text().c_str());
  std::abort();
}
