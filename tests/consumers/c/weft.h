/* The part of weft that the README's program uses, declared by hand, as a binding for another language would. If the library changes the
 * layout of a struct or a function, the program that is built with this header fails. A struct with a size may end after the last field
 * that the program uses. The other fields have their defaults. */
#include <stddef.h>
#include <stdint.h>

typedef struct weft_tensor weft_tensor;
typedef struct weft_model weft_model;
typedef struct weft_plan weft_plan;
typedef struct weft_run weft_run;
typedef struct { uint32_t id; } weft_value;
typedef struct { uint32_t size; int32_t status; char text[504]; } weft_error;
typedef struct { uint32_t dtype, n_dims; int64_t dims[8]; } weft_desc;
typedef struct {
  uint32_t size, rule;
  double rate, momentum, beta1, beta2, eps, weight_decay, clip;
  uint32_t curve, decay_all;
  uint64_t warmup, total;
} weft_optimizer;
typedef struct {
  uint32_t size, ranks, micro_batches, micro_batch_size, short_size, split;
  const char *schedule, *const *cuts;
  uint32_t n_cuts, step_kinds;
  uint64_t seed;
  const weft_optimizer *optimizer;
} weft_plan_config;

enum { WEFT_F32 = 1, WEFT_RATE_COSINE = 2, WEFT_TRAIN = 1 };

int32_t weft_tensor_wrap(const weft_desc *, void *data, void (*release)(void *, void *), void *payload, weft_tensor **, weft_error *);
void weft_tensor_unref(weft_tensor *);
int32_t weft_model_new(weft_model **, weft_error *);
void weft_model_free(weft_model *);
int32_t weft_model_add_input(weft_model *, const char *name, const weft_desc *sample, uint32_t flags, weft_value *, weft_error *);
int32_t weft_model_add_linear(weft_model *, const char *name, weft_value, int64_t features, weft_value *, weft_error *);
int32_t weft_model_add_unary(weft_model *, const char *name, const char *op, weft_value, weft_value *, weft_error *);
int32_t weft_model_add_binary(weft_model *, const char *name, const char *op, weft_value, weft_value, weft_value *, weft_error *);
void weft_optimizer_init(weft_optimizer *, size_t size);
void weft_plan_config_init(weft_plan_config *, size_t size);
int32_t weft_plan_new(weft_model *, const weft_plan_config *, weft_plan **, weft_error *);
void weft_plan_free(weft_plan *);
int32_t weft_run_start(const weft_plan *, void *mesh, const void *config, weft_run **, weft_error *);
void weft_run_free(weft_run *);
int32_t weft_run_step(weft_run *, weft_tensor *const *inputs, uint32_t n_inputs, uint32_t mode,
                      weft_tensor *const *outputs, uint32_t n_outputs, double *loss, weft_error *);
