/* An op of the program, with parameters and a stash, in a pipeline over three processes.
 *
 * low_rank adds a correction to x [n, width]: y = x + h B with h = x A, A [width, rank] and B [rank, width]. h is its stash.
 * With --in-process the ranks are in one process; the output is the same. */
#include "ranks.h"

#include <stdio.h>

#include <weft.h>

enum { IN = 4, WIDTH = 16, RANK = 2, SAMPLES = 32 };

static weft_error err = {.size = sizeof err};

static void require(weft_status status) {
  if (status >= 0) return;
  fprintf(stderr, "custom_op: %s\n", err.text);
  exit(2);
}

/* ---- the op ---- */

static int32_t shape(weft_op_call *call) {
  const weft_desc *x = &call->inputs[0].desc, *a = &call->params[0].desc, *b = &call->params[1].desc;
  if (call->n_params != 2 || a->dims[0] != x->dims[1] || b->dims[0] != a->dims[1] || b->dims[1] != x->dims[1]) {
    snprintf(call->err->text, sizeof call->err->text, "expected x [n, width], A [width, rank], B [rank, width]");
    return 1;
  }
  call->output.desc = call->stash.desc = *x;
  call->stash.desc.dims[1] = a->dims[1];
  return 0;
}

static int32_t forward(const weft_op_call *call) {
  const int64_t n = call->output.desc.dims[0], width = call->output.desc.dims[1], rank = call->stash.desc.dims[1];
  const float *x = call->inputs[0].data, *a = call->params[0].data, *b = call->params[1].data;
  float *y = call->output.data, *h = call->stash.data;
  for (int64_t s = 0; s < n; ++s, x += width, y += width, h += rank) {
    for (int64_t k = 0; k < rank; ++k) {
      h[k] = 0;
      for (int64_t i = 0; i < width; ++i) h[k] += x[i] * a[i * rank + k];
    }
    for (int64_t i = 0; i < width; ++i) {
      y[i] = x[i];
      for (int64_t k = 0; k < rank; ++k) y[i] += h[k] * b[k * width + i];
    }
  }
  return 0;
}

/* The gradient of h[k] for one sample. */
static float gradient_of_h(const float *dy, const float *b, int64_t width, int64_t k) {
  float sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += dy[i] * b[k * width + i];
  return sum;
}

static int32_t backward(const weft_op_call *call) {
  const int64_t n = call->output.desc.dims[0], width = call->output.desc.dims[1], rank = call->params[0].desc.dims[1];
  const float *a = call->params[0].data, *b = call->params[1].data, *dy = call->grad_output.data;
  float *dx = call->grad_inputs[0].data;   /* zeros */
  for (int64_t s = 0; s < n; ++s, dx += width, dy += width) {
    for (int64_t i = 0; i < width; ++i) dx[i] = dy[i];
    for (int64_t k = 0; k < rank; ++k) {
      const float dh = gradient_of_h(dy, b, width, k);
      for (int64_t i = 0; i < width; ++i) dx[i] += dh * a[i * rank + k];
    }
  }
  return 0;
}

static int32_t backward_params(const weft_op_call *call) {
  const int64_t n = call->output.desc.dims[0], width = call->output.desc.dims[1], rank = call->params[0].desc.dims[1];
  const float *x = call->inputs[0].data, *h = call->stash.data, *b = call->params[1].data, *dy = call->grad_output.data;
  float *da = call->grad_params[0].data, *db = call->grad_params[1].data;   /* zeros, or NULL if not asked for */
  for (int64_t s = 0; s < n; ++s, x += width, h += rank, dy += width)
    for (int64_t k = 0; k < rank; ++k) {
      const float dh = gradient_of_h(dy, b, width, k);
      for (int64_t i = 0; i < width; ++i) {
        if (da) da[i * rank + k] += x[i] * dh;
        if (db) db[k * width + i] += h[k] * dy[i];
      }
    }
  return 0;
}

/* ---- the program ---- */

static weft_value add_low_rank(weft_model *model, const char *name, weft_value x) {
  const weft_desc a = {WEFT_F32, 2, {WIDTH, RANK}}, b = {WEFT_F32, 2, {RANK, WIDTH}};
  char text[2][32];
  weft_param params[2];
  snprintf(text[0], sizeof text[0], "%s.a", name);
  snprintf(text[1], sizeof text[1], "%s.b", name);
  require(weft_model_add_param(model, text[0], &a, WEFT_INIT_NORMAL, 0.25, &params[0], &err));
  require(weft_model_add_param(model, text[1], &b, WEFT_INIT_NORMAL, 0.25, &params[1], &err));
  weft_node_config node;
  weft_node_config_init(&node, sizeof node);
  node.name = name;
  node.op = "low_rank";
  node.inputs = &x;
  node.n_inputs = 1;
  node.params = params;
  node.n_params = 2;
  require(weft_model_add_node(model, &node, &x, &err));
  return x;
}

static weft_model *build(void) {
  weft_op op;
  weft_op_init(&op, sizeof op);
  op.name = "low_rank";
  op.shape = shape;
  op.forward = forward;
  op.backward = backward;
  op.backward_params = backward_params;
  op.backward_reads = WEFT_OP_READS_PARAMS;   /* less memory than with the default, which is everything */
  op.backward_params_reads = WEFT_OP_READS_INPUTS | WEFT_OP_READS_PARAMS | WEFT_OP_READS_STASH;

  const weft_desc row = {WEFT_F32, 2, {1, IN}}, number = {WEFT_F32, 2, {1, 1}};
  weft_model *model;
  weft_value x, y;
  require(weft_model_new(&model, &err));
  require(weft_model_add_op(model, &op, NULL, &err));
  require(weft_model_add_input(model, "x", &row, 0, &x, &err));
  require(weft_model_add_input(model, "y", &number, 0, &y, &err));
  require(weft_model_add_linear(model, "in", x, WIDTH, &x, &err));
  x = add_low_rank(model, "first", x);
  require(weft_model_add_unary(model, NULL, "tanh", x, &x, &err));
  x = add_low_rank(model, "second", x);
  require(weft_model_add_linear(model, "out", x, 1, &x, &err));
  require(weft_model_add_binary(model, NULL, "mse", x, y, &x, &err));
  return model;
}

/* The target is the product of the first two numbers. */
static void fill(float *x, float *y) {
  for (int s = 0; s < SAMPLES; ++s) {
    for (int i = 0; i < IN; ++i) x[s * IN + i] = (float)((s * IN + i) * 37 % 101) / 50 - 1;
    y[s] = x[s * IN] * x[s * IN + 1];
  }
}

int main(int argc, char **argv) {
  (void)argc;
  weft_model *model = build();
  weft_optimizer adamw;
  weft_optimizer_init(&adamw, sizeof adamw);
  adamw.rate = 0.02;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = 3;
  config.micro_batches = 4;
  config.micro_batch_size = SAMPLES / 4;
  config.optimizer = &adamw;
  weft_plan *plan;
  require(weft_plan_new(model, &config, &plan, &err));
  ranks world;
  ranks_start(&world, plan, argv, 3);
  weft_run *run;
  require(weft_run_start(plan, world.mesh, NULL, &run, &err));

  float x[SAMPLES * IN], y[SAMPLES];
  fill(x, y);
  const weft_desc rows = {WEFT_F32, 2, {SAMPLES, IN}}, column = {WEFT_F32, 2, {SAMPLES, 1}};
  weft_tensor *batch[2];
  require(weft_tensor_wrap(&rows, x, NULL, NULL, &batch[0], &err));
  require(weft_tensor_wrap(&column, y, NULL, NULL, &batch[1], &err));
  for (int step = 0; step <= 300; ++step) {
    double loss;
    require(weft_run_step(run, batch, 2, WEFT_TRAIN, NULL, 0, &loss, &err));
    if (step % 100 == 0) printf("step %3d  loss %.6f\n", step, loss);
  }
  for (int i = 0; i < 2; ++i) weft_tensor_unref(batch[i]);
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  return ranks_end(&world);
}
