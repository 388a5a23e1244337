// Runs in one call: a step, and an export of the parameters.
#include "api/run_handle.h"
#include "io/checkpoint_names.h"
#include "io/safetensors.h"

using namespace weft;
using namespace weft::api;

namespace {

Status wait_for_step(weft_run& run, double* loss) {
  weft_event event = {};
  event.size = sizeof event;
  for (;;) {
    const weft_status got = weft_run_poll(&run, &event, -1);
    if (got < 0) return Status(static_cast<Code>(got), "the run cannot be polled");
    if (got == 0) return Status(Code::internal, "the step has no final event");
    if (event.kind == WEFT_EVENT_ERROR)
      return Status(static_cast<Code>(event.status), event.text ? event.text : "");
    if (event.kind != WEFT_EVENT_DONE) continue;
    if (loss) *loss = event.loss;
    return {};
  }
}

}  // namespace

weft_status weft_run_step(weft_run* run, weft_tensor* const* inputs, uint32_t n_inputs,
                          weft_step_mode mode, double* loss, weft_error* err) {
  const weft_status ready = guard(err, [&]() -> Status {
    WEFT_TRY(require(run, "run"));
    return run->run->settled();
  });
  if (ready < 0) return ready;
  const weft_status submitted = weft_run_submit(run, inputs, n_inputs, mode, 0, err);
  if (submitted < 0) return submitted;
  return guard(err, [&] { return wait_for_step(*run, loss); });
}

weft_status weft_run_export(weft_run* run, const char* path, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require(run, "run"));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(run->run->settled());
    WEFT_TRY(check_outside_checkpoints(path));
    const Model& model = *run->run->plan().whole;
    std::vector<TensorSpec> specs;
    for (const Param& p : model.params()) specs.push_back({p.name, {DType::f32, p.shape}});
    WEFT_TRY_ASSIGN(SafetensorsWriter writer,
                    SafetensorsWriter::create(path, specs, {{"format", "pt"}}));
    std::vector<float> values;
    for (const SafetensorsEntry& entry : writer.order()) {
      const ParamId id = model.find_param(entry.name);
      values.resize(static_cast<size_t>(model.param(id).shape.elements()));
      WEFT_TRY(run->run->read(id, Part::value, values));
      WEFT_TRY(writer.write(entry.name, std::as_bytes(std::span(values))));
    }
    return writer.finish().status();
  });
}
