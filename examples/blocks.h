/* Builds models from common blocks. Each function adds nodes to a model, and ends the program if that fails. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

static inline void require(weft_status status, const char *what, const weft_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, err->text[0] ? err->text : weft_status_text(status));
  exit(2);
}

/* NAME.KIND, drawn from N(0, deviation); or all `constant`, if deviation is 0. */
static inline weft_param add_param(weft_model *model, const char *name, const char *kind, weft_desc desc, double deviation,
                                   double constant) {
  weft_error err = {.size = sizeof err};
  weft_param param;
  char full[64];
  snprintf(full, sizeof full, "%s.%s", name, kind);
  require(weft_model_add_param(model, full, &desc, deviation > 0 ? WEFT_INIT_NORMAL : WEFT_INIT_CONSTANT,
                               deviation > 0 ? deviation : constant, &param, &err), full, &err);
  return param;
}

static inline weft_value add_input(weft_model *model, const char *name, weft_desc sample) {
  weft_error err = {.size = sizeof err};
  weft_value value;
  require(weft_model_add_input(model, name, &sample, 0, &value, &err), name, &err);
  return value;
}

/* `config` has all settings except the operands and the name. */
static inline weft_value add_node(weft_model *model, const char *name, weft_node_config config, const weft_value *inputs,
                                  uint32_t n_inputs, const weft_param *params, uint32_t n_params) {
  weft_error err = {.size = sizeof err};
  weft_value value;
  config.size = sizeof config;
  config.name = name;
  config.inputs = inputs, config.n_inputs = n_inputs;
  config.params = params, config.n_params = n_params;
  require(weft_model_add_node(model, &config, &value, &err), name, &err);
  return value;
}

#define NODE(...) ((weft_node_config){__VA_ARGS__})   /* NODE(.op = "scale", .factor = 2) */

/* A node of one or two operands without parameters, PREFIX.NAME. */
static inline weft_value add_plain(weft_model *model, const char *prefix, const char *name, weft_node_config config, weft_value a,
                                   weft_value b) {
  const weft_value inputs[] = {a, b};
  char full[64];
  snprintf(full, sizeof full, "%s.%s", prefix, name);
  return add_node(model, full, config, inputs, b.id ? 2 : 1, NULL, 0);
}

static const weft_value none = {0};

static inline weft_value add_embedding(weft_model *model, const char *name, weft_value ids, int64_t rows, int64_t width,
                                       uint32_t flags) {
  const weft_param table = add_param(model, name, "weight", (weft_desc){WEFT_F32, 2, {rows, width}}, 0.02, 0);
  return add_node(model, name, NODE(.op = "embedding", .flags = flags), &ids, 1, &table, 1);
}

static inline weft_value add_linear(weft_model *model, const char *name, weft_value x, int64_t in, int64_t out,
                                    double deviation) {
  const weft_param params[] = {add_param(model, name, "weight", (weft_desc){WEFT_F32, 2, {in, out}}, deviation, 0),
                               add_param(model, name, "bias", (weft_desc){WEFT_F32, 1, {out}}, 0, 0)};
  return add_node(model, name, NODE(.op = "linear"), &x, 1, params, 2);
}

/* As many rows after it as before. */
static inline weft_value add_conv(weft_model *model, const char *name, weft_value x, int64_t taps, int64_t in, int64_t out) {
  const double deviation = sqrt(2.0 / (double)(taps * in));
  const weft_param params[] = {add_param(model, name, "weight", (weft_desc){WEFT_F32, 3, {taps, in, out}}, deviation, 0),
                               add_param(model, name, "bias", (weft_desc){WEFT_F32, 1, {out}}, 0, 0)};
  return add_node(model, name, NODE(.op = "conv1d", .n_dims = 2, .dims = {1, taps / 2}), &x, 1, params, 2);
}

static inline weft_value add_norm(weft_model *model, const char *name, weft_value x, int64_t width) {
  const weft_desc row = {WEFT_F32, 1, {width}};
  const weft_param params[] = {add_param(model, name, "weight", row, 0, 1), add_param(model, name, "bias", row, 0, 0)};
  return add_node(model, name, NODE(.op = "layer_norm", .factor = 1e-5), &x, 1, params, 2);
}

/* GPT-2's block, named as in Hugging Face's Transformers: x + attention(norm(x)), then x + mlp(norm(x)). `attention`:
 * WEFT_NODE_CAUSAL or 0; `blocks`: their number, for the initial values of the layers that are added to x. */
static inline weft_value add_block(weft_model *model, const char *name, weft_value x, int64_t width, int32_t heads,
                                   uint32_t attention, int blocks) {
  const double residual = 0.02 / sqrt(2.0 * blocks);
  char n[6][64];
  weft_value y;
  static const char *const parts[] = {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"};
  for (int i = 0; i < 6; ++i) snprintf(n[i], sizeof n[i], "%s.%s", name, parts[i]);
  y = add_linear(model, n[1], add_norm(model, n[0], x, width), width, 3 * width, 0.02);
  y = add_plain(model, name, "attn", NODE(.op = "attention", .flags = attention, .heads = heads), y, none);
  x = add_plain(model, name, "attn.add", NODE(.op = "add"), x, add_linear(model, n[2], y, width, width, residual));
  y = add_linear(model, n[4], add_norm(model, n[3], x, width), width, 4 * width, 0.02);
  y = add_plain(model, name, "mlp.gelu", NODE(.op = "gelu", .flags = WEFT_NODE_TANH), y, none);
  return add_plain(model, name, "mlp.add", NODE(.op = "add"), x, add_linear(model, n[5], y, 4 * width, width, residual));
}

/* The compute time of each of the `n` ranks: as measured if there is a profile, otherwise by estimated cost. */
static inline void sum_work(const weft_plan *plan, uint32_t n, const weft_profile *profile, double *work) {
  weft_error err = {.size = sizeof err};
  weft_node_times node = {.size = sizeof node};
  if (!profile) {
    weft_prediction *prediction;
    require(weft_plan_simulate(plan, 0, &prediction, &err), "prediction", &err);
    for (uint32_t rank = 0; rank < n; ++rank) {
      weft_rank_prediction r = {.size = sizeof r};
      weft_prediction_rank(prediction, rank, &r);
      work[rank] = (double)r.busy_ns;
    }
    weft_prediction_free(prediction);
    return;
  }
  for (uint32_t i = 0, rank = 0; i < weft_profile_nodes(profile); ++i) {   /* a rank has one stage, and a stage a run of nodes */
    require(weft_profile_node(profile, i, &node), "profile", &err);
    if (rank + 1 < n && strcmp(node.name, weft_plan_first(plan, rank + 1)) == 0) ++rank;
    work[rank] += (double)(node.forward_ns + node.input_ns + node.weight_ns);
  }
}

/* The cuts, and for each of the `n` ranks its parameters, bytes, and share of the compute time. */
static inline void print_shares(const weft_plan *plan, uint32_t n, const weft_profile *profile, int64_t parameters) {
  double *work = (double *)calloc(n, sizeof *work), all = 0;
  if (!work) exit(2);
  sum_work(plan, n, profile, work);
  for (uint32_t rank = 0; rank < n; ++rank) all += work[rank];
  printf("rank  from                   parameters   share      MiB  compute\n");
  for (uint32_t rank = 0; rank < n; ++rank) {
    const int64_t owned = weft_plan_owned(plan, rank);
    printf("%4u  %-20s %12lld  %5.1f%%  %7.1f  %6.1f%%\n", rank, weft_plan_first(plan, rank), (long long)owned,
           100 * (double)owned / (double)parameters, (double)weft_plan_bytes(plan, rank) / 1048576, 100 * work[rank] / all);
  }
  free(work);
}

/* The class with the highest of `n` scores. */
static inline int best_of(const float *scores, int n) {
  int best = 0;
  for (int c = 1; c < n; ++c)
    if (scores[c] > scores[best]) best = c;
  return best;
}

/* One step of a run, which must succeed: submits and polls until its final event. Outputs go to `output`, one micro-batch after
 * another; it may be NULL. */
static inline double run_step(weft_run *run, weft_tensor *const *inputs, uint32_t n_inputs, weft_step_mode mode,
                              float *output) {
  weft_error err = {.size = sizeof err};
  weft_event event = {.size = sizeof event};
  require(weft_run_submit(run, inputs, n_inputs, mode, 0, &err), "submit", &err);
  for (;;) {
    require(weft_run_poll(run, &event, -1, &err), "poll", &err);
    if (event.kind == WEFT_EVENT_ERROR) snprintf(err.text, sizeof err.text, "%s", event.text);
    if (event.kind == WEFT_EVENT_ERROR) require(event.status, "step", &err);
    if (event.kind == WEFT_EVENT_DONE) return event.loss;
    if (event.kind != WEFT_EVENT_MICRO_BATCH || !output || event.n_outputs == 0) continue;
    const weft_desc desc = weft_tensor_desc(event.outputs[0]);
    int64_t elements = 1;
    for (uint32_t i = 0; i < desc.n_dims; ++i) elements *= desc.dims[i];
    for (int64_t i = 0; i < elements; ++i) *output++ = ((const float *)weft_tensor_data(event.outputs[0]))[i];
  }
}

#endif
