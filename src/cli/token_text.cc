#include "cli/token_text.h"

#include <unistd.h>

#include <filesystem>

#include "cli/files.h"

namespace weft::cli {

Outcome read_file(const std::string& path, std::string& out) {
  constexpr size_t kMostBytes = size_t{1} << 34;  // as samples in JSON
  return path == "-" ? read_all(STDIN_FILENO, "standard input", kMostBytes, out)
                     : read_text(path, kMostBytes, out);
}

Outcome open_tokenizer(const std::string& path, TokenizerPtr& out) {
  weft_error err = sized<weft_error>();
  const std::string found = tokenizer_of(path);
  CLI_CALL(weft_tokenizer_open((found.empty() ? path : found).c_str(), Out(out), &err));
  return {};
}

std::string tokenizer_of(const std::string& path) {
  if (path.empty()) return "";
  std::error_code ignored;
  const auto has = [&](const std::filesystem::path& directory, const char* file) {
    return std::filesystem::exists(directory / file, ignored);
  };
  if (path.ends_with(".json") && std::filesystem::is_regular_file(path, ignored)) return path;
  const std::filesystem::path directory = path;
  if (has(directory, "tokenizer.json")) return path;
  const std::filesystem::path kept =
      directory / (has(directory, "manifest.json") ? "../source" : "source");
  return has(kept, "tokenizer.json") ? kept.lexically_normal().string() : "";
}

Outcome encode_file(const weft_tokenizer* tokenizer, const std::string& file, uint32_t flags,
                    std::vector<int32_t>& out, size_t& bytes) {
  std::string text;
  CLI_TRY(read_file(file, text));
  bytes = text.size();
  Outcome outcome = encode(tokenizer, text, flags, out);
  if (!outcome.ok()) outcome.text = file + ": " + outcome.text;
  return outcome;
}

// A token has at least one byte in most texts, so the first call rarely has too little space.
Outcome encode(const weft_tokenizer* tokenizer, std::string_view text, uint32_t flags,
               std::vector<int32_t>& out) {
  weft_error err = sized<weft_error>();
  size_t size = text.size() / 2 + 16;
  do {
    out.resize(size);
    CLI_CALL(weft_tokenizer_encode(tokenizer, text.data(), text.size(), flags, out.data(),
                                   out.size(), &size, &err));
  } while (size > out.size());
  out.resize(size);
  return {};
}

Outcome decode(const weft_tokenizer* tokenizer, const std::vector<int32_t>& ids, uint32_t flags,
               std::string& out) {
  weft_error err = sized<weft_error>();
  size_t size = ids.size() * 8 + 16;
  do {
    out.resize(size);
    CLI_CALL(weft_tokenizer_decode(tokenizer, ids.data(), ids.size(), flags, out.data(), out.size(),
                                   &size, &err));
  } while (size > out.size());
  out.resize(size);
  return {};
}

uint32_t id_width(std::string_view path) {
  return path.ends_with(".u16") ? 2 : path.ends_with(".u32") ? 4 : 0;
}

std::string id_bytes(const std::vector<int32_t>& ids, uint32_t width) {
  std::string out;
  out.reserve(ids.size() * width);
  for (int32_t id : ids)
    for (uint32_t i = 0; i < width; ++i)
      out += static_cast<char>(static_cast<uint32_t>(id) >> (8 * i) & 0xff);
  return out;
}

Outcome read_ids(const std::string& path, std::vector<int32_t>& out) {
  const uint32_t width = id_width(path);
  if (width == 0)
    return {kUsage, "'" + path + "' is no file of ids, expected NAME.u16 or NAME.u32", ""};
  std::string bytes;
  CLI_TRY(read_file(path, bytes));
  if (bytes.size() % width != 0)
    return {kBadInput,
            path + ": has " + std::to_string(bytes.size()) + " bytes, expected a multiple of " +
                std::to_string(width),
            ""};
  for (size_t at = 0; at < bytes.size(); at += width) {
    uint32_t id = 0;
    for (uint32_t i = 0; i < width; ++i)
      id |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
    if (id > INT32_MAX)
      return {kBadInput,
              path + ": token " + std::to_string(at / width) + " is " + std::to_string(id) +
                  ", expected at most " + std::to_string(INT32_MAX),
              ""};
    out.push_back(static_cast<int32_t>(id));
  }
  return {};
}

}  // namespace weft::cli
