// Check before each use of a library that ends the process if there is no free descriptor.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft {

// Whether the process can open this number of descriptors. `what` is the beginning of the error.
Status spare_descriptors(int count, const std::string& what);

// Reserves this number of descriptors, so that unknown clients cannot use all of them. release()
// frees them.
class HeldDescriptors {
 public:
  static Result<HeldDescriptors> hold(int count, const std::string& what);
  HeldDescriptors() = default;
  HeldDescriptors(HeldDescriptors&& other) noexcept { held_.swap(other.held_); }
  HeldDescriptors& operator=(HeldDescriptors&& other) noexcept {
    held_.swap(other.held_);
    return *this;
  }
  ~HeldDescriptors() { release(); }
  void release();

 private:
  std::vector<int> held_;
};

}  // namespace weft
