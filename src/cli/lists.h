// Lists in text.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft::cli {

// Splits a list at its commas, or at another character. An empty list has no items.
std::vector<std::string> split(const std::string& list, char at = ',');
std::string joined(std::span<const std::string> items, const char* between = ", ");

}  // namespace weft::cli
