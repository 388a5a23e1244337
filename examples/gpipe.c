/* The worked example of pipeline parallelism, checked number by number.
 *
 * Four layers (linear, ReLU) of width 16 and the mean squared error are cut into 1 to 4 stages; 8 micro-batches of 4 samples run
 * through them. The program also computes the same loss and gradients itself, layer after layer, in double, and fails if
 * weft's differ by more than rounding. The output after the first line is the same for any number of stages and any schedule.
 *
 *   gpipe [--stages N] [--schedule gpipe|1f1b] [--in-process]
 *
 * Every stage is a separate process, except with --in-process. */
#include "ranks.h"

#define MICRO_BATCHES 8
#include "chain_model.h"

static weft_plan *make_plan(weft_model *model, int stages, const char *schedule) {
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = (uint32_t)stages;
  config.schedule = schedule;
  return plan_of(model, config, stages);
}

static int usage(void) {
  fprintf(stderr, "usage: gpipe [--stages 1..4] [--schedule gpipe|1f1b] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  int stages = LAYERS;
  const char *schedule = "gpipe";
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (i + 1 == argc) return usage();
    if (!strcmp(argv[i], "--stages")) stages = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--schedule")) schedule = argv[++i];
    else return usage();
  }
  if (stages < 1 || stages > LAYERS) return usage();

  weft_model *model = build();
  weft_plan *plan = make_plan(model, stages, schedule);
  ranks world;
  ranks_start(&world, plan, argv, stages);

  static data d;
  static result r;
  static exact e;
  char digest[33];
  draw(&d);
  compute_exact(&d, &e);
  compute(plan, world.mesh, &d, &r, digest);
  weft_plan_free(plan);
  weft_model_free(model);

  printf("%d stage%s, schedule %s, %d micro-batches of %d samples\n", stages, stages == 1 ? "" : "s", schedule, MICRO_BATCHES,
         MICRO_BATCH_SIZE);
  const int good = check_gpipe(&r, &e);
  printf("parameters after one step of SGD: %s\n", digest);
  return ranks_end(&world) || !good;
}
