#include "io/names.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace weft {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string shown(std::string_view name) {
  constexpr size_t kShown = 80;
  const bool cut = name.size() > kShown;
  if (cut) {
    size_t end = kShown;
    while (end > 0 && continues(name[end])) --end;
    name = name.substr(0, end);
  }
  std::string out = "'";
  const bool readable = valid_utf8(name);
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !readable) ? '?' : c;
  }
  return out + (cut ? "...'" : "'");
}

std::string listed(const std::vector<std::string>& items) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t i = 0; i < items.size() && i < kShown; ++i) out += cat(i ? ", " : "", items[i]);
  return items.size() > kShown ? cat(out, " and ", items.size() - kShown, " more") : out;
}

bool valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || text.size() - i < length) return false;
    for (size_t k = 1; k < length; ++k)
      if (!continues(text[i + k])) return false;
    if (length > 2) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      // Longer than needed, a surrogate, or beyond U+10FFFF.
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
          (lead == 0xF4 && second > 0x8F))
        return false;
    }
    i += length;
  }
  return true;
}

bool plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

Status check_tensor_name(std::string_view name) {
  constexpr size_t kLongest = 512;
  if (name.empty()) return Status(Code::invalid, "tensor name is empty");
  if (name.size() > kLongest)
    return Status(Code::invalid, cat("tensor name ", shown(name), " has ", name.size(), " bytes, expected at most ", kLongest));
  if (name.find('\0') != name.npos) return Status(Code::invalid, cat("tensor name ", shown(name), " holds a NUL"));
  if (!valid_utf8(name)) return Status(Code::invalid, cat("tensor name ", shown(name), " is not UTF-8"));
  if (name == "__metadata__") return Status(Code::invalid, "tensor name '__metadata__' is kept for metadata");
  return {};
}

Status compare_tensors(const std::string& where, const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& found) {
  std::map<std::string_view, const Desc*> here;
  for (const TensorSpec& tensor : found) here.emplace(tensor.name, &tensor.desc);
  std::vector<std::string> missing, surplus, differing;
  std::map<std::string_view, const Desc*> wanted;
  for (const TensorSpec& tensor : expected) {
    wanted.emplace(tensor.name, &tensor.desc);
    const auto it = here.find(tensor.name);
    if (it == here.end()) {
      missing.push_back(shown(tensor.name));
    } else if (*it->second != tensor.desc) {
      differing.push_back(cat(shown(tensor.name), " is ", it->second->text(), ", expected ", tensor.desc.text()));
    }
  }
  for (const TensorSpec& tensor : found)
    if (!wanted.contains(tensor.name)) surplus.push_back(shown(tensor.name));
  std::string text;
  const auto part = [&](const char* title, const std::vector<std::string>& list) {
    if (!list.empty()) text += cat(text.empty() ? "" : "; ", title, listed(list));
  };
  part("missing tensors: ", missing);
  part("surplus tensors: ", surplus);
  part("tensors of another kind: ", differing);
  return text.empty() ? Status() : Status(Code::data, cat(where, ": ", text));
}

}  // namespace weft
