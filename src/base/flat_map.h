// A map in a sorted vector, for small keys that mostly arrive in ascending order: no allocation per
// entry, and quick to find in. An insertion invalidates references and iterators.
#pragma once

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace weft {

template <typename Key, typename Value>
class FlatMap {
 public:
  using Entry = std::pair<Key, Value>;
  using iterator = typename std::vector<Entry>::iterator;
  using const_iterator = typename std::vector<Entry>::const_iterator;

  iterator begin() { return entries_.begin(); }
  iterator end() { return entries_.end(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

  const_iterator find(const Key& key) const {
    const auto at = place(entries_.begin(), entries_.end(), key);
    return at != entries_.end() && at->first == key ? at : entries_.end();
  }
  iterator find(const Key& key) {
    return entries_.begin() + (std::as_const(*this).find(key) - entries_.cbegin());
  }
  bool contains(const Key& key) const { return find(key) != entries_.end(); }
  const Value& at(const Key& key) const {
    assert(contains(key));
    return find(key)->second;
  }

  Value& operator[](const Key& key) {
    if (entries_.empty() || entries_.back().first < key)
      return entries_.emplace_back(key, Value()).second;
    const auto at = place(entries_.begin(), entries_.end(), key);
    return at->first == key ? at->second : entries_.emplace(at, key, Value())->second;
  }

 private:
  template <typename Iterator>
  static Iterator place(Iterator begin, Iterator end, const Key& key) {
    return std::lower_bound(begin, end, key,
                            [](const Entry& entry, const Key& k) { return entry.first < k; });
  }

  std::vector<Entry> entries_;
};

}  // namespace weft
