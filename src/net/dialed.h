// A connection that this process dials: one DEALER per lane, both connected to the endpoint of the
// listener.
#pragma once

#include <memory>
#include <string>

#include "net/channel.h"

namespace weft {

// `endpoint` in the form of ZeroMQ; errors contain it. Without keys there is no encryption.
Result<std::unique_ptr<Connection>> dial(PollGroup& group, const std::string& endpoint, bool v6,
                                         const DialKeys* keys, bool shares_memory = false);

}  // namespace weft
