// Items that have a name, in the order in which they were added, and found by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace weft {

template <typename T>
class NamedList {
 public:
  // The number of the item.
  int32_t add(T item) {
    const auto id = static_cast<int32_t>(items_.size());
    // The name first: if the next line throws, find() ignores a name without an item.
    ids_.insert_or_assign(item.name, id);
    items_.push_back(std::move(item));
    return id;
  }

  int32_t find(std::string_view name) const {  // -1: none
    const auto it = ids_.find(name);
    if (it == ids_.end()) return -1;
    const auto id = static_cast<size_t>(it->second);
    return id < items_.size() && items_[id].name == name ? it->second : -1;
  }

  size_t size() const { return items_.size(); }
  T& operator[](size_t id) { return items_[id]; }
  const T& operator[](size_t id) const { return items_[id]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const std::vector<T>& items() const { return items_; }

 private:
  std::vector<T> items_;
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> ids_;
};

}  // namespace weft
