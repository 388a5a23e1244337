/* Learns a sine with a small network in two pipeline stages. cc embed.c $(pkg-config --cflags --libs weft) -lm */
#include <math.h>
#include <stdio.h>
#include <weft.h>

#define TRY(call) do { if ((call) < 0) return fprintf(stderr, "embed: %s\n", err.text), 1; } while (0)

int main(void) {
  weft_error err = WEFT_ERROR_INIT;
  float x[64], y[64];
  for (int i = 0; i < 64; ++i) y[i] = sinf(x[i] = (float)i / 10 - 3.2f);
  const weft_desc one = {WEFT_F32, 2, {1, 1}}, all = {WEFT_F32, 2, {64, 1}};
  weft_tensor *batch[2];   /* around our memory, without a copy */
  for (int i = 0; i < 2; ++i) TRY(weft_tensor_wrap(&all, i ? y : x, NULL, NULL, &batch[i], &err));
  weft_model *model = NULL; weft_plan *plan = NULL; weft_run *run = NULL;
  weft_value v[2];   /* the prediction so far, and its target */
  TRY(weft_model_new(&model, &err));
  TRY(weft_model_add_input(model, "x", &one, 0, &v[0], &err));
  TRY(weft_model_add_input(model, "y", &one, 0, &v[1], &err));
  TRY(weft_model_add_linear(model, "hidden", v[0], 32, &v[0], &err));
  const weft_node_config gelu = {sizeof gelu, .op = "gelu", .inputs = v, .n_inputs = 1};
  TRY(weft_model_add_node(model, &gelu, &v[0], &err));
  TRY(weft_model_add_linear(model, "out", v[0], 1, &v[0], &err));
  const weft_node_config loss = {sizeof loss, .op = "mse", .inputs = v, .n_inputs = 2};
  TRY(weft_model_add_node(model, &loss, &v[0], &err));
  const weft_optimizer adamw = {sizeof adamw, .rate = 0.02, .curve = WEFT_RATE_COSINE, .total = 500};
  const weft_plan_config config = {sizeof config, .ranks = 2, .micro_batches = 4, .micro_batch_size = 16, .optimizer = &adamw};
  TRY(weft_plan_new(model, &config, &plan, &err));
  TRY(weft_run_start(plan, NULL, NULL, &run, &err));
  weft_event event = WEFT_EVENT_INIT;
  for (int step = 0; step <= 500; ++step) {
    TRY(weft_run_submit(run, batch, 2, WEFT_TRAIN, 0, &err));
    while (weft_run_poll(run, &event, -1) > 0 && event.kind == WEFT_EVENT_MICRO_BATCH) continue;   /* one per micro-batch */
    if (event.kind != WEFT_EVENT_DONE) return fprintf(stderr, "embed: %s\n", event.text), 1;
    if (step % 100 == 0) printf("step %3d  loss %.6f\n", step, event.loss);
  }
  weft_run_free(run), weft_plan_free(plan), weft_model_free(model);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(batch[i]);
  return 0;
}
