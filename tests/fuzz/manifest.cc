// The reader of checkpoint manifests: any text is either refused or read, and what was read prints
// and reads back as the same manifest, whose file names stay in their directory.
#include <cstdio>
#include <cstdlib>

#include "io/manifest.h"
#include "io/names.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto first = weft::parse_manifest(text, weft::Checksum::ignore);
  if (!first.ok()) {
    if (!weft::parse_manifest(text).ok()) return 0;
    std::fprintf(stderr, "refused only where the checksum is ignored: %s\n",
                 first.status().text().c_str());
    std::abort();
  }
  for (const weft::CheckpointShard& shard : first.value().shards) {
    if (weft::plain_file_name(shard.file) && shard.file.find('/') == std::string::npos &&
        shard.file[0] != '.')
      continue;
    std::fprintf(stderr, "shard '%s' lies elsewhere\n", shard.file.c_str());
    std::abort();
  }
  const auto printed = weft::print_manifest(first.value());
  const auto second = printed.ok() ? weft::parse_manifest(printed.value())
                                   : weft::Result<weft::Manifest>(printed.status());
  if (!second.ok() || second.value() != first.value()) {
    std::fprintf(stderr, "printed as\n%s\nbut that reads as %s\n",
                 printed.ok() ? printed.value().c_str() : "nothing",
                 second.ok() ? "another manifest" : second.status().text().c_str());
    std::abort();
  }
  return 0;
}
