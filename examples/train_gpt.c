/* Trains a small GPT on a file in two processes, saves it, and generates text from the checkpoint.
 *
 *   train_gpt FILE DIRECTORY [--in-process]
 *
 * Each byte of FILE is a token. DIRECTORY gets the checkpoint and may not contain a newer one. */
#include "ranks.h"

enum { STEPS = 40, MICRO_BATCHES = 4, MICRO_BATCH_SIZE = 4, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, WINDOW = 64, GENERATED = 60 };

static weft_error err = {.size = sizeof err};

static void require(weft_status status) {
  if (status >= 0) return;
  fprintf(stderr, "train_gpt: %s\n", err.text);
  exit(2);
}

static weft_tensor *make_windows(int64_t samples) {
  const weft_desc desc = {WEFT_I32, 2, {samples, WINDOW}};
  weft_tensor *tensor = NULL;
  require(weft_tensor_new(&desc, &tensor, &err));
  return tensor;
}

static weft_plan *plan_training(weft_model *model) {
  weft_plan_config config;
  weft_plan *plan = NULL;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = 2;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.step_kinds = WEFT_STEPS_TRAIN;
  require(weft_plan_new(model, &config, &plan, &err));
  return plan;
}

static void train(weft_plan *plan, weft_mesh *mesh, const weft_preset_info *info, const char *path, const char *directory) {
  weft_data_config config;
  weft_data *data = NULL;
  weft_run *run = NULL;
  weft_tensor *const inputs[2] = {make_windows(SAMPLES), make_windows(SAMPLES)};
  weft_data_config_init(&config, sizeof config);
  config.path = path;
  config.vocabulary = info->vocabulary;
  config.seq_len = info->seq_len;
  require(weft_data_open(&config, &data, &err));
  require(weft_run_start(plan, mesh, NULL, &run, &err));
  for (int step = 0; step < STEPS; ++step) {
    double loss;
    require(weft_data_sample(data, 1, (uint64_t)step, inputs[0], inputs[1], &err));
    require(weft_run_step(run, inputs, 2, WEFT_TRAIN, NULL, 0, &loss, &err));
    if (step % 10 == 9) printf("step %d  loss %.4f\n", step + 1, loss);
  }
  weft_save_config save;
  weft_save_config_init(&save, sizeof save);
  save.directory = directory;
  save.model = info->text;
  require(weft_run_save(run, &save, &err));
  weft_run_free(run);
  weft_data_free(data);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);
}

/* The most likely token after the first `seen` ones. */
static int next_token(weft_run *run, weft_tensor *tokens, weft_tensor *output, int64_t vocabulary, int seen) {
  weft_tensor *const inputs[2] = {tokens, NULL};   /* outputs do not need targets */
  const float *logits = (const float *)weft_tensor_data(output) + (seen - 1) * vocabulary;
  int best = 0;
  require(weft_run_step(run, inputs, 2, WEFT_FORWARD, &output, 1, NULL, &err));
  for (int token = 1; token < vocabulary; ++token)
    if (logits[token] > logits[best]) best = token;
  return best;
}

static void generate(const char *directory) {
  weft_checkpoint *checkpoint = NULL;
  weft_checkpoint_info saved = {.size = sizeof saved};
  weft_preset_info info = {.size = sizeof info};
  weft_model *model = NULL;
  weft_plan_config config;
  weft_plan *plan = NULL;
  weft_run *run = NULL;
  weft_tensor *window = make_windows(1), *output = NULL;
  require(weft_checkpoint_open(directory, &checkpoint, &err));
  require(weft_checkpoint_describe(checkpoint, &saved));
  require(weft_model_preset(saved.model, WINDOW, 1, &model, &info, &err));
  weft_plan_config_init(&config, sizeof config);
  config.micro_batches = 1;
  config.micro_batch_size = 1;
  config.step_kinds = WEFT_STEPS_FORWARD;
  require(weft_plan_new(model, &config, &plan, &err));
  require(weft_run_start(plan, NULL, NULL, &run, &err));
  require(weft_run_load(run, checkpoint, WEFT_LOAD_WEIGHTS, &err));

  const weft_desc logits = {WEFT_F32, 3, {1, WINDOW, info.vocabulary}};
  require(weft_tensor_new(&logits, &output, &err));
  int32_t *tokens = (int32_t *)weft_tensor_data(window);
  tokens[0] = 'T';
  for (int seen = 1; seen <= GENERATED; ++seen) tokens[seen] = next_token(run, window, output, info.vocabulary, seen);
  for (int i = 0; i <= GENERATED; ++i) putchar(tokens[i]);
  putchar('\n');
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  weft_checkpoint_free(checkpoint);
  weft_tensor_unref(window);
  weft_tensor_unref(output);
}

int main(int argc, char **argv) {
  weft_preset_info info = {.size = sizeof info};
  weft_model *model = NULL;
  ranks world;
  if (argc < 3) {
    fprintf(stderr, "usage: train_gpt FILE DIRECTORY [--in-process]\n");
    return 2;
  }
  require(weft_model_preset("gpt-nano", WINDOW, 2, &model, &info, &err));
  weft_plan *plan = plan_training(model);
  ranks_start(&world, plan, argv, 2);
  train(plan, world.mesh, &info, argv[1], argv[2]);
  weft_plan_free(plan);
  weft_model_free(model);
  generate(argv[2]);
  return ranks_end(&world);
}
