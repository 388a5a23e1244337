// A queue of fixed size; it allocates once.
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft {

template <typename T>
class RingQueue {
 public:
  explicit RingQueue(size_t capacity) : items_(capacity) {}
  bool empty() const { return size_ == 0; }
  void push(T item) {
    assert(size_ < items_.size());
    items_[(head_ + size_++) % items_.size()] = std::move(item);
  }
  const T& front() const { return items_[head_]; }
  T pop() {
    assert(size_ > 0);
    T item = std::move(items_[head_]);
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }
  // Removes the items for which `is` is true; the others keep their order.
  template <typename F>
  void remove(F&& is) {
    for (size_t left = size_; left > 0; --left)
      if (T item = pop(); !is(item)) push(std::move(item));
  }

 private:
  std::vector<T> items_;
  size_t head_ = 0, size_ = 0;
};

}  // namespace weft
