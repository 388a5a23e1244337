/* Trains a residual network with batch normalization on images, in a pipeline.
 *
 * An image shows stripes in noise, and its class is their direction: one of four. Every step has new images, and so has the test at the end,
 * which normalizes with the running moments.
 *
 * The moments of a micro-batch depend on that micro-batch only. So the losses and all parameters, and with them the running moments, have the
 * same bits for any number of ranks, also if activations are recomputed.
 *
 *   resnet [--ranks N] [--steps N] [--recompute MODE] [--in-process]
 *
 * Every rank is a separate process, except with --in-process. */
#include "ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#include "blocks.h"
#include "randn.h"

enum { CLASSES = 4, SIDE = 16, PERIOD = 5 };
enum { MICRO_BATCHES = 4, MICRO_BATCH_SIZE = 8, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, TEST_STEPS = 16 };

/* ---- the task ---- */

typedef struct task {
  randn random;
  float images[SAMPLES][SIDE][SIDE];
  int32_t classes[SAMPLES];
} task;

static void draw_batch(task *t) {
  static const int down[CLASSES] = {0, 1, 1, 1}, right[CLASSES] = {1, 0, 1, PERIOD - 1};
  for (int s = 0; s < SAMPLES; ++s) {
    const int c = t->classes[s] = (int32_t)(randn_bits(&t->random) % CLASSES);
    const int phase = (int)(randn_bits(&t->random) % PERIOD);
    randn_fill(&t->random, &t->images[s][0][0], SIDE * SIDE);
    for (int i = 0; i < SIDE; ++i)
      for (int j = 0; j < SIDE; ++j) t->images[s][i][j] += (down[c] * i + right[c] * j + phase) % PERIOD < 2;
  }
}

/* ---- the model ---- */

/* `taps` rows and columns, without a bias: batch normalization has one. */
static weft_value add_conv_norm(weft_model *m, const char *name, weft_value x, int64_t taps, int64_t stride, int64_t in, int64_t out) {
  weft_error err = {.size = sizeof err};
  char conv[64], norm[64];
  snprintf(conv, sizeof conv, "%s.conv", name);
  snprintf(norm, sizeof norm, "%s.norm", name);
  const double deviation = sqrt(2.0 / (double)(taps * taps * in));
  const weft_param weight = add_param(m, conv, "weight", (weft_desc){WEFT_F32, 4, {taps, taps, in, out}}, deviation, 0);
  x = add_node(m, conv, NODE(.op = "conv2d", .n_dims = 2, .dims = {stride, taps / 2}), &x, 1, &weight, 1);
  require(weft_model_add_batch_norm(m, norm, x, &x, &err), norm, &err);
  return x;
}

/* relu(x + f(x)); if the shape changes, x is projected. */
static weft_value add_residual(weft_model *m, const char *name, weft_value x, int64_t stride, int64_t in, int64_t out) {
  char first[64], second[64], shortcut[64];
  snprintf(first, sizeof first, "%s.1", name);
  snprintf(second, sizeof second, "%s.2", name);
  snprintf(shortcut, sizeof shortcut, "%s.shortcut", name);
  weft_value y = add_conv_norm(m, first, x, 3, stride, in, out);
  y = add_conv_norm(m, second, add_plain(m, first, "relu", NODE(.op = "relu"), y, none), 3, 1, out, out);
  if (in != out || stride != 1) x = add_conv_norm(m, shortcut, x, 1, stride, in, out);
  return add_plain(m, name, "relu", NODE(.op = "relu"), add_plain(m, name, "add", NODE(.op = "add"), x, y), none);
}

static weft_model *build(void) {
  weft_error err = {.size = sizeof err};
  weft_model *m = NULL;
  require(weft_model_new(&m, &err), "model", &err);
  const weft_value images = add_input(m, "images", (weft_desc){WEFT_F32, 4, {1, SIDE, SIDE, 1}});
  const weft_value classes = add_input(m, "classes", (weft_desc){WEFT_I32, 1, {1}});
  weft_value x = add_plain(m, "stem", "relu", NODE(.op = "relu"), add_conv_norm(m, "stem", images, 3, 1, 1, 8), none);
  x = add_residual(m, "block_1", x, 1, 8, 8);
  x = add_residual(m, "block_2", x, 2, 8, 16);
  x = add_residual(m, "block_3", x, 2, 16, 32);
  x = add_plain(m, "pool", "mean", NODE(.op = "mean", .n_dims = 2, .dims = {1, 2}), x, none);
  x = add_linear(m, "classifier", x, 32, CLASSES, 0.1);
  require(weft_model_add_output(m, x, &err), "output", &err);
  add_plain(m, "loss", "entropy", NODE(.op = "softmax_cross_entropy"), x, classes);
  return m;
}

static weft_plan *make_plan(weft_model *model, uint32_t ranks_count, const char *recompute) {
  weft_error err = {.size = sizeof err};
  weft_plan *plan = NULL;
  weft_optimizer adam;
  weft_optimizer_init(&adam, sizeof adam);
  adam.rate = 3e-3;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = ranks_count;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.seed = 1;
  config.optimizer = &adam;
  config.recompute = recompute;
  config.step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_EVAL | WEFT_STEPS_EVAL_OUTPUTS;
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  return plan;
}

/* ---- training ---- */

/* The loss over new images, and the share of them whose class got the highest score. */
static void evaluate(weft_run *run, task *t, weft_tensor *const inputs[2]) {
  double loss = 0;
  int right = 0;
  for (int step = 0; step < TEST_STEPS; ++step) {
    float scores[SAMPLES][CLASSES];
    draw_batch(t);
    loss += run_step(run, inputs, 2, WEFT_EVAL, &scores[0][0]) / TEST_STEPS;
    for (int s = 0; s < SAMPLES; ++s) right += best_of(scores[s], CLASSES) == t->classes[s];
  }
  printf("held-out loss %.4f\n", loss);
  printf("held-out accuracy %.4f over %d images\n", (double)right / (TEST_STEPS * SAMPLES), TEST_STEPS * SAMPLES);
}

static void train(weft_run *run, int steps) {
  weft_error err = {.size = sizeof err};
  static task t;
  weft_tensor *inputs[2];
  char digest[33];
  const weft_desc images = {WEFT_F32, 4, {SAMPLES, SIDE, SIDE, 1}}, classes = {WEFT_I32, 1, {SAMPLES}};
  require(weft_tensor_wrap(&images, t.images, NULL, NULL, &inputs[0], &err), "images", &err);
  require(weft_tensor_wrap(&classes, t.classes, NULL, NULL, &inputs[1], &err), "classes", &err);
  randn_seed(&t.random, 1);
  for (int step = 1; step <= steps; ++step) {
    draw_batch(&t);
    const double loss = run_step(run, inputs, 2, WEFT_TRAIN, NULL);
    if (step % 10 == 0 || step == steps) printf("step %3d  loss %.6f\n", step, loss);
    fflush(stdout);
  }
  evaluate(run, &t, inputs);
  require(weft_run_digest(run, digest, &err), "digest", &err);
  printf("parameters and running moments: %s\n", digest);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);
}

static int usage(void) {
  fprintf(stderr, "usage: resnet [--ranks N] [--steps N] [--recompute MODE] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  int count = 3, steps = 60;
  const char *recompute = "none";
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (i + 1 == argc) return usage();
    if (!strcmp(argv[i], "--ranks")) count = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--steps")) steps = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--recompute")) recompute = argv[++i];
    else return usage();
  }
  if (count < 1 || count > RANKS_MOST || steps < 1) return usage();

  ranks world;
  ranks_start(&world, NULL, argv, count);   /* the other ranks get model and plan from this one */
  weft_error err = {.size = sizeof err};
  weft_model *model = build();
  weft_plan *plan = make_plan(model, (uint32_t)count, recompute);
  weft_run *run = NULL;
  printf("%d classes, %lld parameters, split by cost over %d ranks\n", CLASSES, (long long)weft_model_parameters(model), count);
  print_shares(plan, (uint32_t)count, NULL, weft_model_parameters(model));
  fflush(stdout);
  require(weft_run_start(plan, world.mesh, NULL, &run, &err), "run", &err);
  train(run, steps);
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  return ranks_end(&world);
}
