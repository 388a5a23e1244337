// The type behind weft_run.
#pragma once

#include <memory>
#include <vector>

#include "api/failure.h"
#include "api/handles.h"

// An output may have other owners besides its run. It becomes empty for them when its memory is
// freed.
struct EndLent {
  void operator()(weft_tensor* tensor) const {
    tensor->data = nullptr;
    tensor->desc = {weft::DType::f32, {0}};
    weft_tensor_unref(tensor);
  }
};

struct weft_run {
  std::unique_ptr<weft::Run> run;
  // Of the last polled event.
  std::vector<std::unique_ptr<weft_tensor, EndLent>> outputs;
  std::vector<weft_tensor*> output_pointers;
  std::vector<int32_t> output_edges;
  weft::Status status;
  weft_failure failure_fields;                  // of an error event
  std::shared_ptr<const weft::Origin> failure;  // the first failure of the run
  std::vector<double> idle_by_rank;
  std::string saved_path;
};

namespace weft::api {

// guard() for a call on a run: stores a failure of the run.
template <typename F>
weft_status guard_run(weft_run* run, weft_error* err, F&& body) noexcept {
  return guard(err, [&]() -> Status {
    const Status status = body();
    if (run && !run->failure) run->failure = status.origin();
    return status;
  });
}

}  // namespace weft::api
