/* Learns to tell ten patterns apart in noise, in a pipeline of four ranks.
 *
 * A sample is a row of tokens drawn at random, with a pattern of five tokens somewhere in it, of which at most one is wrong:
 * which of ten patterns is it? The patterns are drawn from a seed. Every step has new samples, and so has the
 * test at the end.
 *
 * The model is made of four unequal stages: embedding, two convolutions and a layer norm; a transformer block; another one; layer
 * norm, mean and classifier. --split stages cuts it there. By default weft measures every node first, and cuts so that the
 * slowest rank takes the least time; --split cost uses the estimates of the ops instead. The results have the same bits.
 *
 *   classifier [--split profile|cost|stages] [--width N] [--steps N] [--in-process]
 *
 * Every rank is a separate process, except with --in-process. */
#include "ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#include "blocks.h"

enum { RANKS = 4, CLASSES = 10, PATTERN = 5, LENGTH = 32, VOCABULARY = 32, TAPS = 3 };
enum { MICRO_BATCHES = 8, MICRO_BATCH_SIZE = 4, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, TEST_STEPS = 32 };

typedef struct settings {
  int64_t width;
  int steps;
  const char *split;
} settings;

/* ---- the task ---- */

typedef struct task {
  uint64_t random;
  int32_t pattern[CLASSES][PATTERN];
  int32_t tokens[SAMPLES][LENGTH];
  int32_t classes[SAMPLES];
} task;

/* The generator splitmix64; `n` is small. */
static int32_t draw(task *t, int32_t n) {
  uint64_t z = t->random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (int32_t)(((z ^ (z >> 31)) >> 32) * (uint64_t)n >> 32);
}

static void draw_batch(task *t) {
  for (int s = 0; s < SAMPLES; ++s) {
    t->classes[s] = draw(t, CLASSES);
    for (int i = 0; i < LENGTH; ++i) t->tokens[s][i] = draw(t, VOCABULARY);
    const int32_t at = draw(t, LENGTH - PATTERN + 1), wrong = draw(t, PATTERN + 1);   /* PATTERN: none */
    for (int i = 0; i < PATTERN; ++i)
      if (i != wrong) t->tokens[s][at + i] = t->pattern[t->classes[s]][i];
  }
}

/* ---- the model ---- */

static weft_model *build(int64_t width) {
  weft_error err = {.size = sizeof err};
  weft_model *m = NULL;
  require(weft_model_new(&m, &err), "model", &err);
  const weft_value tokens = add_input(m, "tokens", (weft_desc){WEFT_I32, 2, {1, LENGTH}});
  const weft_value classes = add_input(m, "classes", (weft_desc){WEFT_I32, 1, {1}});

  weft_value x = add_embedding(m, "embed", tokens, VOCABULARY, width, 0);
  x = add_plain(m, "conv_1", "relu", NODE(.op = "relu"), add_conv(m, "conv_1", x, TAPS, width, width), none);
  x = add_plain(m, "conv_2", "relu", NODE(.op = "relu"), add_conv(m, "conv_2", x, TAPS, width, width), none);
  x = add_norm(m, "norm_1", x, width);

  x = add_block(m, "block_1", x, width, 4, 0, 2);
  x = add_block(m, "block_2", x, width, 4, 0, 2);

  x = add_norm(m, "norm_2", x, width);
  x = add_plain(m, "pool", "mean", NODE(.op = "mean", .axis = 1), x, none);
  x = add_linear(m, "classifier", x, width, CLASSES, 0.02);
  require(weft_model_add_output(m, x, &err), "output", &err);
  add_plain(m, "loss", "entropy", NODE(.op = "softmax_cross_entropy"), x, classes);
  return m;
}

static weft_profile *measure(weft_model *model) {
  weft_error err = {.size = sizeof err};
  weft_profile *profile = NULL;
  weft_profile_config config;
  weft_profile_config_init(&config, sizeof config);
  config.micro_batch_size = MICRO_BATCH_SIZE;
  require(weft_profile_new(model, &config, &profile, &err), "profile", &err);
  return profile;
}

static weft_plan *make_plan(weft_model *model, const weft_profile *profile, const settings *s) {
  static const char *const stages[] = {"block_1.ln_1", "block_2.ln_1", "norm_2"};
  weft_error err = {.size = sizeof err};
  weft_plan *plan = NULL;
  weft_optimizer adam;
  weft_optimizer_init(&adam, sizeof adam);
  adam.rule = WEFT_ADAM;
  adam.rate = 2e-3;
  adam.curve = WEFT_RATE_COSINE;
  adam.warmup = 10;
  adam.total = (uint64_t)s->steps + 10;
  adam.min_rate = 1e-5;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = RANKS;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.seed = 1;
  config.optimizer = &adam;
  config.profile = profile;
  if (strcmp(s->split, "stages") == 0) {
    config.cuts = stages;
    config.n_cuts = RANKS - 1;
  }
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  return plan;
}

/* ---- training ---- */

/* The share of samples whose class got the highest score. */
static double accuracy(weft_run *run, task *t, weft_tensor *const inputs[2]) {
  int right = 0;
  for (int step = 0; step < TEST_STEPS; ++step) {
    float scores[SAMPLES][CLASSES];
    weft_tensor *const tokens_only[] = {inputs[0], NULL};
    draw_batch(t);
    run_step(run, tokens_only, 2, WEFT_FORWARD, &scores[0][0]);
    for (int s = 0; s < SAMPLES; ++s) right += best_of(scores[s], CLASSES) == t->classes[s];
  }
  return (double)right / (TEST_STEPS * SAMPLES);
}

static void train(weft_run *run, const settings *s) {
  weft_error err = {.size = sizeof err};
  static task t;
  weft_tensor *inputs[2];
  char digest[33];
  const weft_desc tokens = {WEFT_I32, 2, {SAMPLES, LENGTH}}, classes = {WEFT_I32, 1, {SAMPLES}};
  require(weft_tensor_wrap(&tokens, t.tokens, NULL, NULL, &inputs[0], &err), "tokens", &err);
  require(weft_tensor_wrap(&classes, t.classes, NULL, NULL, &inputs[1], &err), "classes", &err);
  for (int c = 0; c < CLASSES; ++c)
    for (int i = 0; i < PATTERN; ++i) t.pattern[c][i] = draw(&t, VOCABULARY);

  double mean = 0;
  const int every = s->steps < 10 ? 1 : s->steps / 10;
  for (int step = 1; step <= s->steps; ++step) {
    draw_batch(&t);
    mean += run_step(run, inputs, 2, WEFT_TRAIN, NULL) / every;
    if (step % every) continue;
    printf("steps up to %4d  loss %.6f\n", step, mean);
    fflush(stdout);
    mean = 0;
  }
  printf("held-out accuracy %.4f over %d samples\n", accuracy(run, &t, inputs), TEST_STEPS * SAMPLES);
  require(weft_run_digest(run, digest, &err), "digest", &err);
  printf("parameters after training: %s\n", digest);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);
}

static int usage(void) {
  fprintf(stderr, "usage: classifier [--split profile|cost|stages] [--width N] [--steps N] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  settings s = {.width = 256, .steps = 300, .split = "profile"};
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (i + 1 == argc) return usage();
    if (!strcmp(argv[i], "--split")) s.split = argv[++i];
    else if (!strcmp(argv[i], "--width")) s.width = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--steps")) s.steps = atoi(argv[++i]);
    else return usage();
  }
  if (s.width < 4 || s.width % 4 || s.steps < 1) return usage();
  if (strcmp(s.split, "profile") && strcmp(s.split, "cost") && strcmp(s.split, "stages")) return usage();

  ranks world;
  ranks_start(&world, NULL, argv, RANKS);   /* the other ranks get model and plan from this one */
  weft_error err = {.size = sizeof err};
  weft_model *model = build(s.width);
  weft_profile *profile = strcmp(s.split, "profile") == 0 ? measure(model) : NULL;
  weft_plan *plan = make_plan(model, profile, &s);
  weft_run *run = NULL;
  printf("%d classes, width %lld, %lld parameters, split by %s over %d ranks\n", CLASSES, (long long)s.width,
         (long long)weft_model_parameters(model), s.split, RANKS);
  print_shares(plan, RANKS, profile, weft_model_parameters(model));
  fflush(stdout);
  require(weft_run_start(plan, world.mesh, NULL, &run, &err), "run", &err);
  train(run, &s);
  weft_run_free(run);
  weft_plan_free(plan);
  weft_profile_free(profile);
  weft_model_free(model);
  return ranks_end(&world);
}
