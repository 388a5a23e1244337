/* Trains an encoder and a decoder to reverse words, in a pipeline.
 *
 * A word has 3 to 12 random letters, and is padded to 12. Every block of the decoder attends to what the encoder made of the word, and a mask
 * hides the padding. So the result of the encoder goes from the rank that has its last block to all ranks with blocks of the decoder, and
 * their gradients come back; nothing in this program says so. At the end the decoder spells new words backwards, one letter after another.
 *
 * The losses, the words and the parameters have the same bits for any number of ranks.
 *
 *   seq2seq [--ranks N] [--steps N] [--in-process]
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

enum { LETTERS = 26, PADDING = LETTERS, BEGIN, END, TOKENS };
enum { LEAST = 3, MOST = 12, ROWS = MOST + 1 };   /* the decoder also reads BEGIN, and writes END */
enum { WIDTH = 64, HEADS = 4, BLOCKS = 2 };       /* of the encoder, and of the decoder */
enum { MICRO_BATCHES = 4, MICRO_BATCH_SIZE = 16, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, SHOWN = 4 };

/* ---- the task ---- */

typedef struct task {
  randn random;
  int lengths[SAMPLES];
  int32_t words[SAMPLES][MOST];
  int32_t seen[SAMPLES][MOST];      /* 1 for a letter, 0 for padding */
  int32_t before[SAMPLES][ROWS];    /* what the decoder reads: BEGIN and the letters that it has written */
  int32_t targets[SAMPLES][ROWS];   /* what it shall write: the letters and END; -1 behind them does not count */
} task;

static void draw_words(task *t) {
  for (int s = 0; s < SAMPLES; ++s) {
    const int length = t->lengths[s] = LEAST + (int)(randn_bits(&t->random) % (MOST - LEAST + 1));
    for (int i = 0; i < MOST; ++i) {
      t->words[s][i] = i < length ? (int32_t)(randn_bits(&t->random) % LETTERS) : PADDING;
      t->seen[s][i] = i < length;
    }
    t->before[s][0] = BEGIN;
    for (int i = 0; i < ROWS; ++i) {
      t->targets[s][i] = i < length ? t->words[s][length - 1 - i] : i == length ? END : -1;
      if (i + 1 < ROWS) t->before[s][i + 1] = i < length ? t->targets[s][i] : PADDING;
    }
  }
}

/* ---- the model ---- */

/* PREFIX.NAME, a linear node. */
static weft_value add_projection(weft_model *m, const char *prefix, const char *name, weft_value x, int64_t in, int64_t out) {
  char full[48];
  snprintf(full, sizeof full, "%s.%s", prefix, name);
  return add_linear(m, full, x, in, out, 1 / sqrt((double)in));
}

static weft_value add_normalized(weft_model *m, const char *prefix, weft_value x) {
  char full[48];
  snprintf(full, sizeof full, "%s.norm", prefix);
  return add_norm(m, full, x, WIDTH);
}

/* x + the attention of its rows to those of `memory`, or to one another; `mask` hides rows of them. */
static weft_value add_attention(weft_model *m, const char *block, const char *kind, weft_value x, weft_value memory, weft_value mask,
                                uint32_t flags) {
  char name[32];
  snprintf(name, sizeof name, "%s.%s", block, kind);
  const weft_value rows = add_normalized(m, name, x), keys = memory.id ? memory : rows;
  const weft_value inputs[] = {add_projection(m, name, "query", rows, WIDTH, WIDTH), add_projection(m, name, "key", keys, WIDTH, WIDTH),
                               add_projection(m, name, "value", keys, WIDTH, WIDTH), mask};
  const weft_value y = add_node(m, name, NODE(.op = "attention", .heads = HEADS, .flags = flags), inputs, mask.id ? 4 : 3, NULL, 0);
  return add_plain(m, name, "add", NODE(.op = "add"), x, add_projection(m, name, "out", y, WIDTH, WIDTH));
}

static weft_value add_mlp(weft_model *m, const char *block, weft_value x) {
  char name[32];
  snprintf(name, sizeof name, "%s.mlp", block);
  weft_value y = add_projection(m, name, "up", add_normalized(m, name, x), WIDTH, 4 * WIDTH);
  y = add_projection(m, name, "down", add_plain(m, name, "gelu", NODE(.op = "gelu"), y, none), 4 * WIDTH, WIDTH);
  return add_plain(m, name, "add", NODE(.op = "add"), x, y);
}

static weft_value add_tokens(weft_model *m, const char *name, weft_value tokens, int64_t rows) {
  char token[48], place[48];
  snprintf(token, sizeof token, "%s.token", name);
  snprintf(place, sizeof place, "%s.place", name);
  const weft_value a = add_embedding(m, token, tokens, TOKENS, WIDTH, 0);
  return add_plain(m, name, "add", NODE(.op = "add"), a, add_embedding(m, place, tokens, rows, WIDTH, WEFT_NODE_POSITIONS));
}

static weft_model *build(void) {
  weft_error err = {.size = sizeof err};
  weft_model *m = NULL;
  require(weft_model_new(&m, &err), "model", &err);
  const weft_desc word = {WEFT_I32, 2, {1, MOST}}, written = {WEFT_I32, 2, {1, ROWS}};
  const weft_value words = add_input(m, "words", word), seen = add_input(m, "seen", word), before = add_input(m, "before", written),
                   targets = add_input(m, "targets", written);
  weft_value x = add_tokens(m, "encoder", words, MOST);
  for (int b = 0; b < BLOCKS; ++b) {
    char name[16];
    snprintf(name, sizeof name, "encoder.%d", b);
    x = add_mlp(m, name, add_attention(m, name, "self", x, none, seen, 0));
  }
  const weft_value memory = add_normalized(m, "encoder", x);
  x = add_tokens(m, "decoder", before, ROWS);
  for (int b = 0; b < BLOCKS; ++b) {
    char name[16];
    snprintf(name, sizeof name, "decoder.%d", b);
    x = add_attention(m, name, "self", x, none, none, WEFT_NODE_CAUSAL);
    x = add_mlp(m, name, add_attention(m, name, "cross", x, memory, seen, 0));
  }
  x = add_projection(m, "decoder", "head", add_normalized(m, "decoder", x), WIDTH, TOKENS);
  require(weft_model_add_output(m, x, &err), "output", &err);
  add_plain(m, "loss", "entropy", NODE(.op = "softmax_cross_entropy"), x, targets);
  return m;
}

static weft_plan *make_plan(weft_model *model, uint32_t ranks_count, uint64_t steps) {
  weft_error err = {.size = sizeof err};
  weft_plan *plan = NULL;
  weft_optimizer adamw;
  weft_optimizer_init(&adamw, sizeof adamw);
  adamw.rate = 3e-3;
  adamw.curve = WEFT_RATE_COSINE;
  adamw.total = steps;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = ranks_count;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.seed = 1;
  config.optimizer = &adamw;
  config.step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_FORWARD;
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  return plan;
}

/* ---- training ---- */

/* Each pass through the pipeline gives the next letter of all words. */
static void write_words(weft_run *run, task *t, weft_tensor *const inputs[4], int32_t written[SAMPLES][ROWS]) {
  static float scores[SAMPLES][ROWS][TOKENS];
  for (int s = 0; s < SAMPLES; ++s)
    for (int i = 1; i < ROWS; ++i) t->before[s][i] = PADDING;
  for (int i = 0; i < ROWS; ++i) {
    run_step(run, inputs, 4, WEFT_FORWARD, &scores[0][0][0]);
    for (int s = 0; s < SAMPLES; ++s) {
      written[s][i] = best_of(scores[s][i], TOKENS);
      if (i + 1 < ROWS) t->before[s][i + 1] = written[s][i];
    }
  }
}

static void print_tokens(const int32_t *tokens, int count) {
  for (int i = 0; i < count && tokens[i] != END; ++i) putchar(tokens[i] < LETTERS ? 'a' + (int)tokens[i] : '?');
}

static void evaluate(weft_run *run, task *t, weft_tensor *const inputs[4]) {
  static int32_t written[SAMPLES][ROWS];
  int right = 0;
  draw_words(t);
  write_words(run, t, inputs, written);
  for (int s = 0; s < SAMPLES; ++s) {
    const size_t length = (size_t)t->lengths[s] + 1;
    right += memcmp(written[s], t->targets[s], length * sizeof written[s][0]) == 0;
    if (s >= SHOWN) continue;
    print_tokens(t->words[s], t->lengths[s]);
    printf(" -> ");
    print_tokens(written[s], ROWS);
    printf("\n");
  }
  printf("%d of %d new words are reversed without an error\n", right, SAMPLES);
}

static void train(weft_run *run, int steps) {
  weft_error err = {.size = sizeof err};
  static task t;
  weft_tensor *inputs[4];
  int32_t *const data[4] = {&t.words[0][0], &t.seen[0][0], &t.before[0][0], &t.targets[0][0]};
  char digest[33];
  for (int i = 0; i < 4; ++i) {
    const weft_desc desc = {WEFT_I32, 2, {SAMPLES, i < 2 ? MOST : ROWS}};
    require(weft_tensor_wrap(&desc, data[i], NULL, NULL, &inputs[i], &err), "input", &err);
  }
  randn_seed(&t.random, 1);
  for (int step = 1; step <= steps; ++step) {
    draw_words(&t);
    const double loss = run_step(run, inputs, 4, WEFT_TRAIN, NULL);
    if (step % 100 == 0 || step == steps) printf("step %4d  loss %.6f\n", step, loss);
    fflush(stdout);
  }
  evaluate(run, &t, inputs);
  require(weft_run_digest(run, digest, &err), "digest", &err);
  printf("parameters: %s\n", digest);
  for (int i = 0; i < 4; ++i) weft_tensor_unref(inputs[i]);
}

static int usage(void) {
  fprintf(stderr, "usage: seq2seq [--ranks N] [--steps N] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  int count = 3, steps = 400;
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (i + 1 == argc) return usage();
    if (!strcmp(argv[i], "--ranks")) count = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--steps")) steps = atoi(argv[++i]);
    else return usage();
  }
  if (count < 1 || count > RANKS_MOST || steps < 1) return usage();

  ranks world;
  ranks_start(&world, NULL, argv, count);   /* the other ranks get model and plan from this one */
  weft_error err = {.size = sizeof err};
  weft_model *model = build();
  weft_plan *plan = make_plan(model, (uint32_t)count, (uint64_t)steps);
  weft_run *run = NULL;
  printf("%d blocks that encode, %d that decode, %lld parameters, split by cost over %d ranks\n", BLOCKS, BLOCKS,
         (long long)weft_model_parameters(model), count);
  print_shares(plan, (uint32_t)count, NULL, weft_model_parameters(model));
  fflush(stdout);
  require(weft_run_start(plan, world.mesh, NULL, &run, &err), "run", &err);
  train(run, steps);
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  return ranks_end(&world);
}
