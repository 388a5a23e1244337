/* Forward passes through a pipeline, checked against plain loops.
 *
 * Four layers (linear without bias, ReLU) of width 16 are in as many stages. The batch has 8 micro-batches of 4 samples; the
 * outputs are returned one micro-batch at a time, each with its own event. Then the same samples come as 8 requests. */
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#include "randn.h"

enum { LAYERS = 4, MICRO_BATCHES = 8, MICRO_BATCH_SIZE = 4, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, WIDTH = 16 };

typedef struct data {
  float weight[LAYERS][WIDTH][WIDTH];   /* [in, out] */
  float input[SAMPLES][WIDTH];
} data;

/* In float, as in weft, but the order of the sums differs. */
static void compute_plainly(const data *d, float out[SAMPLES][WIDTH]) {
  float in[WIDTH];
  memcpy(out, d->input, sizeof d->input);
  for (int s = 0; s < SAMPLES; ++s)
    for (int l = 0; l < LAYERS; ++l) {
      memcpy(in, out[s], sizeof in);
      for (int o = 0; o < WIDTH; ++o) {
        float sum = 0;
        for (int i = 0; i < WIDTH; ++i) sum += in[i] * d->weight[l][i][o];
        out[s][o] = sum > 0 ? sum : 0;
      }
    }
}

static void require(weft_status status, const char *what, const weft_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "inference: %s: %s\n", what, err->text[0] ? err->text : weft_status_text(status));
  exit(2);
}

static weft_model *build(void) {
  weft_error err = {.size = sizeof err};
  weft_model *model = NULL;
  weft_value x;
  const weft_desc row = {WEFT_F32, 2, {1, WIDTH}}, square = {WEFT_F32, 2, {WIDTH, WIDTH}};
  require(weft_model_new(&model, &err), "model", &err);
  require(weft_model_add_input(model, "x", &row, 0, &x, &err), "input", &err);
  for (int l = 0; l < LAYERS; ++l) {
    char name[32];
    weft_param weight;
    snprintf(name, sizeof name, "weight%d", l);
    require(weft_model_add_param(model, name, &square, WEFT_INIT_ZEROS, 0, &weight, &err), name, &err);
    const weft_node_config linear = {.size = sizeof linear, .op = "linear", .inputs = &x, .n_inputs = 1, .params = &weight, .n_params = 1};
    require(weft_model_add_node(model, &linear, &x, &err), "linear", &err);
    const weft_node_config relu = {.size = sizeof relu, .op = "relu", .inputs = &x, .n_inputs = 1};
    require(weft_model_add_node(model, &relu, &x, &err), "relu", &err);
  }
  require(weft_model_add_output(model, x, &err), "output", &err);
  return model;
}

static void set_weights(weft_run *run, data *d) {
  weft_error err = {.size = sizeof err};
  const weft_desc square = {WEFT_F32, 2, {WIDTH, WIDTH}};
  for (int l = 0; l < LAYERS; ++l) {
    char name[32];
    weft_tensor *weight = NULL;
    snprintf(name, sizeof name, "weight%d", l);
    require(weft_tensor_wrap(&square, d->weight[l], NULL, NULL, &weight, &err), name, &err);
    require(weft_run_write(run, name, WEFT_VALUE, weight, &err), name, &err);
    weft_tensor_unref(weight);
  }
}

static void forward(weft_run *run, data *d, float out[SAMPLES][WIDTH]) {
  weft_error err = {.size = sizeof err};
  const weft_desc batch = {WEFT_F32, 2, {SAMPLES, WIDTH}};
  weft_tensor *input = NULL;
  require(weft_tensor_wrap(&batch, d->input, NULL, NULL, &input, &err), "wrap", &err);
  require(weft_run_submit(run, &input, 1, WEFT_FORWARD, 0, &err), "submit", &err);
  weft_tensor_unref(input);   /* the run holds a reference */
  weft_event event = {.size = sizeof event};
  do {
    require(weft_run_poll(run, &event, -1, &err), "poll", &err);
    if (event.kind == WEFT_EVENT_MICRO_BATCH)   /* the outputs are valid until the next poll */
      memcpy(out[event.micro_batch * MICRO_BATCH_SIZE], weft_tensor_data(event.outputs[0]), sizeof(float[MICRO_BATCH_SIZE][WIDTH]));
  } while (event.kind == WEFT_EVENT_MICRO_BATCH);
  if (event.kind == WEFT_EVENT_ERROR) snprintf(err.text, sizeof err.text, "%s", event.text);
  require(event.status, "forward", &err);
}

/* Requests of one micro-batch each. All are queued, so that each rank computes the next request while later ranks compute this one. */
static void answer(weft_run *run, data *d, float out[SAMPLES][WIDTH]) {
  weft_error err = {.size = sizeof err};
  const weft_desc request = {WEFT_F32, 2, {MICRO_BATCH_SIZE, WIDTH}};
  for (uint64_t r = 0; r < MICRO_BATCHES; ++r) {
    weft_tensor *input = NULL;
    require(weft_tensor_wrap(&request, d->input[r * MICRO_BATCH_SIZE], NULL, NULL, &input, &err), "wrap", &err);
    require(weft_run_submit(run, &input, 1, WEFT_FORWARD, r, &err), "submit", &err);
    weft_tensor_unref(input);
  }
  weft_event event = {.size = sizeof event};
  for (int answered = 0; answered < MICRO_BATCHES; answered += event.kind == WEFT_EVENT_DONE) {
    require(weft_run_poll(run, &event, -1, &err), "poll", &err);
    if (event.kind == WEFT_EVENT_MICRO_BATCH)
      memcpy(out[event.tag * MICRO_BATCH_SIZE], weft_tensor_data(event.outputs[0]), sizeof(float[MICRO_BATCH_SIZE][WIDTH]));
    if (event.kind == WEFT_EVENT_ERROR) snprintf(err.text, sizeof err.text, "%s", event.text);
    require(event.status, "forward", &err);
  }
}

int main(int argc, char **argv) {
  (void)argc;
  weft_error err = {.size = sizeof err};
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = LAYERS;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  weft_plan *plan = NULL;
  weft_run *run = NULL;
  weft_model *model = build();
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  ranks world;
  ranks_start(&world, plan, argv, LAYERS);

  static data d;
  static float found[SAMPLES][WIDTH], answers[SAMPLES][WIDTH], expected[SAMPLES][WIDTH];
  randn random;
  randn_seed(&random, 42);
  randn_fill(&random, &d.weight[0][0][0], sizeof d / sizeof(float));   /* weights, then inputs */
  compute_plainly(&d, expected);

  require(weft_run_start(plan, world.mesh, NULL, &run, &err), "run", &err);
  set_weights(run, &d);
  forward(run, &d, found);
  answer(run, &d, answers);
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);

  double low = found[0][0], high = low, off = 0;
  for (int s = 0; s < SAMPLES; ++s)
    for (int o = 0; o < WIDTH; ++o) {
      low = fmin(low, found[s][o]);
      high = fmax(high, found[s][o]);
      const double here = fabs((double)found[s][o] - expected[s][o]);
      if (here > off || isnan(here)) off = here;
    }
  const int same = memcmp(found, answers, sizeof found) == 0;
  const int good = low == 0 && fabs(high - 417.7554) <= 1e-4 && off <= 1e-4 && same;
  printf("outputs from %.4f to %.4f, expected 0 to 417.7554\n", low, high);
  printf("largest difference to plain loops %.3e, expected at most 1e-4\n%s\n", off, good ? "ok" : "WRONG");
  return ranks_end(&world) || !good;
}
