// A library that ends the process where it finds no descriptor is asked for nothing before this has
// looked.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft {

// Whether the process may open that many descriptors now. `what` begins the text of the failure.
Status spare_descriptors(int count, const std::string& what);

// Holds that many descriptors, so that strangers who connect cannot take them all. They are free
// again after release().
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
