// What a template may use, so that each one ends soon.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace weft::jinja {

// A template that is not valid, or takes too much.
[[gnu::cold]] Status fault(std::string_view text);

class Budget {
 public:
  Budget(uint64_t steps, uint64_t bytes) : steps_(steps), bytes_(bytes) {}

  // For each statement, expression and iteration.
  Status step() {
    if (steps_ == 0) return fault("the template takes too many steps");
    --steps_;
    return {};
  }
  // For each byte that is read or made.
  Status spend(uint64_t bytes) {
    if (bytes > bytes_) return fault("the template makes too much text");
    bytes_ -= bytes;
    return {};
  }

 private:
  uint64_t steps_;
  uint64_t bytes_;
};

}  // namespace weft::jinja
