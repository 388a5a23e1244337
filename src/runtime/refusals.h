// Refused connections at an address: their number, and a description of the last one. Written on
// the loop thread, read on any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/text.h"

namespace weft {

class Refusals {
 public:
  void add(const std::string& peer, const std::string& why) {
    const std::lock_guard lock(mutex_);
    ++count_;
    last_ = printable(cat("a connection", peer.empty() ? "" : " from ", peer, ": ", why));
  }
  uint64_t read(std::string& last) const {
    const std::lock_guard lock(mutex_);
    last = last_;
    return count_;
  }

 private:
  mutable std::mutex mutex_;
  uint64_t count_ = 0;
  std::string last_;
};

}  // namespace weft
