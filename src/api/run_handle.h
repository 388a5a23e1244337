// What stands behind weft_run.
#pragma once

#include <memory>
#include <vector>

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
  std::vector<double> idle_by_rank;
  std::string saved_path;
};
