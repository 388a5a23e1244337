// The process's one ZeroMQ context. It is made with the first transport and ends with the last: no thread outlives the runs, and
// no context ends while another of ours may be encrypting (with libsodium that can crash ZeroMQ 4.3.4; a host that uses CURVE in
// a context of its own shares the hazard).
#pragma once

#include "base/result.h"

namespace weft {

class ZmqContext {
 public:
  static Result<ZmqContext> acquire();
  ZmqContext(ZmqContext&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  ~ZmqContext();  // the last one waits for sockets that linger
  void* get() const { return context_; }

 private:
  explicit ZmqContext(void* context) : context_(context) {}
  void* context_;
};

}  // namespace weft
