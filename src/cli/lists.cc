#include "cli/lists.h"

#include <algorithm>

namespace weft::cli {

std::vector<std::string> split(const std::string& list, char at) {
  std::vector<std::string> out;
  for (size_t begin = 0; !list.empty() && begin <= list.size();) {
    const size_t end = std::min(list.find(at, begin), list.size());
    out.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string joined(std::span<const std::string> items, const char* between) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : between) + item;
  return out;
}

}  // namespace weft::cli
