#include "net/context.h"

#include <zmq.h>

#include <cerrno>

#include "base/text.h"
#include "loop/descriptors.h"

namespace weft {

namespace {

// ZeroMQ ends the process if its threads find no free descriptor; they need about six.
constexpr int kDescriptors = 8;

}  // namespace

Result<ZmqContext> ZmqContext::make() {
  WEFT_TRY(spare_descriptors(kDescriptors, "ZeroMQ cannot be started"));
  void* context = zmq_ctx_new();
  if (context == nullptr)
    return Status(Code::no_memory, cat("ZeroMQ cannot be started: ", zmq_strerror(errno)));
  zmq_ctx_set(context, ZMQ_BLOCKY, 0);
  return ZmqContext(context);
}

ZmqContext::~ZmqContext() {
  if (context_ == nullptr) return;
  while (zmq_ctx_term(context_) != 0 && errno == EINTR) {}
}

}  // namespace weft
