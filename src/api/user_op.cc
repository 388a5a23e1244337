#include "api/user_op.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "api/failure.h"
#include "kernels/elementwise.h"
#include "kernels/fpenv.h"
#include "kernels/ranges.h"
#include "ops/dropout.h"

namespace weft::api {

namespace {

constexpr size_t kMostOperands = 16;  // inputs, and parameters

weft_view to_view(const View& view) { return {view.data, from_desc(view.desc)}; }

// Of the numbers that dropout would draw at the node. Pieces of a value have seeds of their own.
uint64_t seed_of(const Call& call) {
  const auto piece = static_cast<uint64_t>(call.attrs->section.begin);
  const Philox words = dropout_stream(call.key).draw(piece);
  return uint64_t{words[1]} << 32 | words[0];
}

// What a callback is given, and what becomes of its result.
class Frame {
 public:
  Frame(size_t n_inputs, size_t n_params, void* payload) {
    err.size = sizeof err;
    call.size = sizeof call;
    call.n_inputs = static_cast<uint32_t>(n_inputs);
    call.n_params = static_cast<uint32_t>(n_params);
    call.inputs = inputs.data();
    call.params = params.data();
    call.payload = payload;
    call.err = &err;
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // A call with the tensors that it reads.
  Frame(const Call& from, const Uses& uses, void* payload)
      : Frame(from.in.size(), from.weights.size(), payload) {
    for (size_t i = 0; i < from.in.size(); ++i)
      inputs[i] = shown(from.in[i], (uses.in >> i & 1) != 0);
    for (size_t i = 0; i < from.weights.size(); ++i)
      params[i] = shown(from.weights[i], uses.weights);
    call.output = shown(from.out, uses.out);
    if (!from.stash.empty()) call.stash = shown(from.stash.front(), uses.stash);
    if (from.dout) call.grad_output = to_view(from.dout);
    call.training = from.training;
    call.seed = seed_of(from);
  }

  Status result(std::string_view what, int32_t code) { return result_of(what, code, err); }

  std::array<weft_view, kMostOperands> inputs, params, gradients;
  weft_error err = {};
  weft_op_call call = {};

 private:
  static weft_view shown(const View& view, bool used) {
    weft_view out = to_view(view);
    if (!used) out.data = nullptr;
    return out;
  }
};

constexpr Uses kEverything = {.in = ~0u, .out = true, .stash = true, .weights = true};

Status check_counts(size_t inputs, size_t params) {
  if (inputs < 1 || inputs > kMostOperands)
    return Status(Code::invalid, cat("takes 1 to ", kMostOperands, " inputs, got ", inputs));
  if (params > kMostOperands)
    return Status(Code::invalid, cat("takes at most ", kMostOperands, " parameters, got ", params));
  return {};
}

// What `shape` has made.
Result<Desc> made(const weft_desc& desc, const char* what) {
  WEFT_TRY_ASSIGN(const Desc out, to_desc(&desc).within(cat("shape's ", what)));
  if (out.dtype != DType::f64) return out;
  return Status(Code::invalid, cat("shape's ", what, " is ", out.text(),
                                   "; its dtype must be f32 or i32, f64 is for losses only"));
}

}  // namespace

UserOp::~UserOp() {
  if (owns_payload_ && op_.destroy) op_.destroy(payload_);
}

Result<std::shared_ptr<UserOp>> make_user_op(const weft_op& op, void* payload) {
  WEFT_TRY(require(op.name, "op name"));
  WEFT_TRY(check_name(op.name, "op"));
  const std::string where = cat("op '", op.name, "'");
  WEFT_TRY(require(reinterpret_cast<const void*>(op.shape), "shape").within(where));
  WEFT_TRY(require(reinterpret_cast<const void*>(op.forward), "forward").within(where));
  for (const auto& [name, reads] : {std::pair("backward_reads", op.backward_reads),
                                    std::pair("backward_params_reads", op.backward_params_reads)})
    if (const uint32_t unknown = reads & ~uint32_t{WEFT_OP_READS_ALL})
      return Status(Code::invalid, cat(where, ": ", name, " has the unknown bits ", unknown));
  return std::make_shared<UserOp>(op, payload);
}

Uses UserOp::uses(uint32_t reads) {
  return {.in = reads & WEFT_OP_READS_INPUTS ? ~0u : 0,
          .out = (reads & WEFT_OP_READS_OUTPUT) != 0,
          .stash = (reads & WEFT_OP_READS_STASH) != 0,
          .weights = (reads & WEFT_OP_READS_PARAMS) != 0};
}

Result<Inferred> UserOp::infer(const Attrs&, std::span<const Operand> in,
                               std::span<const Desc> weights) const {
  WEFT_TRY(check_counts(in.size(), weights.size()));
  Frame frame(in.size(), weights.size(), payload_);
  std::vector<Desc> inputs;
  for (size_t i = 0; i < in.size(); ++i) {
    inputs.push_back(in[i].desc);
    frame.inputs[i] = to_view({nullptr, in[i].desc});
  }
  for (size_t i = 0; i < weights.size(); ++i) frame.params[i] = to_view({nullptr, weights[i]});
  if (Status status = frame.result("shape", op_.shape(&frame.call)); !status.ok())
    return Status(status.code(), cat(status.text(), " (inputs: ", texts_of(inputs),
                                     "; parameters: ", texts_of(weights), ")"));
  Inferred out;
  WEFT_TRY_ASSIGN(out.out, made(frame.call.output.desc, "output"));
  if (const weft_desc& stash = frame.call.stash.desc; stash.dtype != 0 || stash.n_dims != 0) {
    out.stash.resize(1);
    WEFT_TRY_ASSIGN(out.stash.front(), made(stash, "stash"));
  }
  if (trains_weights())  // for one gradient
    for (const Desc& weight : weights) out.scratch = std::max(out.scratch, weight.bytes());
  return out;
}

// The work of callbacks is unknown, so this is a low estimate.
Cost UserOp::cost(const Attrs&, std::span<const Desc>, std::span<const Desc> weights,
                  const Desc& out) const {
  const double n = static_cast<double>(out.elements());
  return {n, n, weights.empty() ? 0 : n};
}

namespace {

// A callback may change how its thread rounds; weft's own computation goes on as before.
int called(int (*callback)(const weft_op_call*), const weft_op_call& call) {
  const ComputeScope scope;
  return callback(&call);
}

}  // namespace

Status UserOp::forward(const Call& call) const {
  Frame frame(call, kEverything, payload_);
  return frame.result("forward", called(op_.forward, frame.call));
}

// Gradients hold zeros before a callback runs, so that one that adds, and one that leaves elements
// out, are right as well.
Status UserOp::input_grad(const Call& call) const {
  Frame frame(call, uses_input(*call.attrs), payload_);
  for (size_t i = 0; i < call.din.size(); ++i) {
    frame.gradients[i] = to_view(call.din[i]);
    if (call.din[i]) std::memset(call.din[i].data, 0, call.din[i].desc.bytes());
  }
  frame.call.grad_inputs = frame.gradients.data();
  return frame.result("backward", called(op_.backward, frame.call));
}

// Into scratch memory, as a callback that wrote to the accumulator would be right with one
// micro-batch only.
Status UserOp::weight_grad(const Call& call) const {
  Frame frame(call, uses_weight(*call.attrs), payload_);
  for (size_t i = 0; i < call.weights.size(); ++i)
    frame.gradients[i] = to_view({nullptr, call.weights[i].desc});
  auto* gradient = static_cast<float*>(call.scratch);
  std::memset(gradient, 0, call.acc.desc.bytes());
  frame.gradients[static_cast<size_t>(call.weight)].data = gradient;
  frame.call.grad_params = frame.gradients.data();
  WEFT_TRY(frame.result("backward_params", called(op_.backward_params, frame.call)));
  for_ranges(*call.tiles, call.acc.desc.elements(), kTileElements, [&](int64_t begin, int64_t end) {
    float* acc = call.acc.f32() + begin;
    kernels::add(acc, gradient + begin, acc, end - begin);
  });
  return {};
}

}  // namespace weft::api
