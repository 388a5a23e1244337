#include "cli/stored_options.h"

#include "cli/utf8.h"

namespace weft::cli {

std::vector<std::pair<std::string, std::string>> StoredOptions::texts() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Row& row : rows_) out.emplace_back(row.name, value_text(row.value));
  return out;
}

Outcome StoredOptions::check_storable() const {
  for (const auto& [name, text] : texts())
    if (!is_utf8(text))
      return {kBadInput,
              "--" + name + ": '" + text + "' is not UTF-8, so no checkpoint can store it",
              "another name for the file, such as that of a link to it, avoids this"};
  return {};
}

bool StoredOptions::given(const std::string& name) const {
  for (const Row& row : rows_)
    if (row.name == name) return row.option.given();
  return false;
}

Outcome StoredOptions::check_not_combined(const std::vector<std::string>& names,
                                          const std::string& other) const {
  for (const std::string& name : names)
    if (given(name)) return not_combined("--" + name, other);
  return {};
}

Outcome StoredOptions::check_no_resets() const {
  for (const Row& row : rows_)
    if (row.option.given() && value_text(row.value).empty())
      return {kUsage, "--" + row.name + ": its value is missing", ""};
  return {};
}

Outcome StoredOptions::restore(const std::vector<std::pair<std::string, std::string>>& texts) {
  for (const auto& [name, text] : texts)
    for (const Row& row : rows_)
      if (row.name == name && !row.option.given() && !read_value(text, row.value))
        return {kBadInput,
                "the checkpoint's --" + name + " is '" + text + "', which cannot be read", ""};
  return {};
}

}  // namespace weft::cli
