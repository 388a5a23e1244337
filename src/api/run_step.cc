// A step in one call.
#include <cstring>
#include <span>

#include "api/run_handle.h"

using namespace weft;
using namespace weft::api;

namespace {

// Samples in the batch; 0 if no input tells.
int64_t samples_of(weft_tensor* const* inputs, uint32_t n_inputs) {
  for (uint32_t i = 0; i < n_inputs; ++i)
    if (inputs[i]) return inputs[i]->desc.shape[0];
  return 0;
}

// The caller's tensors for the outputs of a whole step.
class Outputs {
 public:
  Outputs(weft_tensor* const* tensors, uint32_t count, std::vector<size_t>& filled)
      : tensors_(tensors, count), filled_(filled) {}

  Status check(const weft_run& run, weft_step_mode mode, int64_t samples) const {
    if (tensors_.empty()) return {};
    const Model& model = *run.run->plan().whole;
    WEFT_TRY_ASSIGN(const Mode which, mode_of(mode));
    if (!run.run->plan().mode(which).present) return {};  // which refuses the step
    const size_t expected = run.output_edges[static_cast<size_t>(which)].size();
    if (tensors_.size() != expected)
      return Status(Code::invalid,
                    cat("n_outputs is ", tensors_.size(), ", expected ", expected,
                        expected ? "" : ": the plan delivers no outputs of such a step"));
    for (size_t i = 0; i < expected; ++i) {
      if (!tensors_[i]) continue;
      const NodeId node = model.outputs()[i];
      Desc wanted = model.whole_desc(node);
      wanted.shape[0] *= samples;
      if (tensors_[i]->lent || !(tensors_[i]->desc == wanted))
        return Status(Code::invalid,
                      cat("output '", model.node(node).name, "' of ", samples, " samples is ",
                          wanted.text(), ", the tensor ",
                          tensors_[i]->lent ? "is an output of a run" : tensors_[i]->desc.text()));
    }
    return {};
  }

  void begin() { filled_.assign(tensors_.size(), 0); }
  // The micro-batches come in ascending order.
  Status take(const weft_event& event) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i]) continue;
      const weft_tensor& from = *event.outputs[i];
      const size_t bytes = from.desc.bytes();
      if (bytes > tensors_[i]->desc.bytes() - filled_[i])
        return Status(Code::internal, cat("output ", i, " has more bytes than its tensor"));
      std::memcpy(static_cast<std::byte*>(tensors_[i]->data) + filled_[i], from.data, bytes);
      filled_[i] += bytes;
    }
    return {};
  }

 private:
  const std::span<weft_tensor* const> tensors_;
  std::vector<size_t>& filled_;  // bytes
};

// Polls to the final event also after a failure.
Status wait_for_step(weft_run& run, Outputs& outputs, double* loss) {
  Status status;
  while (const auto event = poll_run(run, -1)) {
    if (event->kind == WEFT_EVENT_MICRO_BATCH && event->n_outputs && status.ok())
      status = outputs.take(*event);
    if (event->kind == WEFT_EVENT_ERROR)
      return Status(static_cast<Code>(event->status), event->text ? event->text : "");
    if (event->kind != WEFT_EVENT_DONE) continue;
    if (loss && status.ok()) *loss = event->loss;
    return status;
  }
  return Status(Code::internal, "the step has no final event");
}

}  // namespace

weft_status weft_run_step(weft_run* run, weft_tensor* const* inputs, uint32_t n_inputs,
                          weft_step_mode mode, weft_tensor* const* outputs, uint32_t n_outputs,
                          double* loss, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    if (n_inputs) WEFT_TRY(require(inputs, "inputs"));
    if (n_outputs) WEFT_TRY(require(outputs, "outputs"));
    WEFT_TRY(require_settled(*run));
    Outputs out(outputs, n_outputs, run->filled);
    WEFT_TRY(out.check(*run, mode, samples_of(inputs, n_inputs)));
    WEFT_TRY(require_no_generator(run));
    out.begin();
    WEFT_TRY(submit_step(*run, {inputs, n_inputs}, mode, 0, {}));
    return wait_for_step(*run, out, loss);
  });
}
