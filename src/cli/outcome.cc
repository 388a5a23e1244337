#include "cli/outcome.h"

namespace weft::cli {

namespace {

Exit exit_of(weft_status status) {
  switch (status) {
    case WEFT_EINVAL:
    case WEFT_ENOENT:
    case WEFT_EDATA:
    case WEFT_ENOTSUP: return kBadInput;
    case WEFT_EPEER:
    case WEFT_EPROTO:
    case WEFT_ETIMEDOUT:
    case WEFT_ECANCELED: return kLost;
    case WEFT_ENOMEM: return kResource;
    default: return kFailed;
  }
}

}  // namespace

Outcome failed(weft_status status, const weft_error& err, const std::string& hint) {
  const bool told = err.text[0] != 0;
  return {exit_of(status), told ? err.text : weft_status_text(status), hint};
}

}  // namespace weft::cli
