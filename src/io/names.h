// Names of tensors and files that come from outside: which are allowed, and whether two lists
// agree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace weft {

struct TensorSpec {
  std::string name;
  Desc desc;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// "a, b, c", and of a longer list how many more.
std::string listed(const std::vector<std::string>& items);

// A file name that stays in its directory: letters, digits, '.', '_', '-', not starting with a dot.
bool plain_file_name(std::string_view name);

// 1 to 512 bytes of UTF-8 without NUL, and not the name that safetensors keeps for itself.
Status check_tensor_name(std::string_view name);

// The same names, each with the same dtype and shape, in any order. Otherwise a failure that counts
// what is missing, what is surplus and what differs, with the first names of each.
Status compare_tensors(const std::string& where, const std::vector<TensorSpec>& expected,
                       const std::vector<TensorSpec>& found);

}  // namespace weft
