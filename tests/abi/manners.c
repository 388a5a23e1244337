/* Loads the library, uses it and closes it, several times. Each time it must leave the process as it was: no thread, descriptor or memory more,
 * and nothing written to stdout and stderr. Its threads have names.
 *
 * usage: manners LIBRARY */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft.h>

enum { CYCLES = 4, SAMPLES = 32, WIDTH = 8 };

static FILE *report;   /* the stderr of the test; 1 and 2 are replaced */

#define REQUIRE(condition, ...) \
  do { \
    if (condition) break; \
    fprintf(report, "manners.c:%d: %s is not so: ", __LINE__, #condition); \
    fprintf(report, __VA_ARGS__); \
    fputc('\n', report); \
    exit(1); \
  } while (0)

/* ---- the library ---- */

#define FUNCTIONS(F) \
  F(weft_data_open) F(weft_data_config_init) F(weft_data_free) F(weft_mesh_config_init) F(weft_mesh_free) F(weft_mesh_join) \
  F(weft_mesh_join_endpoint) F(weft_mesh_listen) F(weft_model_free) F(weft_model_preset) F(weft_plan_config_init) F(weft_plan_free) \
  F(weft_plan_new) F(weft_run_config_init) F(weft_run_digest) F(weft_run_free) F(weft_run_serve) F(weft_run_start) F(weft_run_step) \
  F(weft_tensor_new) F(weft_tensor_unref)

static struct {
  void *handle;
#define DECLARE(name) __typeof__(&name) name;
  FUNCTIONS(DECLARE)
} lib;

static void load(const char *path) {
  lib.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(lib.handle, "%s", dlerror());
#define FIND(name) *(void **)&lib.name = dlsym(lib.handle, #name); REQUIRE(lib.name, "%s", #name);
  FUNCTIONS(FIND)
}

/* ---- the process ---- */

static int entries(const char *directory) {
  DIR *open = opendir(directory);
  int n = 0;
  REQUIRE(open, "%s", directory);
  while (readdir(open)) ++n;
  closedir(open);
  return n;
}

/* The threads whose names begin with `prefix`, and in *all the number of threads. */
static int threads_named(const char *prefix, int *all) {
  DIR *tasks = opendir("/proc/self/task");
  int named = 0;
  REQUIRE(tasks, "no threads");
  *all = 0;
  for (struct dirent *task; (task = readdir(tasks));) {
    char path[300], name[32] = "";
    if (task->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    named += fgets(name, sizeof name, file) && strncmp(name, prefix, strlen(prefix)) == 0;
    *all += 1;
    fclose(file);
  }
  closedir(tasks);
  return named;
}

/* Waits until all threads have a name, which is that of weft or of ZeroMQ; `own` are threads of this program. A thread sets its name itself. */
static void wait_for_names(int own, int expected) {
  for (;;) {
    int all;
    const int named = threads_named("weft-", &all);
    if (named >= expected && named + threads_named("ZMQbg", &all) == all - own) return;
    usleep(1000);
  }
}

/* ---- its use ---- */

static weft_error err = {.size = sizeof err};

static void try(weft_status status) { REQUIRE(status >= 0, "%s", err.text); }

static weft_plan *make_plan(weft_model **model) {
  weft_plan_config config;
  weft_plan *plan;
  try(lib.weft_model_preset("mlp:layers=4,width=8", 0, 2, model, NULL, &err));
  lib.weft_plan_config_init(&config, sizeof config);
  config.ranks = 2;
  try(lib.weft_plan_new(*model, &config, &plan, &err));
  return plan;
}

static void step(weft_run *run) {
  const weft_desc desc = {WEFT_F32, 2, {SAMPLES, WIDTH}};
  weft_tensor *inputs[2];
  char digest[33];
  double loss;
  for (int i = 0; i < 2; ++i) try(lib.weft_tensor_new(&desc, &inputs[i], &err));
  try(lib.weft_run_step(run, inputs, 2, WEFT_TRAIN, NULL, 0, &loss, &err));
  REQUIRE(lib.weft_run_step(run, inputs, 1, WEFT_TRAIN, NULL, 0, &loss, &err) == WEFT_EINVAL, "%s", err.text);
  try(lib.weft_run_digest(run, digest, &err));
  for (int i = 0; i < 2; ++i) lib.weft_tensor_unref(inputs[i]);
}

static void run_threads(const weft_plan *plan) {
  weft_run_config config;
  weft_run *run;
  lib.weft_run_config_init(&config, sizeof config);
  config.threads = 2;
  try(lib.weft_run_start(plan, NULL, &config, &run, &err));
  wait_for_names(1, 4);
  step(run);
  lib.weft_run_free(run);
}

static void *serve(void *endpoint) {
  weft_error why = {.size = sizeof why};
  weft_mesh_config config;
  weft_mesh *mesh;
  lib.weft_mesh_config_init(&config, sizeof config);
  config.endpoint = endpoint;
  REQUIRE(lib.weft_mesh_join(&config, &mesh, &why) == 0, "%s", why.text);
  REQUIRE(lib.weft_run_serve(mesh, NULL, NULL, NULL, &why) == 0, "%s", why.text);
  lib.weft_mesh_free(mesh);
  return NULL;
}

static void run_mesh(const weft_plan *plan) {
  weft_mesh_config config;
  weft_mesh *mesh;
  weft_run *run;
  pthread_t helper;
  lib.weft_mesh_config_init(&config, sizeof config);
  config.endpoint = "tcp://127.0.0.1:0";
  try(lib.weft_mesh_listen(&config, &mesh, &err));
  REQUIRE(pthread_create(&helper, NULL, serve, (void *)lib.weft_mesh_join_endpoint(mesh)) == 0, "no thread");
  try(lib.weft_run_start(plan, mesh, NULL, &run, &err));
  wait_for_names(2, 4);
  step(run);
  lib.weft_run_free(run);
  pthread_join(helper, NULL);
  lib.weft_mesh_free(mesh);
}

static void fail(const weft_plan *plan) {
  weft_mesh_config config;
  weft_data_config file;
  weft_model *model;
  weft_data *data;
  weft_mesh *mesh;
  weft_run *run;
  lib.weft_mesh_config_init(&config, sizeof config);
  config.join_timeout_ns = 1000000;
  try(lib.weft_mesh_listen(&config, &mesh, &err));
  REQUIRE(lib.weft_run_start(plan, mesh, NULL, &run, &err) == WEFT_ETIMEDOUT, "%s", err.text);
  lib.weft_mesh_free(mesh);
  REQUIRE(lib.weft_model_preset("none", 0, 1, &model, NULL, &err) < 0, "a model was made");
  lib.weft_data_config_init(&file, sizeof file);
  file.path = "/proc/none";
  file.vocabulary = 256;
  file.seq_len = 8;
  REQUIRE(lib.weft_data_open(&file, &data, &err) < 0, "/proc/none was opened");
}

static void use(void) {
  weft_model *model;
  weft_plan *plan = make_plan(&model);
  run_threads(plan);
  run_mesh(plan);
  fail(plan);
  lib.weft_plan_free(plan);
  lib.weft_model_free(model);
}

int main(int argc, char **argv) {
  const int output = memfd_create("output", MFD_CLOEXEC);
  struct stat written;
  size_t bytes[CYCLES];
  report = fdopen(dup(2), "w");
  if (argc != 2 || !report || output < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) return 2;
  setvbuf(report, NULL, _IONBF, 0);
  int descriptors = 0;
  for (int i = 0; i < CYCLES; ++i) {
    load(argv[1]);
    use();
    REQUIRE(dlclose(lib.handle) == 0, "%s", dlerror());
    REQUIRE(entries("/proc/self/task") == 3, "%d threads after dlclose", entries("/proc/self/task") - 2);
    if (i == 0) descriptors = entries("/proc/self/fd");   /* with two of libuv, which it keeps */
    REQUIRE(entries("/proc/self/fd") == descriptors, "%d descriptors, %d before", entries("/proc/self/fd"), descriptors);
    bytes[i] = mallinfo2().uordblks;
  }
  fflush(NULL);
  REQUIRE(fstat(output, &written) == 0 && written.st_size == 0, "%ld bytes were written to stdout and stderr", (long)written.st_size);
  /* A leak is in each later cycle. malloc gives an area 16 bytes more if the rest of a free one would be too small, so a single cycle can differ. */
  size_t least = bytes[1];
  for (int i = 2; i < CYCLES; ++i)
    if (bytes[i] < least) least = bytes[i];
  REQUIRE(least <= bytes[0], "at least %zu bytes are allocated after each later cycle, %zu after the first one", least, bytes[0]);
  return 0;
}
