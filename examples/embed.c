/* Trains a small network in two pipeline stages to approximate a sine. cc embed.c $(pkg-config --cflags --libs weft) -lm */
#include <math.h>
#include <stdio.h>
#include <weft.h>

static weft_error err = {.size = sizeof err};

static int fail(const char *text) {
  fprintf(stderr, "embed: %s\n", text);
  return 1;
}

#define TRY(call) do { if ((call) < 0) return fail(err.text); } while (0)

/* Linear, gelu, linear; the loss is the mean squared error. */
static int build(weft_model *model) {
  const weft_desc number = {WEFT_F32, 2, {1, 1}};
  weft_value x, y, out, loss;
  TRY(weft_model_add_input(model, "x", &number, 0, &x, &err));
  TRY(weft_model_add_input(model, "y", &number, 0, &y, &err));
  TRY(weft_model_add_linear(model, "hidden", x, 32, &out, &err));
  TRY(weft_model_add_unary(model, NULL, "gelu", out, &out, &err));
  TRY(weft_model_add_linear(model, "out", out, 1, &out, &err));
  TRY(weft_model_add_binary(model, NULL, "mse", out, y, &loss, &err));
  return 0;
}

int main(void) {
  float x[64], y[64];
  for (int i = 0; i < 64; ++i) {
    x[i] = (float)i / 10 - 3.2f;
    y[i] = sinf(x[i]);
  }
  const weft_desc all = {WEFT_F32, 2, {64, 1}};
  weft_tensor *batch[2];   /* they refer to x and y; nothing is copied */
  TRY(weft_tensor_wrap(&all, x, NULL, NULL, &batch[0], &err));
  TRY(weft_tensor_wrap(&all, y, NULL, NULL, &batch[1], &err));

  weft_model *model;
  TRY(weft_model_new(&model, &err));
  if (build(model) != 0) return 1;
  weft_optimizer adamw;
  weft_optimizer_init(&adamw, sizeof adamw);
  adamw.rate = 0.02;
  adamw.curve = WEFT_RATE_COSINE;
  adamw.total = 500;
  adamw.clip = 0;   /* no clipping */
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = 2;
  config.micro_batches = 4;
  config.micro_batch_size = 16;
  config.optimizer = &adamw;
  weft_plan *plan;
  TRY(weft_plan_new(model, &config, &plan, &err));
  weft_run *run;
  TRY(weft_run_start(plan, NULL, NULL, &run, &err));

  for (int step = 0; step <= 500; ++step) {
    double loss;
    TRY(weft_run_step(run, batch, 2, WEFT_TRAIN, NULL, 0, &loss, &err));
    if (step % 100 == 0) printf("step %3d  loss %.6f\n", step, loss);
  }
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(batch[i]);
  return 0;
}
