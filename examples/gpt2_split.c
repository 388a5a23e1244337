/* GPT-2 with a head for two classes, split over four ranks automatically.
 *
 * The blocks are GPT-2's; instead of scores for every word there is one row of scores per sample, made of the last token. weft
 * adds the estimated costs of the nodes and cuts so that the slowest rank takes the least time. The program prints the parts,
 * and then trains a few steps on one batch of random tokens, so that the loss falls.
 *
 *   gpt2_split [--small] [--steps N] [--tokens N] [--in-process]
 *
 * Every rank is a separate process, except with --in-process. All ranks together take 2 GB; --small is a model of the same structure
 * that takes 20 MB. */
#include "ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#include "blocks.h"

enum { RANKS = 4, CLASSES = 2, LONGEST = 1024 };
enum { MICRO_BATCHES = 4, MICRO_BATCH_SIZE = 2, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE };

typedef struct sizes {
  int blocks;
  int32_t heads, vocabulary;
  int64_t width, context;
} sizes;

static const sizes gpt2 = {12, 12, 50257, 768, 1024}, small = {12, 4, 1000, 64, 128};

static weft_model *build(const sizes *z, int64_t tokens) {
  weft_error err = {.size = sizeof err};
  weft_model *m = NULL;
  require(weft_model_new(&m, &err), "model", &err);
  const weft_value ids = add_input(m, "tokens", (weft_desc){WEFT_I32, 2, {1, tokens}});
  const weft_value classes = add_input(m, "classes", (weft_desc){WEFT_I32, 1, {1}});

  weft_value x = add_embedding(m, "wte", ids, z->vocabulary, z->width, 0);
  x = add_plain(m, "wpe", "add", NODE(.op = "add"), x, add_embedding(m, "wpe", ids, z->context, z->width, WEFT_NODE_POSITIONS));
  for (int i = 0; i < z->blocks; ++i) {
    char name[16];
    snprintf(name, sizeof name, "h.%d", i);
    x = add_block(m, name, x, z->width, z->heads, WEFT_NODE_CAUSAL, z->blocks);
  }
  x = add_norm(m, "ln_f", x, z->width);
  x = add_plain(m, "last", "slice", NODE(.op = "slice", .axis = 1, .begin = tokens - 1, .end = tokens), x, none);
  x = add_plain(m, "last", "row", NODE(.op = "reshape", .n_dims = 2, .dims = {-1, z->width}), x, none);
  x = add_linear(m, "score", x, z->width, CLASSES, 0.02);
  require(weft_model_add_output(m, x, &err), "output", &err);
  add_plain(m, "loss", "entropy", NODE(.op = "softmax_cross_entropy"), x, classes);
  return m;
}

static weft_plan *make_plan(weft_model *model, const sizes *z) {
  weft_error err = {.size = sizeof err};
  weft_plan *plan = NULL;
  weft_optimizer adamw;
  weft_optimizer_init(&adamw, sizeof adamw);
  adamw.rate = z == &small ? 2e-4 : 5e-6;
  adamw.clip = 0;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = RANKS;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.seed = 1;
  config.optimizer = &adamw;
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  return plan;
}

static void train(weft_run *run, const sizes *z, int64_t tokens, int steps) {
  static int32_t ids[SAMPLES * LONGEST], classes[SAMPLES];
  weft_error err = {.size = sizeof err};
  weft_tensor *inputs[2];
  char digest[33];
  const weft_desc rows = {WEFT_I32, 2, {SAMPLES, tokens}}, one = {WEFT_I32, 1, {SAMPLES}};
  uint32_t random = 1;
  for (int64_t i = 0; i < SAMPLES * tokens; ++i) {
    random = random * 1664525u + 1013904223u;   /* Numerical Recipes */
    ids[i] = (int32_t)((uint64_t)random * (uint32_t)z->vocabulary >> 32);
  }
  for (int s = 0; s < SAMPLES; ++s) classes[s] = s % CLASSES;
  require(weft_tensor_wrap(&rows, ids, NULL, NULL, &inputs[0], &err), "tokens", &err);
  require(weft_tensor_wrap(&one, classes, NULL, NULL, &inputs[1], &err), "classes", &err);
  for (int step = 0; step < steps; ++step) {
    printf("step %2d  loss %.9f\n", step, run_step(run, inputs, 2, WEFT_TRAIN, NULL));
    fflush(stdout);
  }
  require(weft_run_digest(run, digest, &err), "digest", &err);
  printf("parameters after training: %s\n", digest);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);
}

static int usage(void) {
  fprintf(stderr, "usage: gpt2_split [--small] [--steps N] [--tokens N] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  const sizes *z = &gpt2;
  int64_t tokens = 32;
  int steps = 3;
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (!strcmp(argv[i], "--small")) z = &small;
    else if (i + 1 == argc) return usage();
    else if (!strcmp(argv[i], "--steps")) steps = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--tokens")) tokens = atoi(argv[++i]);
    else return usage();
  }
  if (steps < 1 || tokens < 1 || tokens > z->context) return usage();

  ranks world;
  ranks_start(&world, NULL, argv, RANKS);   /* the other ranks get model and plan from this one */
  weft_error err = {.size = sizeof err};
  weft_model *model = build(z, tokens);
  weft_plan *plan = make_plan(model, z);
  weft_run *run = NULL;
  printf("GPT-2 for %d classes: %d blocks of width %lld, %lld parameters, split over %d ranks\n", CLASSES, z->blocks,
         (long long)z->width, (long long)weft_model_parameters(model), RANKS);
  print_shares(plan, RANKS, NULL, weft_model_parameters(model));
  fflush(stdout);
  require(weft_run_start(plan, world.mesh, NULL, &run, &err), "run", &err);
  train(run, z, tokens, steps);
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  return ranks_end(&world);
}
