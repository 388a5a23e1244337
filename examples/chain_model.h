/* The worked example of chain.h with weft: one node per layer, cut into stages. */
#ifndef CHAIN_MODEL_H
#define CHAIN_MODEL_H

#include <weft.h>

#include "chain.h"

static void require(weft_status status, const char *what, const weft_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, err->text[0] ? err->text : weft_status_text(status));
  exit(2);
}

static weft_tensor *wrap(void *memory, int64_t rows, int64_t columns) {
  weft_error err = {.size = sizeof err};
  const weft_desc matrix = {WEFT_F32, 2, {rows, columns}}, vector = {WEFT_F32, 1, {columns}};
  weft_tensor *tensor = NULL;
  require(weft_tensor_wrap(rows ? &matrix : &vector, memory, NULL, NULL, &tensor, &err), "wrap", &err);
  return tensor;
}

static weft_model *build(void) {
  weft_error err = {.size = sizeof err};
  weft_model *model = NULL;
  weft_value x, target;
  const weft_desc row = {WEFT_F32, 2, {1, WIDTH}};
  require(weft_model_new(&model, &err), "model", &err);
  require(weft_model_add_input(model, "x", &row, WEFT_INPUT_WANT_GRAD, &x, &err), "input", &err);
  require(weft_model_add_input(model, "target", &row, 0, &target, &err), "input", &err);
  for (int l = 0; l < LAYERS; ++l) {
    char name[32];
    weft_node_config relu;
    weft_node_config_init(&relu, sizeof relu);
    snprintf(name, sizeof name, "layer%d", l);
    require(weft_model_add_linear(model, name, x, WIDTH, &x, &err), name, &err);
    relu.op = "relu";
    relu.inputs = &x;
    relu.n_inputs = 1;
    require(weft_model_add_node(model, &relu, &x, &err), "relu", &err);
  }
  const weft_value operands[] = {x, target};
  weft_node_config loss;
  weft_node_config_init(&loss, sizeof loss);
  loss.op = "mse";
  loss.inputs = operands;
  loss.n_inputs = 2;
  require(weft_model_add_node(model, &loss, &x, &err), "loss", &err);
  return model;
}

/* The rest of the configuration. Each stage gets as many layers as the others, or one more. */
static weft_plan *plan_of(weft_model *model, weft_plan_config config, int stages) {
  static const char *const layers[LAYERS] = {"layer0", "layer1", "layer2", "layer3"};
  const char *cuts[LAYERS];
  for (int s = 1; s < stages; ++s) cuts[s - 1] = layers[s * LAYERS / stages];
  weft_optimizer sgd;
  weft_optimizer_init(&sgd, sizeof sgd);
  sgd.rule = WEFT_SGD;
  sgd.rate = 1e-6;
  sgd.clip = 0;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.cuts = cuts;
  config.n_cuts = (uint32_t)stages - 1;
  config.optimizer = &sgd;
  weft_error err = {.size = sizeof err};
  weft_plan *plan = NULL;
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  return plan;
}

/* Writes the parameters, or reads their gradients. */
static void each_parameter(weft_run *run, float weight[LAYERS][WIDTH][WIDTH], float bias[LAYERS][WIDTH], int write) {
  weft_error err = {.size = sizeof err};
  for (int l = 0; l < LAYERS; ++l) {
    weft_tensor *const tensors[] = {wrap(weight[l], WIDTH, WIDTH), wrap(bias[l], 0, WIDTH)};
    static const char *const kinds[] = {"weight", "bias"};
    for (int k = 0; k < 2; ++k) {
      char name[32];
      snprintf(name, sizeof name, "layer%d.%s", l, kinds[k]);
      require(write ? weft_run_write(run, name, WEFT_VALUE, tensors[k], &err) : weft_run_read(run, name, WEFT_GRAD, tensors[k], &err),
              name, &err);
      weft_tensor_unref(tensors[k]);
    }
  }
}

static double step(weft_run *run, data *d, weft_step_mode mode) {
  weft_error err = {.size = sizeof err};
  weft_tensor *const inputs[] = {wrap(d->input, SAMPLES, WIDTH), wrap(d->target, SAMPLES, WIDTH)};
  require(weft_run_submit(run, inputs, 2, mode, 0, &err), "submit", &err);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);   /* the run holds references */
  weft_event event = {.size = sizeof event};
  do {
    require(weft_run_poll(run, &event, -1, &err), "poll", &err);
  } while (event.kind == WEFT_EVENT_MICRO_BATCH);
  if (event.kind == WEFT_EVENT_ERROR) snprintf(err.text, sizeof err.text, "%s", event.text);
  require(event.status, "step", &err);
  return event.loss;
}

static void compute(weft_plan *plan, weft_mesh *mesh, data *d, result *r, char digest[33]) {
  weft_error err = {.size = sizeof err};
  weft_run *run = NULL;
  require(weft_run_start(plan, mesh, NULL, &run, &err), "run", &err);
  each_parameter(run, d->weight, d->bias, 1);

  r->loss = step(run, d, WEFT_NO_UPDATE);
  each_parameter(run, r->weight, r->bias, 0);
  weft_tensor *input = wrap(r->input, SAMPLES, WIDTH);
  require(weft_run_read(run, "x", WEFT_GRAD, input, &err), "input gradient", &err);
  weft_tensor_unref(input);

  step(run, d, WEFT_TRAIN);   /* so that the digest depends on every gradient */
  require(weft_run_digest(run, digest, &err), "digest", &err);
  weft_run_free(run);
}

#endif
