/* Fine-tunes adapters of low rank (LoRA) for a model of Hugging Face's Transformers in two processes, and generates text with them.
 *
 *   fine_tune MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]
 *
 * MODEL is a directory that Transformers wrote, TOKENIZER a file tokenizer.json. SAMPLES is a file NAME.jsonl with lines
 * {"prompt": "...", "completion": "..."}. DIRECTORY gets the checkpoint, and DIRECTORY-adapters/ the adapters, which PEFT loads. */
#include "ranks.h"

#include <string.h>

enum { STEPS = 100, MICRO_BATCHES = 4, MICRO_BATCH_SIZE = 4, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, GENERATED = 3, MOST_IDS = 16 };

static weft_error err = {.size = sizeof err};

static void require(weft_status status) {
  if (status >= 0) return;
  fprintf(stderr, "fine_tune: %s\n", err.text);
  exit(2);
}

static weft_tensor *make_rows(int64_t length) {
  const weft_desc desc = {WEFT_I32, 2, {SAMPLES, length}};
  weft_tensor *tensor = NULL;
  require(weft_tensor_new(&desc, &tensor, &err));
  return tensor;
}

/* The model of the checkpoint with adapters. Its text makes the same model again. */
static weft_model *make_model(const weft_checkpoint *base, weft_preset_info *info) {
  weft_checkpoint_info found = {.size = sizeof found};
  weft_model *model = NULL;
  char text[4096];
  require(weft_checkpoint_describe(base, &found));
  if (!found.model) {
    fprintf(stderr, "fine_tune: '%s' does not describe its model; expected a directory of Transformers\n", found.path);
    exit(2);
  }
  snprintf(text, sizeof text, "%s,lora_rank=8,lora_alpha=16,lora_targets=all-linear", found.model);
  require(weft_model_preset(text, 0, 2, &model, info, &err));
  return model;
}

static weft_plan *plan_training(weft_model *model) {
  weft_plan_config config;
  weft_optimizer optimizer;
  weft_parameter_group groups[2];
  weft_plan *plan = NULL;
  for (int i = 0; i < 2; ++i) weft_parameter_group_init(&groups[i], sizeof groups[i]);
  groups[0].pattern = "*";
  groups[0].frozen = 1;
  groups[1].pattern = "*.lora_?.weight";
  weft_optimizer_init(&optimizer, sizeof optimizer);
  optimizer.rate = 0.02;
  weft_plan_config_init(&config, sizeof config);
  config.ranks = 2;
  config.micro_batches = MICRO_BATCHES;
  config.micro_batch_size = MICRO_BATCH_SIZE;
  config.step_kinds = WEFT_STEPS_TRAIN;
  config.optimizer = &optimizer;
  config.groups = groups;
  config.n_groups = 2;
  require(weft_plan_new(model, &config, &plan, &err));
  return plan;
}

static weft_data *open_samples(const weft_preset_info *info, const weft_tokenizer *tokenizer, const char *path) {
  weft_data_config config;
  weft_data *data = NULL;
  weft_data_config_init(&config, sizeof config);
  config.path = path;
  config.tokenizer = tokenizer;
  config.vocabulary = info->vocabulary;
  config.seq_len = info->seq_len;
  require(weft_data_open(&config, &data, &err));
  return data;
}

static void train(weft_run *run, const weft_data *data, const weft_preset_info *info, const char *directory) {
  weft_tensor *const inputs[2] = {make_rows(info->seq_len), make_rows(info->seq_len)};
  weft_save_config save;
  for (int step = 0; step < STEPS; ++step) {
    double loss;
    require(weft_data_sample(data, 1, (uint64_t)step, inputs[0], inputs[1], &err));
    require(weft_run_step(run, inputs, 2, WEFT_TRAIN, NULL, 0, &loss, &err));
    if (step % 25 == 24) printf("step %d  loss %.4f\n", step + 1, loss);
  }
  weft_save_config_init(&save, sizeof save);
  save.directory = directory;
  save.model = info->text;
  require(weft_run_save(run, &save, &err));
  for (int i = 0; i < 2; ++i) weft_tensor_unref(inputs[i]);
}

/* A decoder of the model in this process. */
static weft_run *start_decoder(weft_checkpoint *checkpoint, weft_plan **plan, weft_model **model) {
  weft_checkpoint_info info = {.size = sizeof info};
  weft_plan_config config;
  weft_run *run = NULL;
  require(weft_checkpoint_describe(checkpoint, &info));
  require(weft_model_decoder(info.model, NULL, model, NULL, &err));
  weft_plan_config_init(&config, sizeof config);
  config.micro_batches = 1;
  require(weft_plan_new(*model, &config, plan, &err));
  require(weft_run_start(*plan, NULL, NULL, &run, &err));
  require(weft_run_load(run, checkpoint, WEFT_LOAD_WEIGHTS, &err));
  return run;
}

static void print_answer(weft_run *run, const weft_tokenizer *tokenizer, const char *prompt) {
  weft_generator *generator = NULL;
  weft_text_stream *stream = NULL;
  weft_sequence_config config;
  weft_token token = {.size = sizeof token};
  int32_t ids[MOST_IDS];
  size_t n_ids;
  uint64_t sequence;
  const char *text;
  size_t size;
  require(weft_tokenizer_encode(tokenizer, prompt, strlen(prompt), WEFT_ADD_SPECIALS, ids, MOST_IDS, &n_ids, &err));
  if (n_ids > MOST_IDS) {
    fprintf(stderr, "fine_tune: the prompt '%s' has %zu tokens, expected at most %d\n", prompt, n_ids, MOST_IDS);
    exit(2);
  }
  weft_sequence_config_init(&config, sizeof config);
  config.temperature = 0;
  config.limit = GENERATED;
  require(weft_generator_new(run, &generator, &err));
  require(weft_generator_add(generator, ids, n_ids, &config, &sequence, &err));
  require(weft_text_stream_new(tokenizer, 0, &stream, &err));
  printf("%s", prompt);
  do {
    require(weft_generator_poll(generator, &token, -1, &err));
    require(weft_text_stream_add(stream, token.token, &text, &size, &err));
    printf("%s", text);
  } while (!token.end);
  printf("\n");
  weft_text_stream_free(stream);
  weft_generator_free(generator);
}

int main(int argc, char **argv) {
  weft_preset_info info = {.size = sizeof info};
  weft_checkpoint *base = NULL, *tuned = NULL;
  weft_tokenizer *tokenizer = NULL;
  weft_model *model, *decoder;
  weft_plan *plan, *forward;
  weft_run *run = NULL;
  weft_data *data;
  ranks world;
  char adapters[4096];
  if (argc < 5) {
    fprintf(stderr, "usage: fine_tune MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]\n");
    return 2;
  }
  require(weft_checkpoint_open(argv[1], &base, &err));
  model = make_model(base, &info);
  plan = plan_training(model);
  ranks_start(&world, plan, argv, 2);
  require(weft_tokenizer_open(argv[2], &tokenizer, &err));
  data = open_samples(&info, tokenizer, argv[3]);
  require(weft_run_start(plan, world.mesh, NULL, &run, &err));
  require(weft_run_load(run, base, WEFT_LOAD_WEIGHTS, &err));
  train(run, data, &info, argv[4]);
  weft_run_free(run);

  require(weft_checkpoint_open(argv[4], &tuned, &err));
  snprintf(adapters, sizeof adapters, "%s-adapters/", argv[4]);
  require(weft_checkpoint_export(tuned, adapters, &err));
  run = start_decoder(tuned, &forward, &decoder);
  print_answer(run, tokenizer, "abc=");
  print_answer(run, tokenizer, "klm=");
  weft_run_free(run);
  weft_plan_free(forward);
  weft_model_free(decoder);
  weft_checkpoint_free(tuned);
  weft_data_free(data);
  weft_tokenizer_free(tokenizer);
  weft_plan_free(plan);
  weft_model_free(model);
  weft_checkpoint_free(base);
  return ranks_end(&world);
}
