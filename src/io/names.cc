#include "io/names.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace weft {

std::string listed(const std::vector<std::string>& items) {
  constexpr size_t kShown = 3;
  std::string out;
  for (size_t i = 0; i < items.size() && i < kShown; ++i) out += cat(i ? ", " : "", items[i]);
  return items.size() > kShown ? cat(out, " and ", items.size() - kShown, " more") : out;
}

bool plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

Status check_tensor_name(std::string_view name) {
  constexpr size_t kLongest = 512;
  if (name.empty()) return Status(Code::invalid, "tensor name is empty");
  if (name.size() > kLongest)
    return Status(Code::invalid, cat("tensor name ", shown(name), " has ", name.size(),
                                     " bytes, expected at most ", kLongest));
  if (name.find('\0') != name.npos)
    return Status(Code::invalid, cat("tensor name ", shown(name), " contains a NUL"));
  if (!valid_utf8(name))
    return Status(Code::invalid, cat("tensor name ", shown(name), " is not UTF-8"));
  if (name == "__metadata__")
    return Status(Code::invalid, "tensor name '__metadata__' is reserved for metadata");
  return {};
}

Status compare_tensors(const std::string& where, const std::vector<TensorSpec>& expected,
                       const std::vector<TensorSpec>& found) {
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
      differing.push_back(
          cat(shown(tensor.name), " is ", it->second->text(), ", expected ", tensor.desc.text()));
    }
  }
  for (const TensorSpec& tensor : found)
    if (!wanted.contains(tensor.name)) surplus.push_back(shown(tensor.name));
  std::string text;
  const auto part = [&](const char* before, const std::vector<std::string>& list,
                        const char* behind) {
    if (list.empty()) return;
    text += cat(text.empty() ? "" : "; ", list.size(), before,
                list.size() == 1 ? "tensor" : "tensors", behind, ": ", listed(list));
  };
  part(" missing ", missing, "");
  part(" surplus ", surplus, "");
  part(" ", differing, " of another kind");
  return text.empty() ? Status() : Status(Code::data, cat(where, ": ", text));
}

}  // namespace weft
