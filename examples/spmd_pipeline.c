/* The pipeline of gpipe.c written as one SPMD program, checked number by number.
 *
 * The program runs at the 4 coordinates of a new axis, "pipe", and each coordinate has one of the layers: the parameters are
 * cut over the axis. In each of 11 iterations a coordinate applies its layer to what the coordinate before it computed one iteration earlier, which
 * ppermute moves; coordinate 0 takes the next of 8 micro-batches. The loop is unrolled, and weft derives its backward pass. The schedule of
 * a pipeline is thus a part of the model, and the plan needs no stages.
 *
 *   spmd_pipeline [--ranks 1|2|4] [--in-process]
 *
 * Every rank is a separate process, except with --in-process. The output after the first line is the same for any number of
 * ranks. */
#include "ranks.h"

#define MICRO_BATCHES 8
#include "blocks.h"
#include "chain.h"

enum { TURNS = MICRO_BATCHES + LAYERS - 1 };

/* Each coordinate has a part of the first dimension of the whole, and one gradient for all turns. */
static weft_param add_cut_param(weft_model *model, const char *name, weft_desc whole) {
  weft_error err = {.size = sizeof err};
  weft_param param;
  require(weft_model_add_param(model, name, &whole, WEFT_INIT_ZEROS, 0, &param, &err), name, &err);
  require(weft_model_cut_param(model, param, 0, "pipe", WEFT_CUT_DROP, &err), name, &err);
  require(weft_model_share_gradient(model, param, &err), name, &err);
  return param;
}

static weft_value add_move(weft_model *model, const char *turn, const char *op, weft_value x, const int32_t *coordinates,
                           uint32_t n) {
  return add_plain(model, turn, op, NODE(.op = op, .axis_name = "pipe", .coordinates = coordinates, .n_coordinates = n), x, none);
}

/* The outputs of the layers of all coordinates in a turn. */
static weft_value add_layers(weft_model *model, const char *turn, weft_value x, const weft_param *params) {
  char name[32];
  snprintf(name, sizeof name, "%s.linear", turn);
  return add_plain(model, turn, "relu", NODE(.op = "relu"), add_node(model, name, NODE(.op = "linear"), &x, 1, params, 2), none);
}

/* For weft, there is only one sample. Dimension 1 counts micro-batches. */
static weft_model *build(void) {
  static const int32_t first[] = {0}, last[] = {LAYERS - 1}, next[LAYERS] = {-1, 0, 1, 2};
  weft_error err = {.size = sizeof err};
  weft_model *model = NULL;
  weft_value x, target, made = none, finished[MICRO_BATCHES];
  const weft_desc samples = {WEFT_F32, 4, {1, MICRO_BATCHES, MICRO_BATCH_SIZE, WIDTH}};
  require(weft_model_new(&model, &err), "model", &err);
  require(weft_model_add_axis(model, "pipe", LAYERS, &err), "axis", &err);
  require(weft_model_add_input(model, "x", &samples, WEFT_INPUT_WANT_GRAD, &x, &err), "input", &err);
  require(weft_model_add_input(model, "target", &samples, 0, &target, &err), "input", &err);
  const weft_param params[] = {add_cut_param(model, "weight", (weft_desc){WEFT_F32, 3, {LAYERS, WIDTH, WIDTH}}),
                               add_cut_param(model, "bias", (weft_desc){WEFT_F32, 2, {LAYERS, WIDTH}})};
  for (int t = 0; t < TURNS; ++t) {
    char turn[16];
    weft_value state = none;
    snprintf(turn, sizeof turn, "turn%d", t);
    if (t > 0) state = add_move(model, turn, "ppermute", made, next, LAYERS);
    if (t < MICRO_BATCHES) {
      const weft_value taken = add_plain(model, turn, "slice", NODE(.op = "slice", .axis = 1, .begin = t, .end = t + 1), x, none);
      const weft_value fresh = add_move(model, turn, "mask", taken, first, 1);
      state = t > 0 ? add_plain(model, turn, "add", NODE(.op = "add"), fresh, state) : fresh;
    }
    made = add_layers(model, turn, state, params);
    if (t >= LAYERS - 1) finished[t - (LAYERS - 1)] = made;
  }
  made = add_node(model, "finished", NODE(.op = "concat", .axis = 1), finished, MICRO_BATCHES, NULL, 0);
  made = add_move(model, "finished", "broadcast", made, last, 1);
  add_plain(model, "finished", "loss", NODE(.op = "mse"), made, target);
  return model;
}

static weft_plan *make_plan(weft_model *model, int count) {
  weft_error err = {.size = sizeof err};
  const weft_axis axis = {"pipe", (uint32_t)count, 0};
  weft_optimizer sgd;
  weft_optimizer_init(&sgd, sizeof sgd);
  sgd.rule = WEFT_SGD;
  sgd.rate = 1e-6;
  sgd.clip = 0;
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.axes = &axis;
  config.n_axes = 1;
  config.micro_batches = 1;
  config.micro_batch_size = 1;
  config.optimizer = &sgd;
  weft_plan *plan = NULL;
  require(weft_plan_new(model, &config, &plan, &err), "plan", &err);
  return plan;
}

static weft_tensor *wrap(void *memory, weft_desc desc) {
  weft_error err = {.size = sizeof err};
  weft_tensor *tensor = NULL;
  require(weft_tensor_wrap(&desc, memory, NULL, NULL, &tensor, &err), "wrap", &err);
  return tensor;
}

static void compute(weft_plan *plan, weft_mesh *mesh, data *d, result *r, char digest[33]) {
  weft_error err = {.size = sizeof err};
  const weft_desc weight = {WEFT_F32, 3, {LAYERS, WIDTH, WIDTH}}, bias = {WEFT_F32, 2, {LAYERS, WIDTH}},
                  samples = {WEFT_F32, 4, {1, MICRO_BATCHES, MICRO_BATCH_SIZE, WIDTH}};
  weft_tensor *const to[] = {wrap(d->weight, weight), wrap(d->bias, bias), wrap(d->input, samples), wrap(d->target, samples)};
  weft_tensor *const from[] = {wrap(r->weight, weight), wrap(r->bias, bias), wrap(r->input, samples)};
  static const char *const names[] = {"weight", "bias", "x"};
  weft_run *run = NULL;
  require(weft_run_start(plan, mesh, NULL, &run, &err), "run", &err);
  for (int i = 0; i < 2; ++i) require(weft_run_write(run, names[i], WEFT_VALUE, to[i], &err), names[i], &err);
  r->loss = run_step(run, to + 2, 2, WEFT_NO_UPDATE, NULL);
  for (int i = 0; i < 3; ++i) require(weft_run_read(run, names[i], WEFT_GRAD, from[i], &err), names[i], &err);
  run_step(run, to + 2, 2, WEFT_TRAIN, NULL);   /* so that the digest depends on every gradient */
  require(weft_run_digest(run, digest, &err), "digest", &err);
  weft_run_free(run);
  for (int i = 0; i < 4; ++i) weft_tensor_unref(to[i]);
  for (int i = 0; i < 3; ++i) weft_tensor_unref(from[i]);
}

static int usage(void) {
  fprintf(stderr, "usage: spmd_pipeline [--ranks 1|2|4] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  int count = LAYERS;
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (i + 1 == argc) return usage();
    if (!strcmp(argv[i], "--ranks")) count = atoi(argv[++i]);
    else return usage();
  }
  if (count != 1 && count != 2 && count != LAYERS) return usage();

  weft_model *model = build();
  weft_plan *plan = make_plan(model, count);
  ranks world;
  ranks_start(&world, plan, argv, count);

  static data d;
  static result r;
  static exact e;
  char digest[33];
  draw(&d);
  compute_exact(&d, &e);
  compute(plan, world.mesh, &d, &r, digest);
  weft_plan_free(plan);
  weft_model_free(model);

  printf("%d coordinates on %d rank%s, %d micro-batches of %d samples in %d turns\n", LAYERS, count, count == 1 ? "" : "s",
         MICRO_BATCHES, MICRO_BATCH_SIZE, TURNS);
  const int good = check_gpipe(&r, &e);
  printf("parameters after one step of SGD: %s\n", digest);
  return ranks_end(&world) || !good;
}
