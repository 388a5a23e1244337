// A user op with parameters and a stash: y = x + (x A) B for x [n, width], A [width, rank] and
// B [rank, width]. The stash is x A. Only <weft.h> is known here.
#pragma once

#include <weft.h>

#include <cstdio>

#include "support/config.h"

struct LowRank {
  // The sizes and the operands of a call.
  struct Operands {
    int64_t n, width, rank;
    const float *x, *a, *b, *dy;
    float *y, *h;

    explicit Operands(const weft_op_call* call)
        : n(call->output.desc.dims[0]),
          width(call->output.desc.dims[1]),
          rank(call->params[0].desc.dims[1]),
          x(static_cast<const float*>(call->inputs[0].data)),
          a(static_cast<const float*>(call->params[0].data)),
          b(static_cast<const float*>(call->params[1].data)),
          dy(static_cast<const float*>(call->grad_output.data)),
          y(static_cast<float*>(call->output.data)),
          h(static_cast<float*>(call->stash.data)) {}

    // An element of dy B', the gradient of x A.
    float dh(int64_t s, int64_t k) const {
      float sum = 0;
      for (int64_t j = 0; j < width; ++j) sum += dy[s * width + j] * b[k * width + j];
      return sum;
    }
  };

  static int32_t refuse(const weft_op_call* call, const char* expected) {
    std::snprintf(call->err->text, sizeof call->err->text, "expected %s", expected);
    return 3;
  }

  static int32_t shape(weft_op_call* call) {
    if (call->n_inputs != 1 || call->n_params != 2)
      return refuse(call, "one input and two parameters");
    const weft_desc &x = call->inputs[0].desc, &a = call->params[0].desc, &b = call->params[1].desc;
    if (x.dtype != WEFT_F32 || x.n_dims != 2 || a.n_dims != 2 || b.n_dims != 2)
      return refuse(call, "two dimensions");
    if (a.dims[0] != x.dims[1] || b.dims[1] != x.dims[1] || a.dims[1] != b.dims[0])
      return refuse(call, "x [n, width], A [width, rank] and B [rank, width]");
    call->output.desc = call->stash.desc = x;
    call->stash.desc.dims[1] = a.dims[1];
    return 0;
  }

  static int32_t forward(const weft_op_call* call) {
    const Operands o(call);
    for (int64_t s = 0; s < o.n; ++s) {
      for (int64_t k = 0; k < o.rank; ++k) {
        float sum = 0;
        for (int64_t i = 0; i < o.width; ++i) sum += o.x[s * o.width + i] * o.a[i * o.rank + k];
        o.h[s * o.rank + k] = sum;
      }
      for (int64_t j = 0; j < o.width; ++j) {
        float sum = o.x[s * o.width + j];
        for (int64_t k = 0; k < o.rank; ++k) sum += o.h[s * o.rank + k] * o.b[k * o.width + j];
        o.y[s * o.width + j] = sum;
      }
    }
    return 0;
  }

  // Writes its gradient.
  static int32_t backward(const weft_op_call* call) {
    const Operands o(call);
    float* dx = static_cast<float*>(call->grad_inputs[0].data);
    if (!dx) return 0;
    for (int64_t s = 0; s < o.n; ++s)
      for (int64_t i = 0; i < o.width; ++i) {
        float sum = o.dy[s * o.width + i];
        for (int64_t k = 0; k < o.rank; ++k) sum += o.dh(s, k) * o.a[i * o.rank + k];
        dx[s * o.width + i] = sum;
      }
    return 0;
  }

  // Adds to its gradients.
  static int32_t backward_params(const weft_op_call* call) {
    const Operands o(call);
    float *da = static_cast<float*>(call->grad_params[0].data),
          *db = static_cast<float*>(call->grad_params[1].data);
    for (int64_t s = 0; s < o.n; ++s)
      for (int64_t k = 0; k < o.rank; ++k) {
        const float dh = da ? o.dh(s, k) : 0;
        for (int64_t i = 0; da && i < o.width; ++i) da[i * o.rank + k] += o.x[s * o.width + i] * dh;
        for (int64_t j = 0; db && j < o.width; ++j)
          db[k * o.width + j] += o.h[s * o.rank + k] * o.dy[s * o.width + j];
      }
    return 0;
  }
};

// It says what it reads, so that a gradient which read more would fail.
inline weft_op low_rank_op() {
  weft_op op = defaults(weft_op_init);
  op.name = "low_rank";
  op.shape = LowRank::shape;
  op.forward = LowRank::forward;
  op.backward = LowRank::backward;
  op.backward_params = LowRank::backward_params;
  op.backward_reads = WEFT_OP_READS_PARAMS;
  op.backward_params_reads = WEFT_OP_READS_INPUTS | WEFT_OP_READS_PARAMS | WEFT_OP_READS_STASH;
  return op;
}
