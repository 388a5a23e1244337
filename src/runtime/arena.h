// One block of memory for all tensors of a rank, as large as its plan says, zeroed and aligned to a
// page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace weft {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  static Result<Arena> make(int64_t bytes);
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Result<int64_t> resident() const;  // bytes that are in physical memory

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace weft
