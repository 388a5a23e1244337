#include "net/context.h"

#include <zmq.h>

#include <cerrno>
#include <mutex>

#include "base/text.h"
#include "loop/descriptors.h"

namespace weft {

namespace {

constinit std::mutex mutex;
constinit void* shared = nullptr;
constinit int users = 0;

// ZeroMQ ends the process where its own threads find no descriptor: they want half a dozen.
constexpr int kDescriptors = 8;

}  // namespace

Result<ZmqContext> ZmqContext::acquire() {
  const std::lock_guard lock(mutex);
  if (users == 0) {
    WEFT_TRY(spare_descriptors(kDescriptors, "ZeroMQ cannot be started"));
    shared = zmq_ctx_new();
    if (shared == nullptr) return Status(Code::no_memory, cat("ZeroMQ cannot be started: ", zmq_strerror(errno)));
    zmq_ctx_set(shared, ZMQ_BLOCKY, 0);
  }
  ++users;
  return ZmqContext(shared);
}

ZmqContext::~ZmqContext() {
  if (context_ == nullptr) return;
  const std::lock_guard lock(mutex);
  if (--users > 0) return;
  while (zmq_ctx_term(shared) != 0 && errno == EINTR) {}
  shared = nullptr;
}

}  // namespace weft
