// A connection that this process dials: one DEALER per lane, each connected to the listener's one
// endpoint.
#pragma once

#include <memory>
#include <string>

#include "net/channel.h"

namespace weft {

// `endpoint` as ZeroMQ wants it; errors name it. Without keys nothing is encrypted.
Result<std::unique_ptr<Connection>> dial(PollGroup& group, const std::string& endpoint, bool v6,
                                         const DialKeys* keys, bool shares_memory = false);

}  // namespace weft
