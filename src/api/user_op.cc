#include "api/user_op.h"

#include "api/handles.h"

namespace weft::api {

namespace {

constexpr size_t kMostInputs = 16;

weft_view to_view(const View& view) { return {view.data, from_desc(view.desc)}; }

Status failed(std::string_view what, int32_t code) {
  return code == 0 ? Status() : Status(Code::user, cat(what, " returned ", code));
}

}  // namespace

UserOp::~UserOp() {
  if (owns_payload_ && op_.destroy) op_.destroy(payload_);
}

Result<std::shared_ptr<UserOp>> make_user_op(const weft_op& op, void* payload) {
  WEFT_TRY(require(op.name, "op name"));
  WEFT_TRY(check_name(op.name, "op"));
  WEFT_TRY(
      require(reinterpret_cast<const void*>(op.shape), "shape").within(cat("op '", op.name, "'")));
  WEFT_TRY(require(reinterpret_cast<const void*>(op.forward), "forward")
               .within(cat("op '", op.name, "'")));
  return std::make_shared<UserOp>(op, payload);
}

Result<Inferred> UserOp::infer(const Attrs&, std::span<const Operand> in,
                               std::span<const Desc> weights) const {
  if (!weights.empty())
    return Status(Code::invalid, cat("takes no parameters, got ", weights.size()));
  if (in.empty() || in.size() > kMostInputs)
    return Status(Code::invalid, cat("takes 1 to ", kMostInputs, " inputs, got ", in.size()));
  std::vector<weft_desc> descs;
  for (const Operand& o : in) descs.push_back(from_desc(o.desc));
  weft_desc out = {};
  WEFT_TRY(failed("shape",
                  op_.shape(descs.data(), static_cast<uint32_t>(descs.size()), &out, payload_)));
  auto inner = to_desc(&out);
  if (!inner.ok()) return inner.status().within("shape's output");
  if (inner.value().dtype == DType::f64)
    return Status(Code::invalid, cat("shape's output is ", inner.value().text(),
                                     "; its dtype must be f32 or i32, f64 is for losses only"));
  return Inferred{inner.take(), {}, 0};
}

Cost UserOp::cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
                  const Desc& out) const {
  const double n = static_cast<double>(out.elements());
  return {n, n, 0};
}

Status UserOp::forward(const Call& call) const {
  weft_view in[kMostInputs];
  for (size_t i = 0; i < call.in.size(); ++i) in[i] = to_view(call.in[i]);
  weft_view out = to_view(call.out);
  return failed("forward", op_.forward(in, static_cast<uint32_t>(call.in.size()), &out, payload_));
}

Status UserOp::input_grad(const Call& call) const {
  weft_view in[kMostInputs], grad_in[kMostInputs];
  for (size_t i = 0; i < call.in.size(); ++i) {
    in[i] = to_view(call.in[i]);
    grad_in[i] = to_view(call.din[i]);
  }
  const weft_view out = to_view(call.out), grad_out = to_view(call.dout);
  return failed("backward", op_.backward(in, static_cast<uint32_t>(call.in.size()), &out, &grad_out,
                                         grad_in, payload_));
}

}  // namespace weft::api
