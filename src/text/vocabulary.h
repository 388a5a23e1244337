// The tokens of a tokenizer and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

class Vocabulary {
 public:
  static constexpr uint64_t kMostIds = uint64_t{1} << 31;

  // Fails for a token or id that it has already.
  Status add(std::string token, uint64_t id);
  std::optional<uint32_t> id(std::string_view token) const;
  const std::string* token(uint32_t id) const;  // null if there is none
  size_t size() const { return ids_.size(); }
  uint32_t end() const { return end_; }  // all ids are smaller

 private:
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> ids_;
  std::unordered_map<uint32_t, const std::string*> tokens_;
  uint32_t end_ = 0;
};

}  // namespace weft
