// What stands behind weft_run.
#pragma once

#include <memory>
#include <vector>

#include "api/failure.h"
#include "api/handles.h"

// An output may have owners beside its run. For them it is empty when the memory that it showed is
// gone.
struct EndLent {
  void operator()(weft_tensor* tensor) const {
    tensor->data = nullptr;
    tensor->desc = {weft::DType::f32, {0}};
    weft_tensor_unref(tensor);
  }
};

struct weft_run {
  std::unique_ptr<weft::Run> run;
  // Of the event polled last.
  std::vector<std::unique_ptr<weft_tensor, EndLent>> outputs;
  std::vector<weft_tensor*> output_pointers;
  std::vector<int32_t> output_edges;
  weft::Status status;
  weft_failure failure_fields;                  // of an error event
  std::shared_ptr<const weft::Origin> failure;  // the first; it stays
  std::vector<double> idle_by_rank;
  std::string saved_path;
};

namespace weft::api {

// guard() for a call on a run: a failure of the run is remembered.
template <typename F>
weft_status guard_run(weft_run* run, weft_error* err, F&& body) noexcept {
  return guard(err, [&]() -> Status {
    const Status status = body();
    if (run && !run->failure) run->failure = status.origin();
    return status;
  });
}

}  // namespace weft::api
