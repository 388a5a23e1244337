// The type behind weft_run.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
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
  ~weft_run() { end(); }
  // It is at most used by its owner, a generator and a mesh, each of which may be freed first.
  void end();
  void use(weft_mesh& with);  // before its start

  std::shared_ptr<const void> ops;  // of weft_run_join, which the run uses
  std::unique_ptr<weft::EventSource> source;
  weft::Run* run = nullptr;   // `source`; null: this process serves the run of another one
  weft_mesh* mesh = nullptr;  // of the run; null: none, or the run has ended
  // Of the last polled event.
  std::vector<std::unique_ptr<weft_tensor, EndLent>> outputs;
  std::vector<weft_tensor*> output_pointers;
  std::array<std::vector<int32_t>, weft::kModes> output_edges;
  std::vector<size_t> filled;  // by weft_run_step: bytes of each output
  weft::Status status;
  weft_failure failure_fields;                  // of an error event
  std::shared_ptr<const weft::Origin> failure;  // the first failure of the run
  std::vector<double> idle_by_rank;
  std::string saved_path, text, host;
  uint64_t weights_written = 0;  // number of calls that wrote weights
  weft_run** user = nullptr;     // of the generator that uses it: its pointer to this object
};

namespace weft::api {

Status read_run_config(const weft_run_config* config, weft_run_config& out);
LogSink log_sink(const weft_run_config& config);
Result<Mode> mode_of(weft_step_mode mode);
// Not ok after the mesh of the run was freed.
Status require_open(const weft_run* run);
// The same for calls that only rank 0 makes.
Status require_run(const weft_run* run);

// How the inputs of a forward step come: those of `fed` micro-batches exist when it begins, and
// Run::feed() says when others do. 0: all.
struct Feeding {
  int32_t fed = 0;
  bool short_all = false;  // all micro-batches have the plan's short size
};
// weft_run_submit(), which has the inputs of the whole step.
Status submit_step(weft_run& run, std::span<weft_tensor* const> inputs, weft_step_mode mode,
                   uint64_t tag, const Feeding& feeding);

// The next event, if one arrives within the time; its `size` is 0.
std::optional<weft_event> poll_run(weft_run& run, int64_t timeout_ns);
// Ok between steps.
Status require_settled(const weft_run& run);
// Only the generator of a run submits steps to it and polls it.
Status require_no_generator(const weft_run* run);

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
