// The facts of a failure, as callers see them.
#pragma once

#include "api/handles.h"
#include "base/origin.h"

namespace weft::api {

// A run that failed without facts has those of its status. The result refers to `origin`.
Origin origin_of(const Status& status);
weft_failure failure_of(const Origin& origin);

}  // namespace weft::api
