/* A transformer block in two pieces against the same block in one: tensor parallelism with sequence parallelism.
 *
 * The block is an SPMD program over an axis "tensor" of T coordinates. Each has a part of the tokens, and computes layer norms and
 * sums on these. For attention and for the MLP it gathers all tokens, computes its own heads or its own columns of the hidden
 * layer with its pieces of the weights, and a reduce-scatter adds the results and gives back its tokens. There is one program for
 * every T. ("weft train --tensor" cuts the GPT models in this way automatically; other models may be cut in any way.)
 *
 *   tensor_parallel [--in-process]
 *
 * The program trains three times from the same weights: T = 1; T = 2 on one rank; T = 2 on two ranks, each a separate process except
 * with --in-process. The losses of T = 2 differ from those of T = 1 by rounding; the placement of the pieces does not affect them. */
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "randn.h"

enum { WIDTH = 64, HEADS = 4, TOKENS = 16, STEPS = 6 };
enum { MICRO_BATCHES = 2, MICRO_BATCH_SIZE = 4, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE };

/* ---- the program ---- */

/* A linear layer of which a coordinate has a part of the output features (`by_output`), or of the input features. The latter has no bias,
 * because each coordinate would add it. */
static weft_value add_piece_of_linear(weft_model *model, const char *name, weft_value x, int64_t in, int64_t out, int by_output) {
  weft_error err = {.size = sizeof err};
  weft_param params[2];
  params[0] = add_param(model, name, "weight", (weft_desc){WEFT_F32, 2, {in, out}}, 0.1, 0);
  require(weft_model_cut_param(model, params[0], by_output ? 1 : 0, "tensor", 0, &err), name, &err);
  if (by_output) {
    params[1] = add_param(model, name, "bias", (weft_desc){WEFT_F32, 1, {out}}, 0, 0);
    require(weft_model_cut_param(model, params[1], 0, "tensor", 0, &err), name, &err);
  }
  return add_node(model, name, NODE(.op = "linear"), &x, 1, params, by_output ? 2 : 1);
}

static weft_value add_move(weft_model *model, const char *prefix, const char *op, weft_value x) {
  return add_plain(model, prefix, op, NODE(.op = op, .axis_name = "tensor", .axis = 1), x, none);
}

/* Dimension 1 of x and of the target counts tokens. */
static weft_model *build(int coordinates) {
  weft_error err = {.size = sizeof err};
  weft_model *model = NULL;
  weft_value x, y, all;
  const weft_desc tokens = {WEFT_F32, 3, {1, TOKENS, WIDTH}};
  require(weft_model_new(&model, &err), "model", &err);
  require(weft_model_add_axis(model, "tensor", (uint32_t)coordinates, &err), "axis", &err);
  x = add_input(model, "x", tokens);
  require(weft_model_cut_input(model, x, 1, "tensor", 0, &err), "x", &err);
  const weft_value target = add_input(model, "target", tokens);

  all = add_move(model, "attn", "all_gather", add_norm(model, "ln_1", x, WIDTH));
  const weft_value own_heads[] = {add_piece_of_linear(model, "attn.q", all, WIDTH, WIDTH, 1),
                                  add_piece_of_linear(model, "attn.k", all, WIDTH, WIDTH, 1),
                                  add_piece_of_linear(model, "attn.v", all, WIDTH, WIDTH, 1)};
  y = add_node(model, "attn", NODE(.op = "attention", .flags = WEFT_NODE_CAUSAL, .heads = HEADS / coordinates), own_heads, 3, NULL, 0);
  y = add_move(model, "attn", "reduce_scatter", add_piece_of_linear(model, "attn.proj", y, WIDTH, WIDTH, 0));
  x = add_plain(model, "attn", "add", NODE(.op = "add"), x, y);

  all = add_move(model, "mlp", "all_gather", add_norm(model, "ln_2", x, WIDTH));
  y = add_plain(model, "mlp", "gelu", NODE(.op = "gelu"), add_piece_of_linear(model, "mlp.up", all, WIDTH, 4 * WIDTH, 1), none);
  y = add_move(model, "mlp", "reduce_scatter", add_piece_of_linear(model, "mlp.down", y, 4 * WIDTH, WIDTH, 0));
  x = add_plain(model, "mlp", "add", NODE(.op = "add"), x, y);

  const weft_value operands[] = {add_move(model, "loss", "all_gather", x), target};
  add_node(model, "loss", NODE(.op = "mse"), operands, 2, NULL, 0);
  return model;
}

static weft_plan *make_plan(int coordinates, int count) {
  weft_error err = {.size = sizeof err};
  weft_model *model = build(coordinates);
  const weft_axis axis = {"tensor", (uint32_t)count, 0};
  weft_optimizer adamw;
  weft_optimizer_init(&adamw, sizeof adamw);
  adamw.rate = 0.003;
  adamw.clip = 0;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.axes = &axis;
  config.n_axes = 1;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.seed = 1;
  config.optimizer = &adamw;
  weft_plan *plan = NULL;
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  weft_model_free(model);
  return plan;
}

/* ---- training ---- */

typedef struct result {
  double loss[STEPS];
  float grad[WIDTH][4 * WIDTH];   /* of mlp.up in the first step */
  char first[33], last[33];       /* digests before and after training */
} result;

static void train(weft_plan *plan, weft_mesh *mesh, result *r) {
  static float x[SAMPLES][TOKENS][WIDTH], target[SAMPLES][TOKENS][WIDTH];
  const weft_desc batch = {WEFT_F32, 3, {SAMPLES, TOKENS, WIDTH}}, matrix = {WEFT_F32, 2, {WIDTH, 4 * WIDTH}};
  weft_error err = {.size = sizeof err};
  weft_run *run = NULL;
  weft_tensor *inputs[2], *grad;
  randn random;
  randn_seed(&random, 42);
  randn_fill(&random, &x[0][0][0], sizeof x / sizeof(float));
  randn_fill(&random, &target[0][0][0], sizeof target / sizeof(float));
  require(weft_tensor_wrap(&batch, x, NULL, NULL, &inputs[0], &err), "x", &err);
  require(weft_tensor_wrap(&batch, target, NULL, NULL, &inputs[1], &err), "target", &err);
  require(weft_tensor_wrap(&matrix, r->grad, NULL, NULL, &grad, &err), "gradient", &err);
  require(weft_run_start(plan, mesh, NULL, &run, &err), "run", &err);
  require(weft_run_digest(run, r->first, &err), "digest", &err);
  for (int s = 0; s < STEPS; ++s) {
    r->loss[s] = run_step(run, inputs, 2, WEFT_TRAIN, NULL);
    if (s == 0) require(weft_run_read(run, "mlp.up.weight", WEFT_GRAD, grad, &err), "gradient", &err);
  }
  require(weft_run_digest(run, r->last, &err), "digest", &err);
  weft_run_free(run);
  weft_tensor_unref(grad);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);
}

/* ---- comparison ---- */

static int near(const result *one, const result *two) {
  double off = 0, grad_off = 0;
  for (int s = 0; s < STEPS; ++s) {
    printf("step %d  loss %.6f with T = 1, %.6f with T = 2\n", s, one->loss[s], two->loss[s]);
    off = fmax(off, fabs(one->loss[s] - two->loss[s]));
  }
  for (int i = 0; i < WIDTH; ++i)
    for (int j = 0; j < 4 * WIDTH; ++j) {
      const double gap = fabs((double)one->grad[i][j] - two->grad[i][j]);
      if (gap > grad_off) grad_off = gap;   /* fmax() is an internal error of gcc 12 for arm64 */
    }
  const int good = off <= 1e-5 && grad_off <= 1e-7 && one->loss[STEPS - 1] < one->loss[0];
  printf("largest differences: losses %.1e, expected at most 1e-5; gradients %.1e, expected at most 1e-7   %s\n", off, grad_off,
         good ? "ok" : "WRONG");
  return good;
}

static int same(const char *what, const char *a, const char *b) {
  const int good = strcmp(a, b) == 0;
  printf("%s: %s and %s   %s\n", what, a, b, good ? "ok" : "WRONG");
  return good;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (strcmp(argv[i], "--in-process")) return fprintf(stderr, "usage: tensor_parallel [--in-process]\n"), 2;

  weft_plan *divided = make_plan(2, 2);
  ranks world;
  ranks_start(&world, divided, argv, 2);
  weft_plan *whole = make_plan(1, 1), *pieces = make_plan(2, 1);
  static result one, two, spread;
  train(whole, NULL, &one);
  train(pieces, NULL, &two);
  train(divided, world.mesh, &spread);
  weft_plan_free(whole);
  weft_plan_free(pieces);
  weft_plan_free(divided);

  int good = near(&one, &two);
  good &= same("first weights, T = 1 and T = 2", one.first, two.first);
  good &= same("weights after training, T = 2 on one rank and on two", two.last, spread.last);
  return ranks_end(&world) || !good;
}
