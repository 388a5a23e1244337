#include "base/status.h"

namespace weft {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid: return "invalid argument";
    case Code::no_memory: return "out of memory";
    case Code::state: return "wrong state";
    case Code::again: return "try again";
    case Code::canceled: return "canceled";
    case Code::timed_out: return "timed out";
    case Code::peer: return "peer lost";
    case Code::protocol: return "protocol violated";
    case Code::unsupported: return "not supported";
    case Code::not_found: return "not found";
    case Code::user: return "callback failed";
    case Code::internal: return "internal error";
    case Code::io: return "input or output failed";
    case Code::data: return "bad data";
  }
  return "unknown status";
}

Status Status::within(const std::string& prefix) const {
  return ok() ? Status() : Status(code_, prefix + ": " + text_);
}

}  // namespace weft
