// The names of files and directories of checkpoints, for the reader and the writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

constexpr std::string_view kManifestFile = "manifest.json";
constexpr std::string_view kLatestFile = "latest";
constexpr const char* kModelConfigFile = "config.json";  // of Transformers

std::string step_directory(uint64_t step);                         // "step-00000010"
std::optional<uint64_t> step_of_directory(std::string_view name);  // of exactly such a name
// Hidden names in which the directory of a step is written and removed.
std::string hidden_directory(uint64_t step, std::string_view purpose);
bool is_hidden_directory(std::string_view name);
// The steps that have a directory, newest first; it may be aside (rename_or_swap()).
Result<std::vector<uint64_t>> list_steps(const std::string& directory);

// A checkpoint, or a directory with at least one.
bool has_checkpoints(const std::string& directory);
// Whether the path is a directory of Transformers: it has a config.json and no checkpoints.
bool is_model_directory(const std::string& path);

Result<std::string> read_manifest_text(const std::string& directory);

// Refuses to replace or remove a directory with files that checkpoints do not have: someone else
// may have made it. Ok if there is none.
Status check_only_checkpoint(const std::string& directory);

// Refuses a checkpoint, and a directory of Transformers, as the directory of checkpoints.
Status check_directory_of_checkpoints(const std::string& directory);
// Refuses the path of a new file if it is in a checkpoint of any run, or is the `latest` of a
// directory.
Status check_outside_checkpoints(const std::string& path);
// replace_text() for such a path.
Status save_text(const std::string& path, std::string_view text);

}  // namespace weft
