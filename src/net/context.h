// The ZeroMQ context of a transport. ZeroMQ authenticates per context: with one context each,
// meshes have different allowed keys, and other users of ZeroMQ in the process are not affected.
// Its threads end with the transport.
#pragma once

#include "base/result.h"

namespace weft {

class ZmqContext {
 public:
  static Result<ZmqContext> make();
  ZmqContext(ZmqContext&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  ~ZmqContext();  // waits for sockets that linger
  void* get() const { return context_; }

 private:
  explicit ZmqContext(void* context) : context_(context) {}
  void* context_;
};

}  // namespace weft
