// A ZeroMQ context of a transport's own. ZeroMQ authenticates by context: with one each, a mesh
// admits whom it knows and no other mesh, and a host that encrypts with ZeroMQ itself has nothing
// to do with it. No thread of it outlives the transport.
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
