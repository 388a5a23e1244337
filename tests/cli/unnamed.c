/* Saves a checkpoint of MODEL below DIRECTORY as another program might, without saying what model it is. */
#include <stdio.h>
#include <weft.h>

int main(int argc, char **argv) {
  weft_error err = {.size = sizeof err};
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  weft_save_config save;
  weft_save_config_init(&save, sizeof save);
  weft_model *model = NULL;
  weft_plan *plan = NULL;
  weft_run *run = NULL;
  weft_status status = WEFT_EINVAL;
  if (argc == 3) {
    config.seed = 1;   /* as that of the command */
    save.directory = argv[2];
    status = weft_model_preset(argv[1], 0, 1, &model, NULL, &err);
    if (status == WEFT_OK) status = weft_plan_new(model, &config, &plan, &err);
    if (status == WEFT_OK) status = weft_run_start(plan, NULL, NULL, &run, &err);
    if (status == WEFT_OK) status = weft_run_save(run, &save, &err);
  }
  if (status != WEFT_OK) fprintf(stderr, "unnamed: %s\n", argc == 3 ? err.text : "expected MODEL DIRECTORY");
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  return status != WEFT_OK;
}
