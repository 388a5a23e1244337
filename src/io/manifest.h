// The manifest of a checkpoint: its description, and its files with their checksums. A JSON file
// with a checksum of itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

enum class ShardPart : uint8_t { model, optimizer };
constexpr ShardPart kParts[] = {ShardPart::model, ShardPart::optimizer};
const char* part_name(ShardPart part);

struct CheckpointShard {
  std::string file;  // a plain name, in the directory of the manifest
  ShardPart part = ShardPart::model;
  uint64_t bytes = 0;
  Digest checksum;
  std::vector<std::string> tensors;
  friend bool operator==(const CheckpointShard&, const CheckpointShard&) = default;
};

struct Manifest {
  std::string weft;   // the version that wrote it
  std::string model;  // what the user called the model
  uint64_t seed = 0;
  uint64_t step = 0;  // number of updates of the parameters
  // Settings as text, so that numbers keep their form.
  std::map<std::string, std::string> optimizer, options;
  std::vector<CheckpointShard> shards;  // set by the writer
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Fails for text that is not UTF-8.
Result<std::string> print_manifest(const Manifest& manifest);
enum class Checksum : uint8_t { check, ignore };
// Refuses a wrong checksum, duplicate and unknown keys, file names in other directories, and a
// tensor or a file that occurs twice. Fuzzers ignore checksums, which they cannot guess.
Result<Manifest> parse_manifest(std::string_view text, Checksum checksum = Checksum::check);

}  // namespace weft
