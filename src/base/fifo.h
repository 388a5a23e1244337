// A queue: first in, first out. It keeps its memory, and allocates only when it grows.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft {

template <typename T>
class Fifo {
 public:
  // `capacity`: the number of items that it can have without an allocation.
  explicit Fifo(size_t capacity = 0) : slots_(std::bit_ceil(capacity)) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // The oldest item has the index 0.
  T& operator[](size_t i) { return slots_[slot_of(i)]; }
  const T& operator[](size_t i) const { return slots_[slot_of(i)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }

  void push(T item) {
    if (size_ == slots_.size()) grow();
    slots_[slot_of(size_)] = std::move(item);
    ++size_;
  }
  T pop() {
    assert(size_ > 0);
    T item = std::move(front());
    head_ = slot_of(1);
    --size_;
    return item;
  }
  // Removes the items for which `is` is true; the others keep their order.
  template <typename F>
  void remove(F&& is) {
    for (size_t left = size_; left > 0; --left)
      if (T item = pop(); !is(item)) push(std::move(item));
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  size_t slot_of(size_t i) const { return (head_ + i) & (slots_.size() - 1); }
  void grow() {
    std::vector<T> more(2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) more[i] = std::move((*this)[i]);
    slots_ = std::move(more);
    head_ = 0;
  }

  std::vector<T> slots_;  // a power of two
  size_t head_ = 0, size_ = 0;
};

}  // namespace weft
