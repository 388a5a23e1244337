// An op of the caller for the tests of such ops.
#pragma once

#include <atomic>

#include "api/api.h"

// y = x * x, as the built-in `mul` of a value with itself. Callbacks may run on several threads at
// once.
struct Square {
  int fail_forward_at = -1, fail_backward_at = -1;  // number of the call
  std::atomic<int> forwards{0}, backwards{0}, destroyed{0};

  static Square& of(void* payload) { return *static_cast<Square*>(payload); }
  static int32_t shape(weft_op_call* call) {
    if (call->n_inputs != 1) return 5;
    call->output.desc = call->inputs[0].desc;
    return 0;
  }
  static int32_t forward(const weft_op_call* call) {
    Square& own = of(call->payload);
    const int number = own.forwards++;
    own.forwards.notify_all();
    if (number == own.fail_forward_at) return 7;
    const float* x = static_cast<const float*>(call->inputs[0].data);
    float* y = static_cast<float*>(call->output.data);
    for (int64_t i = 0; i < elements(call->output.desc); ++i) y[i] = x[i] * x[i];
    return 0;
  }
  static int32_t backward(const weft_op_call* call) {
    if (of(call->payload).backwards++ == of(call->payload).fail_backward_at) return -3;
    const float *x = static_cast<const float*>(call->inputs[0].data),
                *y = static_cast<const float*>(call->output.data),
                *dy = static_cast<const float*>(call->grad_output.data);
    float* dx = static_cast<float*>(call->grad_inputs[0].data);
    if (!dx) return 0;
    for (int64_t i = 0; i < elements(call->output.desc); ++i) {
      if (y[i] != x[i] * x[i]) return 9;  // what forward read and wrote is still there
      dx[i] = dy[i] * x[i] + dy[i] * x[i];
    }
    return 0;
  }
  static void destroy(void* payload) { ++of(payload).destroyed; }
};

inline weft_op square_op() {
  weft_op op = defaults(weft_op_init);
  op.name = "square";
  op.shape = Square::shape;
  op.forward = Square::forward;
  op.backward = Square::backward;
  op.destroy = Square::destroy;
  return op;
}

// x [6] -> 8, squared -> 3. Squared by the caller's op, or, if there is none, by the built-in one.
inline ModelPtr squaring_model(Square* square, uint32_t flags = 0, weft_op op = square_op()) {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6}, flags), y = add_input(model, "y", {1, 3});
  weft_value h = add_linear(model, "a", x, 8);
  if (square) {
    Error err;
    EXPECT_EQ(weft_model_add_op(model.get(), &op, square, &err), WEFT_OK) << err.text;
    h = add_node(model, "square", {h}, "squares");
  } else {
    h = add_node(model, "mul", {h, h}, "squares");
  }
  EXPECT_EQ(weft_model_add_output(model.get(), h, nullptr), WEFT_OK);
  add_node(model, "mse", {add_linear(model, "b", h, 3), y});
  return model;
}
