#include "io/source_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>

#include "base/text.h"
#include "io/checkpoint_lock.h"
#include "io/checkpoint_names.h"
#include "io/file.h"
#include "io/replacement.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr const char *kSourceDirectory = "source", *kTokenizerFile = "tokenizer.json",
                     *kGenerationConfigFile = "generation_config.json";
constexpr const char* kModelFiles[] = {kModelConfigFile, kGenerationConfigFile};
constexpr const char* kBaseFile = "base_model_path";  // only in the directory of checkpoints
constexpr const char* kTokenizerFiles[] = {kTokenizerFile,
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "chat_template.json",
                                           "chat_template.jinja",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer.model"};
constexpr size_t kMostBytes = size_t{1} << 28, kMostConfigBytes = size_t{1} << 20;
constexpr size_t kDepth = 32;  // of a generation_config.json

Status copy(const std::string& from, const std::string& to) {
  if (!path_exists(from)) return {};
  WEFT_TRY_ASSIGN(const std::string bytes, read_text(from, kMostBytes));
  WEFT_TRY_ASSIGN(Replacement replacement, Replacement::create(to));
  replacement.file().restrict_as(from);  // which may be a link to a private file
  WEFT_TRY(replacement.file().write(0, bytes.data(), bytes.size()));
  return replacement.commit();
}

Status copy_all(std::span<const char* const> names, const std::string& from,
                const std::string& to) {
  for (const char* name : names) WEFT_TRY(copy(join_path(from, name), join_path(to, name)));
  return {};
}

// A file tokenizer.json has the other files of the tokenizer beside it.
Status copy_tokenizer(const std::string& tokenizer, const std::string& to) {
  if (is_directory(tokenizer)) return copy_all(kTokenizerFiles, tokenizer, to);
  if (std::filesystem::path(tokenizer).filename() == kTokenizerFile)
    return copy_all(kTokenizerFiles, parent_path(tokenizer), to);
  return copy(tokenizer, join_path(to, kTokenizerFile));
}

// Whether a directory is that of keep_source() for other checkpoints.
bool is_kept(const std::string& source) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::canonical(source, ignored);
  return path.filename() == kSourceDirectory && has_checkpoints(path.parent_path().string());
}

Status unexpected(const Json& value) {
  return Status(Code::data, cat("'eos_token_id' is ", value.dump(),
                                ", expected a token, a list of tokens or null"));
}

}  // namespace

bool is_source_file(std::string_view name) {
  return name == kBaseFile ||
         std::find(std::begin(kModelFiles), std::end(kModelFiles), name) != std::end(kModelFiles) ||
         std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) !=
             std::end(kTokenizerFiles);
}

Status keep_source(const std::string& checkpoints, const std::string& source,
                   const std::string& tokenizer) {
  if (!tokenizer.empty() && !path_exists(tokenizer))
    return Status(Code::not_found, cat(tokenizer, ": does not exist"));
  if (!source.empty() && !is_directory(source))
    return Status(Code::not_found, cat(source, ": is no directory"));
  // Checkpoints with files that cannot be read could not be opened.
  if (!source.empty()) WEFT_TRY(end_tokens(source).status());
  WEFT_TRY(check_directory_of_checkpoints(checkpoints));
  WEFT_TRY(make_directory(checkpoints, /*with_parents=*/true));
  WEFT_TRY_ASSIGN(File lock, lock_directory(checkpoints));
  const std::string kept = join_path(checkpoints, kSourceDirectory),
                    hidden = join_path(checkpoints, cat('.', kSourceDirectory, ".tmp"));
  WEFT_TRY(restore_directory(kept));
  for (const std::string& of_crash : {hidden, aside_path(kept)}) {
    WEFT_TRY(check_only(of_crash, is_source_file));
    if (path_exists(of_crash)) WEFT_TRY(remove_path(of_crash));
  }
  WEFT_TRY(make_directory(hidden, /*with_parents=*/false));
  Temporary temporary(hidden);
  if (!source.empty()) {
    WEFT_TRY(copy_all(kModelFiles, source, hidden));
    if (tokenizer.empty()) WEFT_TRY(copy_all(kTokenizerFiles, source, hidden));
    if (!is_kept(source) && valid_utf8(absolute_path(source)))  // JSON has no other text
      WEFT_TRY(replace_text(join_path(hidden, kBaseFile), absolute_path(source)));
  }
  if (!tokenizer.empty()) WEFT_TRY(copy_tokenizer(tokenizer, hidden));
  WEFT_TRY_ASSIGN(const auto names, list_directory(hidden));
  const Status replaces = check_only(kept, is_source_file);
  if (names.empty()) {
    // Without checkpoints, the directory is not one that weft has made.
    const bool is_old = replaces.ok() && path_exists(kept) && has_checkpoints(checkpoints);
    return is_old ? remove_path(kept) : Status();
  }
  WEFT_TRY(replaces);
  WEFT_TRY(sync_directory(hidden));
  bool swapped = false;
  WEFT_TRY(rename_or_swap(hidden, kept, &swapped));
  if (!swapped) temporary.keep();
  return lock.sync();
}

std::string source_of(const std::string& checkpoint) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(checkpoint, error);
  if (error) return "";
  const std::string kept = directory_or_aside((path.parent_path() / kSourceDirectory).string());
  return is_directory(kept) ? kept : "";
}

std::string base_of(const std::string& source) {
  const auto text = read_text(join_path(source, kBaseFile), kMostConfigBytes);
  return text.ok() ? text.value() : "";
}

Status copy_source(const std::string& source, const std::string& to) {
  WEFT_TRY(copy(join_path(source, kGenerationConfigFile), join_path(to, kGenerationConfigFile)));
  return copy_all(kTokenizerFiles, source, to);
}

Status remove_other_source(const std::string& source, const std::string& at) {
  WEFT_TRY_ASSIGN(const auto names, list_directory(at));
  for (const std::string& name : names) {
    const bool is_copied = !source.empty() && path_exists(join_path(source, name));
    if (is_source_file(name) && !is_copied) WEFT_TRY(remove_file(join_path(at, name)));
  }
  return {};
}

Result<std::string> source_config(const std::string& source) {
  const std::string path = join_path(source, kModelConfigFile);
  if (!path_exists(path)) return std::string();
  return read_text(path, kMostConfigBytes);
}

Result<std::vector<int32_t>> end_tokens(const std::string& source) {
  for (const char* name : {kGenerationConfigFile, kModelConfigFile}) {
    const std::string path = join_path(source, name);
    if (!path_exists(path)) continue;
    WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostConfigBytes));
    WEFT_TRY_ASSIGN(auto ends, parse_end_tokens(text).within(path));
    if (!ends.empty()) return ends;
  }
  return std::vector<int32_t>();
}

Result<std::vector<int32_t>> parse_end_tokens(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object,
                  read_json(json, {.fractions = Fractions::allow, .depth = kDepth}));
  std::vector<int32_t> out;
  const auto at = object.members().find("eos_token_id");
  if (at == object.members().end() || at->second.is_null()) return out;
  const Json& value = at->second;
  const Json::Array one = {value};
  for (const Json& item : value.is_array() ? value.items() : one) {
    if (!item.is_number_unsigned() || item.whole() > INT32_MAX) return unexpected(value);
    out.push_back(static_cast<int32_t>(item.whole()));
  }
  return out;
}

}  // namespace weft
