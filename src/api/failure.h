// The data of a failure, as callers see it.
#pragma once

#include "api/handles.h"
#include "base/origin.h"

namespace weft::api {

// If a run has failed without an Origin, the status is converted. The result refers to `origin`.
Origin origin_of(const Status& status);
weft_failure failure_of(const Origin& origin);

// Of a callback of the caller, which returned `code` and may have written the reason to `err`.
Status result_of(std::string_view callback, int32_t code, weft_error& err);

}  // namespace weft::api
