#include "io/checkpoint_names.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/text.h"
#include "io/file.h"
#include "io/manifest.h"
#include "io/replacement.h"

namespace weft {

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 8;

// Also one that was renamed, or that has no manifest.
bool is_checkpoint(const std::filesystem::path& directory) {
  const std::string name = directory.filename().string();
  if (step_of_directory(name) || is_hidden_directory(name)) return true;
  const auto text = read_manifest_text(directory.string());
  return text.ok() && parse_manifest(text.value()).ok();
}

// The step of ".step-00000010.old".
std::optional<uint64_t> step_of_aside(std::string_view name) {
  if (!is_hidden_directory(name) || !name.ends_with(kAsideEnd)) return {};
  name.remove_prefix(1);
  name.remove_suffix(kAsideEnd.size());
  return step_of_directory(name);
}

}  // namespace

Result<std::string> read_manifest_text(const std::string& directory) {
  return read_text(join_path(directory, kManifestFile), size_t{64} << 20, Links::refuse);
}

std::string step_directory(uint64_t step) { return cat(kPrefix, zero_padded(step, kDigits)); }

std::optional<uint64_t> step_of_directory(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step_directory(step) != name) return {};
  return step;
}

std::string hidden_directory(uint64_t step, std::string_view purpose) {
  return cat('.', step_directory(step), '.', purpose);
}

bool is_hidden_directory(std::string_view name) {
  return name.starts_with('.') && name.substr(1).starts_with(kPrefix);
}

Result<std::vector<uint64_t>> list_steps(const std::string& directory) {
  WEFT_TRY_ASSIGN(const auto names, list_directory(directory));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = step_of_directory(name)) steps.push_back(*step);
    if (const auto step = step_of_aside(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

Status check_only_checkpoint(const std::string& directory) {
  return check_only(directory, [](std::string_view name) {
    return name == kManifestFile || name.ends_with(".safetensors");
  });
}

Status check_directory_of_checkpoints(const std::string& given) {
  std::filesystem::path path = given;
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  if (is_model_directory(path.string()))
    return Status(Code::invalid, cat(given, ": is a directory of Transformers, as it has a ",
                                     kModelConfigFile, ", expected a directory of checkpoints"));
  if (!is_checkpoint(path)) return {};
  return Status(Code::invalid,
                cat(given, ": is a checkpoint, expected a directory of checkpoints"));
}

bool is_model_directory(const std::string& path) {
  return path_exists(join_path(path, kModelConfigFile)) && !has_checkpoints(path);
}

bool has_checkpoints(const std::string& directory) {
  if (is_checkpoint(directory)) return true;
  const auto steps = list_steps(directory);
  return steps.ok() && !steps.value().empty();
}

Status check_outside_checkpoints(const std::string& given) {
  WEFT_TRY_ASSIGN(const std::string path, place_for_file(given));
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::canonical(parent_path(path), error);
  if (error)
    return system_failure(cat("cannot find the directory of '", given, "'"), error.value());
  if (is_checkpoint(directory))
    return Status(Code::invalid, cat(given, ": is in the checkpoint '", directory.string(),
                                     "', expected a place outside of it"));
  if (std::filesystem::path(path).filename() != kLatestFile) return {};
  const auto steps = list_steps(directory.string());
  if (!steps.ok() || steps.value().empty()) return {};
  return Status(Code::invalid, cat(given, ": names the latest checkpoint of '", directory.string(),
                                   "', expected another file"));
}

Status save_text(const std::string& path, std::string_view text) {
  WEFT_TRY(check_outside_checkpoints(path));
  return replace_text(path, text);
}

}  // namespace weft
