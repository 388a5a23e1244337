/* A pipeline with replicas, checked number by number: the model of gpipe.c on a mesh of data x stage.
 *
 * The 4 micro-batches of a step are divided among the replicas; each replica is a separate pipeline. Their gradients are added in
 * two groups, for any number of replicas, so the output after the first line is the same for one replica and for two,
 * for any number of stages and any schedule.
 *
 *   mesh_2d [--data 1|2] [--stages 1..4] [--schedule gpipe|1f1b] [--in-process]
 *
 * Every rank is a separate process, except with --in-process. */
#include "ranks.h"

#define MICRO_BATCHES 4
#include "chain_model.h"

static weft_plan *make_plan(weft_model *model, int replicas, int stages, const char *schedule) {
  const weft_axis axes[] = {{"data", (uint32_t)replicas, 0}, {"stage", (uint32_t)stages, 0}};
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  config.axes = axes;
  config.n_axes = 2;
  config.gradient_groups = 2;
  config.schedule = schedule;
  return plan_of(model, config, stages);
}

static int usage(void) {
  fprintf(stderr, "usage: mesh_2d [--data 1|2] [--stages 1..4] [--schedule gpipe|1f1b] [--in-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  int replicas = 2, stages = LAYERS;
  const char *schedule = "1f1b";
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--in-process")) continue;
    if (i + 1 == argc) return usage();
    if (!strcmp(argv[i], "--data")) replicas = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--stages")) stages = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--schedule")) schedule = argv[++i];
    else return usage();
  }
  if (replicas < 1 || replicas > 2 || stages < 1 || stages > LAYERS) return usage();

  weft_model *model = build();
  weft_plan *plan = make_plan(model, replicas, stages, schedule);
  ranks world;
  ranks_start(&world, plan, argv, replicas * stages);

  static data d;
  static result r;
  static exact e;
  char digest[33];
  draw(&d);
  compute_exact(&d, &e);
  compute(plan, world.mesh, &d, &r, digest);
  weft_plan_free(plan);
  weft_model_free(model);

  printf("data=%d x stage=%d, schedule %s, %d micro-batches of %d samples\n", replicas, stages, schedule, MICRO_BATCHES,
         MICRO_BATCH_SIZE);
  int good = check("loss", r.loss, 3828.785, 0.001);
  good &= compare_all(&r, &e);
  printf("parameters after one step of SGD: %s\n", digest);
  return ranks_end(&world) || !good;
}
