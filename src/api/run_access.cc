// The parameters of a run and their tensors, between steps: read, written, hashed and exported.
#include <cstring>
#include <span>

#include "api/run_handle.h"
#include "io/checkpoint_names.h"
#include "io/safetensors.h"
#include "runtime/optimizer_state.h"

using namespace weft;
using namespace weft::api;

namespace {

// The name of the optimizer's tensor (optim/optim.h), or "".
std::string_view state_name(weft_part part) {
  switch (part) {
    case WEFT_MOMENTUM: return "momentum";
    case WEFT_EXP_AVG: return "exp_avg";
    case WEFT_EXP_AVG_SQ: return "exp_avg_sq";
    default: return "";
  }
}

Status check_trains(const Plan& plan) {
  if (plan.mode(Mode::train).present) return {};
  return Status(Code::not_found, cat(supports(*plan.model, Mode::train)
                                         ? "the plan was made without WEFT_STEPS_TRAIN"
                                         : "the model has no loss",
                                     ", so its run has neither gradients nor optimizer state"));
}

Result<Part> part_of(const Plan& plan, weft_part part) {
  if (part == WEFT_VALUE) return Part::value;
  const std::string_view state = state_name(part);
  if (part != WEFT_GRAD && state.empty())
    return Status(Code::invalid, cat("part is ", uint32_t{part},
                                     ", expected WEFT_VALUE, WEFT_GRAD, WEFT_MOMENTUM, "
                                     "WEFT_EXP_AVG or WEFT_EXP_AVG_SQ"));
  WEFT_TRY(check_trains(plan));
  if (part == WEFT_GRAD) return Part::grad;
  for (int slot = 0; slot < state_slots(plan); ++slot)
    if (slot_name(plan.config.optim, slot) == state) return state_part(slot);
  return Status(Code::invalid,
                cat("a parameter has no ", state, " in this run, whose optimizer is ",
                    rule_name(plan.config.optim.rule)));
}

// The named parameter, and the floats of a tensor of its shape.
struct Access {
  ParamId param;
  Part part;
  std::span<float> floats;
};

Result<Access> access(const weft_run& run, const char* name, weft_part part,
                      const weft_tensor& tensor) {
  const Plan& plan = run.run->plan();
  const ParamId id = plan.whole->find_param(name);
  if (id < 0) return Status(Code::not_found, cat("the model has no parameter '", name, "'"));
  WEFT_TRY_ASSIGN(const Part inner, part_of(plan, part));
  const Param& param = plan.whole->param(id);
  if (inner != Part::value && param.training.frozen)
    return Status(
        Code::not_found,
        cat("parameter '", name, "' is ",
            param.training.off_loss ? "one that the loss does not depend on" : "frozen in this run",
            ", and has neither a gradient nor optimizer state"));
  if (inner != Part::value && inner != Part::grad && !param.has_gradient())
    return Status(Code::not_found, cat("parameter '", name, "' is a moving average, and has no ",
                                       "optimizer state"));
  const Desc expected{DType::f32, param.shape};
  if (!(tensor.desc == expected))
    return Status(Code::invalid, cat("parameter '", name, "' is ", expected.text(), ", the tensor ",
                                     tensor.desc.text()));
  return Access{
      id, inner, {static_cast<float*>(tensor.data), static_cast<size_t>(expected.elements())}};
}

Status read_input_grad(weft_run& run, NodeId input, weft_tensor& tensor) {
  WEFT_TRY(check_trains(run.run->plan()));
  WEFT_TRY(run.run->check_input_grad(input));
  Desc expected = run.run->plan().model->node(input).one.out;
  const Desc& found = tensor.desc;
  if (found.shape.rank > 0) expected.shape[0] = found.shape[0];  // samples
  if (!(found == expected))
    return Status(Code::invalid, cat("gradient of input '", run.run->plan().model->node(input).name,
                                     "' is ", expected.text(), ", the tensor ", found.text()));
  return run.run->read_input_grad(
      input, {static_cast<float*>(tensor.data), static_cast<size_t>(found.elements())});
}

weft_status digest_of(weft_run* run, char digest[33], Result<Digest> (Run::*of)(),
                      weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(digest, "digest"));
    WEFT_TRY(require_settled(*run));
    WEFT_TRY_ASSIGN(const Digest value, (run->run->*of)());
    std::memcpy(digest, value.hex().c_str(), 33);
    return {};
  });
}

}  // namespace

weft_status weft_run_read(weft_run* run, const char* name, weft_part part, weft_tensor* tensor,
                          weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(name, "name"));
    WEFT_TRY(require(tensor, "tensor"));
    WEFT_TRY(require_settled(*run));
    const Model& model = *run->run->plan().model;
    const NodeId node = model.find_node(name);
    const bool is_param = run->run->plan().whole->find_param(name) >= 0;
    if (part == WEFT_GRAD && !is_param && node >= 0 && model.node(node).is_input())
      return read_input_grad(*run, node, *tensor);
    WEFT_TRY_ASSIGN(const Access a, access(*run, name, part, *tensor));
    return run->run->read(a.param, a.part, a.floats);
  });
}

weft_status weft_run_write(weft_run* run, const char* name, weft_part part,
                           const weft_tensor* tensor, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(name, "name"));
    WEFT_TRY(require(tensor, "tensor"));
    WEFT_TRY(require_settled(*run));
    if (part == WEFT_GRAD)
      return Status(Code::invalid,
                    "part is WEFT_GRAD, which can only be read: each step with a backward pass "
                    "computes gradients of its own, and no step uses others");
    WEFT_TRY_ASSIGN(const Access a, access(*run, name, part, *tensor));
    ++run->weights_written;
    return run->run->write(a.param, a.part, a.floats);
  });
}

weft_status weft_run_digest(weft_run* run, char digest[33], weft_error* err) {
  return digest_of(run, digest, &Run::digest, err);
}

weft_status weft_run_optimizer_digest(weft_run* run, char digest[33], weft_error* err) {
  return digest_of(run, digest, &Run::optimizer_digest, err);
}

weft_status weft_run_export(weft_run* run, const char* path, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require_settled(*run));
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
