#include "net/context.h"

#include <zmq.h>

#include <cerrno>

#include "base/text.h"
#include "loop/descriptors.h"
#include "loop/thread.h"

namespace weft {

namespace {

// ZeroMQ ends the process if its threads find no free descriptor; they need about six.
constexpr int kDescriptors = 8;
// And if they cannot be started: one for the sockets, one to close them.
constexpr int kThreads = 2;
constexpr const char* kNotStarted = "ZeroMQ cannot be started";

}  // namespace

Result<ZmqContext> ZmqContext::make() {
  WEFT_TRY(spare_descriptors(kDescriptors, kNotStarted));
  WEFT_TRY(spare_threads(kThreads, kNotStarted));
  void* context = zmq_ctx_new();
  if (context == nullptr) return system_failure(kNotStarted, errno);
  ZmqContext out(context);
  zmq_ctx_set(context, ZMQ_BLOCKY, 0);
  // The first socket starts the threads, while the descriptors are free.
  void* const first = zmq_socket(context, ZMQ_PAIR);
  if (first == nullptr) return system_failure(kNotStarted, errno);
  zmq_close(first);
  return out;
}

ZmqContext::~ZmqContext() {
  if (context_ == nullptr) return;
  while (zmq_ctx_term(context_) != 0 && errno == EINTR) {}
}

}  // namespace weft
