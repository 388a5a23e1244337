/* weft: trains and runs neural networks pipeline-parallel, across threads, processes and machines.
 *
 * Five objects, made in this order:
 *
 *   weft_model   a graph of ops over named parameters: what is computed
 *   weft_plan    where and when every kernel call of a step runs, and where every byte lies; checked before anything runs
 *   weft_mesh    the processes that share the plan (none: all ranks live in this process)
 *   weft_run     the plan at work: submit batches, poll events, read and write parameters
 *   weft_tensor  a dense array, often around memory of the caller
 *
 * A complete program stands in weft(3) and in examples/embed.c.
 *
 * Same bits anywhere: for one model, seed, data and micro-batch count, every synchronous schedule, partition, number of ranks and
 * threads gives bit-identical losses, gradients and weights. weft_run_digest() shows it.
 *
 * Errors. Functions that can fail return a weft_status: 0 or more is success, less than 0 a failure (WEFT_E...). Functions that are
 * called rarely also fill a weft_error of the caller, if one is given, with a text for a person. Results are written on success alone.
 *
 * Ownership. X_new and X_start make an object that the caller frees with X_free, which accepts NULL. A plan keeps what it needs of its
 * model, and a run keeps its plan, so either may be freed first. Tensors are counted: weft_tensor_ref, weft_tensor_unref.
 *
 * Threads. Each function says "Thread: any" or "Thread: owner". Owner is one thread at a time; the library locks nothing on behalf of
 * the caller. Nothing survives fork().
 *
 * The host process. The library never prints, never exits, and leaves signals, locale and working directory alone; it starts no thread
 * before weft_run_start. What a dependency may do despite that stands in weft(3).
 *
 * Configurations start with `size`, which WEFT_X_INIT sets; every other field is 0 for its default, and `reserved` ones are always 0. They
 * grow at their end only. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ------------------------------------------------------------------------------------------------------------------- */

typedef int32_t weft_status;

/* X(name, value, text). Values are never changed and never used again. */
#define WEFT_STATUS_MAP(X)                                                              \
  X(OK, 0, "ok")                                                                        \
  X(EINVAL, -1, "invalid argument")            /* an argument, shape or name that cannot be */          \
  X(ENOMEM, -2, "out of memory")                                                        \
  X(ESTATE, -3, "wrong state")                 /* the right call at the wrong moment */                 \
  X(EAGAIN, -4, "try again")                   /* a bounded queue is full */                            \
  X(ECANCELED, -5, "canceled")                                                          \
  X(ETIMEDOUT, -6, "timed out")                                                         \
  X(EPEER, -7, "peer lost")                    /* another rank is lost, or was refused */               \
  X(EPROTO, -8, "protocol violated")                                                    \
  X(ENOTSUP, -9, "not supported")                                                       \
  X(ENOENT, -10, "not found")                                                           \
  X(EUSER, -11, "callback failed")             /* a callback of the caller returned a failure */        \
  X(EINTERNAL, -12, "internal error")          /* a fault of weft; please report it */                  \
  X(EIO, -13, "input or output failed")                                                 \
  X(EDATA, -14, "bad data")                    /* a file was read and its content is wrong */

#define WEFT_STATUS_ENUM_(name, value, text) WEFT_##name = value,
enum { WEFT_STATUS_MAP(WEFT_STATUS_ENUM_) WEFT_STATUS_END_ = 1 };

/* The text of a status, "unknown status" for others. Borrowed: valid for ever. Thread: any. */
WEFT_API const char *weft_status_text(weft_status status);

/* What went wrong, for a person: lower case, naming the thing, what was expected and what was found. */
typedef struct weft_error {
  uint32_t size;    /* of a smaller one the text is cut; below 10 nothing is written */
  weft_status status;
  char text[504];   /* ends with a NUL; a longer text is cut */
} weft_error;
#define WEFT_ERROR_INIT {sizeof(weft_error), 0, {0}}

/* The version of the library at run time, "0.1.0". Borrowed: valid for ever. Thread: any. */
WEFT_API const char *weft_version(void);

/* Which kernels multiply matrices, as text and a NUL, e.g. "BLIS 0.9.0, skx kernels"; as snprintf, returns the bytes that the whole text
 * needs. *slow (may be NULL) is set to 1 if they leave much of the processor unused; the text then says why. Initialises BLIS.
 * Thread: any; see weft(3) on BLIS_ARCH_TYPE. */
WEFT_API size_t weft_kernels(char *buffer, size_t size, uint32_t *slow);

/* ---- tensors ------------------------------------------------------------------------------------------------------------------- */

enum { WEFT_F32 = 1, WEFT_I32 = 2, WEFT_F64 = 3 };   /* dtypes; F64 is used for losses alone */
#define WEFT_MAX_RANK 8

/* Shape and dtype of a dense, row-major array. */
typedef struct weft_desc {
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[WEFT_MAX_RANK];
} weft_desc;

typedef struct weft_tensor weft_tensor;
typedef struct weft_value { uint32_t id; } weft_value;   /* a value inside a model; 0: none */
typedef struct weft_param { uint32_t id; } weft_param;   /* a parameter inside a model; 0: none */

/* Called exactly once, from any thread, when a wrapped tensor is no longer used. Returns normally; calls nothing of weft. */
typedef void (*weft_release_cb)(void *data, void *payload);

/* A tensor around memory of the caller, without a copy. `data` is aligned to its elements, stays valid and unchanged until `release`
 * (may be NULL) is called. Owner: caller; drop with weft_tensor_unref. On failure release is not called. Thread: any. */
WEFT_API weft_status weft_tensor_wrap(const weft_desc *desc, void *data, weft_release_cb release, void *payload, weft_tensor **out,
                                      weft_error *err);
/* A tensor of its own memory, zeroed. Owner: caller; drop with weft_tensor_unref. Thread: any. */
WEFT_API weft_status weft_tensor_new(const weft_desc *desc, weft_tensor **out, weft_error *err);
/* One more owner; returns its argument. Thread: any. */
WEFT_API weft_tensor *weft_tensor_ref(weft_tensor *tensor);
/* One owner less; the last one frees. NULL is a no-op. Thread: any. */
WEFT_API void weft_tensor_unref(weft_tensor *tensor);
/* Its memory. Borrowed: valid as long as the tensor. Thread: any. */
WEFT_API void *weft_tensor_data(const weft_tensor *tensor);
/* Its shape and dtype. Thread: any. */
WEFT_API weft_desc weft_tensor_desc(const weft_tensor *tensor);

/* ---- model --------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_model weft_model;

/* An empty model. Owner: caller; free with weft_model_free. Thread: any. */
WEFT_API weft_status weft_model_new(weft_model **out, weft_error *err);
/* NULL is a no-op. Thread: owner. */
WEFT_API void weft_model_free(weft_model *model);

enum { WEFT_INPUT_WANT_GRAD = 1 };   /* the gradient of this input can be read after a step; the targets of a loss have none */

/* An input. Dimension 0 of `sample` counts samples and is 1 here; F32 or I32. Thread: owner. */
WEFT_API weft_status weft_model_add_input(weft_model *model, const char *name, const weft_desc *sample, uint32_t flags, weft_value *out,
                                          weft_error *err);

enum { WEFT_INIT_ZEROS = 0, WEFT_INIT_CONSTANT = 1, WEFT_INIT_NORMAL = 2 };

/* A parameter, always F32. Its first value is 0, `value`, or drawn from N(0, value), keyed by the plan's seed, the name and the
 * element. Thread: owner. */
WEFT_API weft_status weft_model_add_param(weft_model *model, const char *name, const weft_desc *desc, uint32_t init, double value,
                                          weft_param *out, weft_error *err);

enum {
  WEFT_NODE_TANH = 1,        /* gelu: the tanh approximation */
  WEFT_NODE_CAUSAL = 2,      /* attention: row t sees columns up to t */
  WEFT_NODE_OUT_IN = 4,      /* linear: the weight is stored [out, in], not [in, out] */
  WEFT_NODE_POSITIONS = 8    /* embedding: look up positions along the last axis of the indices, not the indices */
};

/* A node: one op with its operands. Ops, collectives and the fields they read are listed in weft_model_add_node(3). */
typedef struct weft_node_config {
  uint32_t size;
  uint32_t flags;
  const char *name;           /* NULL: "<op>_<number>"; names are unique in a model */
  const char *op;             /* a built-in op, or one that was registered with weft_model_add_op */
  const weft_value *inputs;   /* in port order */
  const weft_param *params;   /* linear: weight, bias; conv1d: weight, bias; embedding: table; layer_norm: scale, shift;
                                 add, sub, mul: optionally the last operand */
  uint32_t n_inputs, n_params;
  int32_t axis;               /* mean, slice, concat */
  int32_t heads;              /* attention */
  int64_t begin, end;         /* slice */
  double factor;              /* scale: factor; layer_norm: epsilon; dropout, attention: probability of dropout */
  uint32_t rank, reserved;    /* of dims */
  int64_t dims[WEFT_MAX_RANK];/* reshape: target, the first may be -1 (the batch); transpose: permutation; conv1d: stride,
                                 padding, dilation; all_to_all: the dimension that is cut, the one that is joined */
  const char *axis_name;      /* collectives: the axis of the model over which they move values */
  const int32_t *coordinates; /* ppermute: per coordinate of the axis, the one whose value it gets, or -1 for zeros; mask: those that keep
                                 their value; broadcast: the one whose value all get */
  uint32_t n_coordinates, reserved2;
} weft_node_config;
#define WEFT_NODE_INIT {sizeof(weft_node_config), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, NULL, NULL, 0, 0}

/* Adds a node and infers its shape; an error names the node, the port and both shapes. Strings and arrays are copied. Thread: owner. */
WEFT_API weft_status weft_model_add_node(weft_model *model, const weft_node_config *config, weft_value *out, weft_error *err);

/* y = x W + b with new parameters NAME.weight [in, out], drawn from N(0, 0.02), and NAME.bias [out], zero; `in` is the last dimension
 * of x. Thread: owner. */
WEFT_API weft_status weft_model_add_linear(weft_model *model, const char *name, weft_value x, int64_t out_features, weft_value *out,
                                           weft_error *err);

/* The value is delivered by WEFT_FORWARD steps. Thread: owner. */
WEFT_API weft_status weft_model_add_output(weft_model *model, weft_value value, weft_error *err);

/* Makes the model an SPMD program: a program that runs at each coordinate of a mesh with this axis, of 1 to 16 coordinates. Its nodes see the
 * values of one coordinate, and collectives move values between coordinates. A model may have several axes; "data", "stage" and
 * "auto" are axes of plans. Of a loss, and of an output along an axis over which it is not cut, the value at coordinate 0 counts. Thread: owner. */
WEFT_API weft_status weft_model_add_axis(weft_model *model, const char *name, uint32_t size, weft_error *err);

enum { WEFT_CUT_DROP = 1 };   /* a coordinate has one index of the dimension, and its value is without that dimension */

/* Cuts dimension `dim` of an input, a parameter or an output over an axis into equal pieces, one per coordinate; without a cut, every
 * coordinate has the whole. `dim` counts the dimensions of the whole tensor, which is submitted, read, written and delivered; after
 * these calls nodes see the piece. An input or parameter is cut before a node uses it. Samples, dimension 0 of inputs and outputs,
 * are not cut. Thread: owner. */
WEFT_API weft_status weft_model_cut_input(weft_model *model, weft_value input, uint32_t dim, const char *axis, uint32_t flags,
                                          weft_error *err);
WEFT_API weft_status weft_model_cut_param(weft_model *model, weft_param param, uint32_t dim, const char *axis, uint32_t flags,
                                          weft_error *err);
WEFT_API weft_status weft_model_cut_output(weft_model *model, weft_value output, uint32_t dim, const char *axis, uint32_t flags,
                                           weft_error *err);

/* One tensor of a user op's call; data is NULL where the call has no use for it. */
typedef struct weft_view {
  void *data;
  weft_desc desc;
} weft_view;

/* An op of the caller: one output, no parameters. Every call must be a pure function of its operands. `shape` runs inside the calls that
 * make nodes, plans and profiles; the others on compute threads, inside weft_run_poll where a run has none. Callbacks may run at the same
 * time, return 0 or a failure (which fails the call, or ends the run, with WEFT_EUSER), must return normally and must not call weft. */
typedef struct weft_op {
  uint32_t size;
  uint32_t version;           /* part of the plan's hash, with the name */
  const char *name;           /* 1 to 200 bytes without spaces and control characters */
  /* Fills *out, F32 or I32, for these inputs. Asked with 1 and 2 samples for a node, with micro_batch_size and short_size for a plan: the
   * output has the samples in dimension 0, and is else the same for any number of them. Only F32 can have a gradient. */
  int32_t (*shape)(const weft_desc *in, uint32_t n_in, weft_desc *out, void *payload);
  int32_t (*forward)(const weft_view *in, uint32_t n_in, weft_view *out, void *payload);
  /* Writes (never adds to) grad_in[i].data where it is not NULL. NULL: no gradient, so nothing below is trained. */
  int32_t (*backward)(const weft_view *in, uint32_t n_in, const weft_view *out, const weft_view *grad_out, weft_view *grad_in,
                      void *payload);
  void (*destroy)(void *payload);   /* once, after the last model, plan and run that knows the op is gone; may be NULL */
} weft_op;
#define WEFT_OP_INIT {sizeof(weft_op), 1, NULL, NULL, NULL, NULL, NULL}

/* Registers an op under its name for this model. On failure destroy is not called. Thread: owner. */
WEFT_API weft_status weft_model_add_op(weft_model *model, const weft_op *op, void *payload, weft_error *err);

/* Elements of all parameters. Thread: owner. */
WEFT_API int64_t weft_model_parameters(const weft_model *model);

/* What a preset is and which data it takes. */
typedef struct weft_preset_info {
  uint32_t size;
  uint32_t tokens;      /* 1: inputs "tokens" and "targets" (I32 [1, seq_len]), output logits; 0: "x" and "target" (F32 [1, width]) */
  int64_t vocabulary, context, seq_len;   /* tokens */
  int64_t width;
  const char *text;     /* NAME with every key: makes the same model whatever the defaults become. Borrowed: valid as long as the model */
} weft_preset_info;
#define WEFT_PRESET_INFO_INIT {sizeof(weft_preset_info), 0, 0, 0, 0, 0, NULL}

/* A model by name, NAME[:key=value,...]: "mlp", "gpt-nano", "gpt2"; keys and defaults are listed in weft-train(1). `seq_len`: tokens per
 * sample, 0 for the whole context; `stages`: mlp has as many layers at least, where no key says how many. The model cannot be changed.
 * `info` may be NULL. Owner: caller; free with weft_model_free. Thread: any. */
WEFT_API weft_status weft_model_preset(const char *text, int64_t seq_len, uint32_t stages, weft_model **out, weft_preset_info *info,
                                       weft_error *err);

/* ---- profile ------------------------------------------------------------------------------------------------------------------- */

/* How long the kernels of each node of a model take on a machine. */
typedef struct weft_profile weft_profile;

typedef struct weft_profile_config {
  uint32_t size;
  uint32_t micro_batch_size;  /* samples; 0: 1. A plan takes a profile of its own micro-batch size alone. */
  uint32_t repeats;           /* micro-batches that count; 0: 10 */
  uint32_t threads;           /* 0: 1; at most 1024 */
} weft_profile_config;
#define WEFT_PROFILE_INIT {sizeof(weft_profile_config), 0, 0, 0}

/* A node's medians in seconds for one micro-batch, and bytes of what it makes. */
typedef struct weft_node_times {
  uint32_t size, reserved;
  const char *name;           /* borrowed: valid as long as the profile */
  double forward, input, weight;
  uint64_t output_bytes, stash_bytes;
} weft_node_times;
#define WEFT_NODE_TIMES_INIT {sizeof(weft_node_times), 0, NULL, 0, 0, 0, 0, 0}

/* Runs every kernel of the model on drawn data, in this thread and `threads` - 1 others. After that the model can no longer be changed.
 * `config` may be NULL. Owner: caller; free with weft_profile_free. Thread: owner of the model. */
WEFT_API weft_status weft_profile_new(weft_model *model, const weft_profile_config *config, weft_profile **out, weft_error *err);
/* Reads what weft_profile_save wrote. Owner: caller; free with weft_profile_free. Thread: any. */
WEFT_API weft_status weft_profile_load(const char *path, weft_profile **out, weft_error *err);
/* Writes it as JSON, in place of what was at `path`. Thread: any. */
WEFT_API weft_status weft_profile_save(const weft_profile *profile, const char *path, weft_error *err);
/* Number of nodes, those of the model without its inputs; one of them, or WEFT_ENOENT. Thread: any. */
WEFT_API uint32_t weft_profile_nodes(const weft_profile *profile);
WEFT_API weft_status weft_profile_node(const weft_profile *profile, uint32_t index, weft_node_times *times);
/* NULL is a no-op. Thread: any. */
WEFT_API void weft_profile_free(weft_profile *profile);

/* ---- plan ---------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_plan weft_plan;

/* Machines and links that need not be here: how many ranks, how fast, how far apart. The file is described in weft-plan(1). */
typedef struct weft_cluster weft_cluster;

/* Reads a cluster file. Owner: caller; free with weft_cluster_free. Thread: any. */
WEFT_API weft_status weft_cluster_load(const char *path, weft_cluster **out, weft_error *err);
/* NULL is a no-op. Thread: owner. */
WEFT_API void weft_cluster_free(weft_cluster *cluster);
/* Number of its ranks. Thread: any. */
WEFT_API uint32_t weft_cluster_ranks(const weft_cluster *cluster);

enum { WEFT_WARM_UP_AUTO = 0x7fffffff };

enum { WEFT_ADAMW = 0, WEFT_ADAM = 1, WEFT_SGD = 2 };
enum { WEFT_RATE_CONSTANT = 0, WEFT_RATE_COSINE = 1 };
enum { WEFT_SPLIT_COST = 0, WEFT_SPLIT_UNIFORM = 1, WEFT_SPLIT_PARAMETERS = 2, WEFT_SPLIT_TYPE = 3, WEFT_SPLIT_PIPEDREAM = 4 };

/* Update rule, as in PyTorch. */
typedef struct weft_optimizer {
  uint32_t size;
  uint32_t rule;              /* WEFT_ADAMW, WEFT_ADAM, WEFT_SGD */
  double rate;                /* learning rate; 0: 1e-3 */
  double momentum;            /* sgd */
  double beta1, beta2, eps;   /* adam, adamw; 0: 0.9, 0.999, 1e-8 */
  double weight_decay;        /* of parameters of rank 2 and more */
  double clip;                /* global norm of the gradients; 0: no clipping */
  uint32_t curve;             /* WEFT_RATE_CONSTANT, WEFT_RATE_COSINE */
  uint32_t decay_all;         /* 1: parameters of rank 0 and 1 decay as well */
  uint64_t warmup;            /* steps of linear warm-up */
  uint64_t total;             /* cosine: steps until min_rate */
  double min_rate;
} weft_optimizer;
#define WEFT_OPTIMIZER_INIT {sizeof(weft_optimizer), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

enum { WEFT_STEPS_TRAIN = 1, WEFT_STEPS_EVAL = 2, WEFT_STEPS_FORWARD = 4 };

/* An axis of the mesh of ranks: "data", replicas which divide the micro-batches of a step; "stage", the ranks of a pipeline; "tensor",
 * ranks that share each stage and compute its pieces. Of a model with axes of its own, those instead of "tensor": ranks that share each
 * stage and its coordinates. */
typedef struct weft_axis { const char *name; uint32_t size, reserved; } weft_axis;  /* size: 1 to 4096 */

typedef struct weft_plan_config {
  uint32_t size;
  uint32_t ranks;             /* of a pipeline, if there are no axes; 0: 1 */
  uint32_t micro_batches;     /* of a step; 0: 1 */
  uint32_t micro_batch_size;  /* samples; 0: 1 */
  uint32_t short_size;        /* samples that a step's last micro-batch may have instead; 0: always full */
  uint32_t split;             /* WEFT_SPLIT_COST (the dearest stage is cheapest), _UNIFORM (nodes), _PARAMETERS, _TYPE (nodes of an op),
                                 _PIPEDREAM (its partitioner; for schedule "pipedream" it also chooses stage_replicas) */
  const char *schedule;       /* NULL: "1f1b"; another of weft_schedule_describe; "auto": the best of weft_plan_compare */
  const char *const *cuts;    /* names of the first nodes of stages 1, 2, ...; replaces split */
  uint32_t n_cuts, reserved;
  uint64_t seed;
  const weft_optimizer *optimizer;   /* NULL: the defaults */
  uint32_t chunks;            /* stages per rank; 0: as many as the schedule makes */
  uint32_t group;             /* interleaved: micro-batches that pass a chunk before the next one's turn; 0: as many as ranks */
  uint32_t warm_up;           /* 1f1b: forwards before the first backward, per later rank; 0: 1; 2 hides latency; WEFT_WARM_UP_AUTO */
  uint32_t step_kinds;        /* what steps runs make, of WEFT_STEPS_...; 0: all that the model can. The others take no memory:
                                 without training no gradients and no optimizer state, without forward steps no outputs at rank 0 */
  const char *schedule_text;  /* a schedule written out, as weft_plan_timetable writes it; replaces schedule. NULL: none */
  const char *recompute;      /* what is made again for the backward, not kept: NULL or "none", "stage", "every:N" nodes, "auto" */
  uint64_t memory_limit;      /* bytes of a rank; kept by recompute "auto", otherwise by WEFT_SPLIT_COST; 0: no limit */
  const char *split_type;     /* WEFT_SPLIT_TYPE: the name of an op, "attention" */
  const weft_profile *profile;       /* measured times; NULL: what the ops say they need */
  const double *speeds;       /* of each rank, in units of the machine of the profile, for WEFT_SPLIT_COST and predictions; NULL: all 1 */
  double link_latency;        /* of a message, in seconds: for WEFT_SPLIT_COST, predictions, and landing places for what comes meanwhile */
  double link_bandwidth;      /* of a link, each way, in bytes a second, for WEFT_SPLIT_COST, _PIPEDREAM and predictions; 0: no limit */
  const weft_cluster *cluster;       /* what the plan is cut, chosen and predicted for; replaces the three above. NULL: no such thing */
  uint32_t segment;           /* asynchronous schedules: updates of a step, each of micro_batches; a multiple of all stage_replicas. 0: 16, or more */
  uint32_t vertical_sync;     /* 1: every stage uses the version of its weights that the first stage does */
  uint32_t gradient_groups;   /* in which the gradients of a step's micro-batches are added, 1 to micro_batches; decides rounding. 0: as many as replicas */
  uint32_t n_axes;
  const weft_axis *axes;      /* at most one of each name; replaces ranks. Rank (d * stage + p) * tensor + t has piece t of position p of replica d. Axes
                                 of the model take the place of tensor, in the order of the model. Or only "auto": the best mesh of so many
                                 ranks, for a model without axes. NULL: none */
  uint32_t tensor;            /* pieces into which the large nodes are cut (tensor parallelism), 1 to 16; decides rounding. 0: the size of the axis "tensor" */
  const char *shard;          /* what replicas keep in parts: NULL or "optimizer": the state of the optimizer; "none": nothing;
                                 "parameters": also the values, which are gathered for each block of the model */
  const char *stage_replicas; /* schedule "pipedream": ranks of each stage, as "3,1", which take turns with its micro-batches; the stage makes an
                                 update of so many of them, by their mean; decides rounding. NULL or "": one each */
} weft_plan_config;
#define WEFT_PLAN_INIT \
  {sizeof(weft_plan_config), 0, 0, 0, 0, 0, NULL, NULL, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, 0, NULL, NULL, NULL, 0, 0, NULL, 0, 0, 0, 0, NULL, 0, NULL, NULL}

/* A schedule that weft can make. */
typedef struct weft_schedule_info {
  uint32_t size;
  uint32_t chunks;            /* stages per rank; 0: any number, 2 unless told otherwise */
  const char *name;           /* borrowed: valid for ever, as is about */
  const char *about;          /* one line, with the sizes that it allows */
  uint32_t asynchronous;      /* 1: weights change while other micro-batches are under way */
  uint32_t forward_only;      /* 1: trains nothing */
} weft_schedule_info;
#define WEFT_SCHEDULE_INFO_INIT {sizeof(weft_schedule_info), 0, NULL, NULL, 0, 0}

/* Row `index` of the table of schedules; WEFT_ENOENT beyond its end. Thread: any. */
WEFT_API weft_status weft_schedule_describe(uint32_t index, weft_schedule_info *info);

/* Partitions, schedules, proves the schedule free of deadlock, and places every byte. The model can no longer be changed after the
 * first weft_plan_new, _load, _compare or weft_profile_new that has not failed. Owner: caller; free with weft_plan_free. Thread:
 * owner of the model. */
WEFT_API weft_status weft_plan_new(weft_model *model, const weft_plan_config *config, weft_plan **out, weft_error *err);
/* Writes what the plan is made of (the stages' first nodes, schedule, sizes, settings) as JSON, in place of what was at `path`; reads it
 * back into the same plan, for the same model, or fails (weft_plan_new(3) says how to edit one). It runs as the one that was saved;
 * profile, speeds, links and cluster, by which that was chosen, are not in the file, so it is predicted without them. Owner: caller; free
 * with weft_plan_free. Thread: any for weft_plan_save, owner of the model for weft_plan_load. */
WEFT_API weft_status weft_plan_save(const weft_plan *plan, const char *path, weft_error *err);
WEFT_API weft_status weft_plan_load(weft_model *model, const char *path, weft_plan **out, weft_error *err);
/* NULL is a no-op. Thread: any. */
WEFT_API void weft_plan_free(weft_plan *plan);
/* Number of stages. Thread: any. */
WEFT_API uint32_t weft_plan_stages(const weft_plan *plan);
/* Bytes that a run takes for tensors on that rank; 0 for a rank that is not. Thread: any. */
WEFT_API int64_t weft_plan_bytes(const weft_plan *plan, uint32_t rank);

/* What planned bytes are for. */
typedef enum weft_memory_kind {
  WEFT_MEMORY_WEIGHTS = 1,      /* all versions */
  WEFT_MEMORY_GRADIENTS = 2,    /* accumulators, and the sums for the norm */
  WEFT_MEMORY_OPTIMIZER = 3,    /* state of the optimizer */
  WEFT_MEMORY_ACTIVATIONS = 4,  /* values of micro-batches that only this rank uses */
  WEFT_MEMORY_MESSAGES = 5,     /* slots of values that arrive from other ranks or leave for them */
  WEFT_MEMORY_SCRATCH = 6       /* of one kernel, or of one action */
} weft_memory_kind;
/* Planned bytes of one kind on a rank; the sum over all kinds is weft_plan_bytes. 0 if `rank` or `kind` is out of range. Thread: any. */
WEFT_API int64_t weft_plan_memory(const weft_plan *plan, uint32_t rank, weft_memory_kind kind);
/* Learning rate of step `step`; the first step is 0. Thread: any. */
WEFT_API double weft_plan_rate(const weft_plan *plan, uint64_t step);
/* Elements of the parameters that a rank owns, and of those that it holds (its own and copies of tied ones). Thread: any. */
WEFT_API int64_t weft_plan_owned(const weft_plan *plan, uint32_t rank);
WEFT_API int64_t weft_plan_resident(const weft_plan *plan, uint32_t rank);
/* The training timetable as text, a row per rank of a pipeline ("0F0 0F1 0B0 0B1"), and a NUL; weft_plan_config.schedule_text takes
 * it back. Writes at most `size` bytes into `buffer`; returns the bytes the whole text needs with its NUL, as snprintf would. Thread:
 * any. */
WEFT_API size_t weft_plan_timetable(const weft_plan *plan, char *buffer, size_t size);

/* What a plan came to, where its configuration left a choice. */
typedef struct weft_plan_info {
  uint32_t size;
  uint32_t ranks, stages, micro_batches;
  const char *schedule;       /* its name, "written" for one that was written out. Borrowed: valid as long as the plan */
  uint32_t warm_up;           /* 1f1b: forwards ahead per later rank; else 0 */
  uint32_t reserved;
} weft_plan_info;
#define WEFT_PLAN_INFO_INIT {sizeof(weft_plan_info), 0, 0, 0, NULL, 0, 0}

/* Thread: any. */
WEFT_API weft_status weft_plan_describe(const weft_plan *plan, weft_plan_info *info);
/* The first rank that hosts a stage, in replica 0; 0 if `stage` is out of range. Thread: any. */
WEFT_API uint32_t weft_plan_rank(const weft_plan *plan, uint32_t stage);
/* The number of ranks that have the same part of a stage: replicas of the pipeline, or the ranks that take turns by stage_replicas. The
 * latter are consecutive, from weft_plan_rank on. 0 if `stage` is out of range. Thread: any. */
WEFT_API uint32_t weft_plan_replicas(const weft_plan *plan, uint32_t stage);

/* Updates that a step of WEFT_TRAIN makes at the most: those of a segment of an asynchronous schedule, otherwise 1. Thread: any. */
WEFT_API uint32_t weft_plan_updates(const weft_plan *plan);
/* Minibatches that an asynchronous schedule best has under way (PipeDream's NOAM); 0 for a synchronous one. Thread: any. */
WEFT_API uint32_t weft_plan_noam(const weft_plan *plan);
/* Versions of its weights that a rank keeps at once: 1 with a synchronous schedule; 0 for a rank that is not. Thread: any. */
WEFT_API uint32_t weft_plan_versions(const weft_plan *plan, uint32_t rank);

/* ---- prediction ---------------------------------------------------------------------------------------------------------------- */

/* One step of a plan (a training step; a forward one, for a model without a loss), simulated with the engine that runs it. Kernels take
 * the times that the plan was made from, messages those of its links. */
typedef struct weft_prediction weft_prediction;

enum { WEFT_PREDICT_TIMELINE = 1 };   /* keep when every job runs, for weft_prediction_save_trace */

/* Owner: caller; free with weft_prediction_free. Thread: any. */
WEFT_API weft_status weft_plan_simulate(const weft_plan *plan, uint32_t flags, weft_prediction **out, weft_error *err);
/* NULL is a no-op. Thread: owner. */
WEFT_API void weft_prediction_free(weft_prediction *prediction);

typedef struct weft_prediction_info {
  uint32_t size;
  uint32_t ranks, links;
  uint32_t reserved;
  double seconds;             /* of the step, until the controller has heard of everything */
  double commit_seconds;      /* from its begin until the weights may change */
  double idle, idle_own;      /* means over ranks */
  int64_t peak_bytes;         /* of the largest rank */
  int64_t messages, bytes;    /* tensors over all links */
} weft_prediction_info;
#define WEFT_PREDICTION_INFO_INIT {sizeof(weft_prediction_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

typedef struct weft_rank_prediction {
  uint32_t size, reserved;
  double first, last;         /* seconds of the step: its first action begins, its last one ends */
  double busy;                /* seconds in kernels of actions */
  double idle;                /* share of the step, from its begin to the commit, in which the rank runs no kernel */
  double idle_own;            /* the same from first to last */
  int64_t peak_bytes;
} weft_rank_prediction;
#define WEFT_RANK_PREDICTION_INIT {sizeof(weft_rank_prediction), 0, 0, 0, 0, 0, 0, 0}

typedef struct weft_link_prediction {
  uint32_t size;
  uint32_t from, to;          /* ranks */
  uint32_t reserved;
  int64_t messages, bytes;    /* of a step */
} weft_link_prediction;
#define WEFT_LINK_PREDICTION_INIT {sizeof(weft_link_prediction), 0, 0, 0, 0, 0}

/* Thread: any. The last two: WEFT_ENOENT beyond the last. */
WEFT_API weft_status weft_prediction_describe(const weft_prediction *prediction, weft_prediction_info *info);
WEFT_API weft_status weft_prediction_rank(const weft_prediction *prediction, uint32_t rank, weft_rank_prediction *out);
WEFT_API weft_status weft_prediction_link(const weft_prediction *prediction, uint32_t index, weft_link_prediction *out);
/* Writes the timeline as weft_run_save_trace writes that of a run, so that both open side by side. Thread: any. */
WEFT_API weft_status weft_prediction_save_trace(const weft_prediction *prediction, const char *path, weft_error *err);

/* Every schedule that a configuration allows, predicted. */
typedef struct weft_comparison weft_comparison;

typedef struct weft_candidate {
  uint32_t size;
  uint32_t chunks;            /* stages per rank */
  uint32_t warm_up;           /* 1f1b: forwards ahead per later rank; else 0 */
  uint32_t best;              /* 1: the fastest that keeps to the bytes of a rank; of those within a thousandth of it the smallest */
  uint32_t over;              /* 1: some rank takes more */
  uint32_t reserved;
  const char *schedule;       /* borrowed, as is refused: valid as long as the comparison */
  const char *refused;        /* why there is no such plan, or NULL; then all that follows is 0 */
  double seconds, idle, idle_own;
  int64_t peak_bytes, bytes;
  uint32_t data, stage, tensor, reserved2;   /* sizes of the axes, if axis "auto" was given; else 0, as are the next two */
  double work, waiting;       /* of seconds: the busiest rank in kernels, and what waiting for other ranks adds. Messages take the rest */
  const char *shard;          /* weft_plan_config.shard of the candidate, borrowed as is schedule; NULL without the axis "auto" */
} weft_candidate;
#define WEFT_CANDIDATE_INIT {sizeof(weft_candidate), 0, 0, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL}
/* Plans and simulates a step for each of several candidates. If config->schedule is "auto", the candidates are all synchronous schedules
 * of weft_schedule_describe; otherwise only that schedule. If config->warm_up is WEFT_WARM_UP_AUTO, 1f1b has a candidate for each of
 * several warm-ups. With the axis "auto", there is one candidate per mesh of that many ranks, with its best schedule; if config->shard
 * is NULL, replicas keep the parameters in parts where they do not fit otherwise. Owner: caller; free with weft_comparison_free. Thread:
 * owner of the model. */
WEFT_API weft_status weft_plan_compare(weft_model *model, const weft_plan_config *config, weft_comparison **out, weft_error *err);
/* NULL is a no-op. Thread: owner. */
WEFT_API void weft_comparison_free(weft_comparison *comparison);
/* Row `index`; WEFT_ENOENT beyond the last. Thread: any. */
WEFT_API weft_status weft_comparison_row(const weft_comparison *comparison, uint32_t index, weft_candidate *out);

/* ---- mesh ---------------------------------------------------------------------------------------------------------------------- */

/* The processes that share a run. Rank 0, the controller, listens and starts the run; every other process joins and serves. */
typedef struct weft_mesh weft_mesh;

enum { WEFT_MESH_INSECURE = 1 };   /* tcp without encryption: any process that reaches rank 0 may join. All ranks of the run need the flag */

#define WEFT_KEY_SIZE 65           /* a key as text: 64 digits, 0 to 9 and a to f, and a NUL */

typedef struct weft_mesh_config {
  uint32_t size;
  uint32_t flags;
  const char *endpoint;       /* listen: "ipc://" (NULL; a socket in a directory of its own, mode 0700), "ipc://PATH", "tcp://ADDR:PORT"
                                 (port 0: any); join: what rank 0's weft_mesh_join_endpoint returned */
  const char *listen;         /* join: where this process is reached by other ranks; NULL: chosen, on the way that leads to rank 0 */
  uint32_t rank;              /* join: the rank it wants; 0: any */
  uint32_t join_timeout_ms;   /* 0: 60000 */
  uint32_t peer_timeout_ms;   /* listen: after how long without a frame from it a rank is lost, on every rank of the run; at least 1000,
                                 0: 5000; join: the same until rank 0's value is known */
  uint32_t reserved;
  const char *key;            /* tcp: secret key of this process. listen: by which others know rank 0; NULL: made for this mesh. join: by
                                 which rank 0 allows this process, if `endpoint` has only rank 0's public key; or no key, and rank 0 has
                                 the same */
  const char *allow;          /* listen, tcp: public keys of processes that may join with no other permission, one per line; text after a
                                 space and lines that begin with '#' are comments. NULL: none */
} weft_mesh_config;
#define WEFT_MESH_INIT {sizeof(weft_mesh_config), 0, NULL, NULL, 0, 0, 0, 0, NULL, NULL}

/* Rank 0: starts to listen, on a thread of its own. `config` may be NULL. Owner: caller; free with weft_mesh_free. Thread: any. */
WEFT_API weft_status weft_mesh_listen(const weft_mesh_config *config, weft_mesh **out, weft_error *err);
/* Any other rank: opens its own door; rank 0 is met in weft_run_serve. Owner: caller; free with weft_mesh_free. Thread: any. */
WEFT_API weft_status weft_mesh_join(const weft_mesh_config *config, weft_mesh **out, weft_error *err);
/* Where this process listens. Borrowed: valid as long as the mesh. Thread: any. */
WEFT_API const char *weft_mesh_endpoint(const weft_mesh *mesh);
/* Rank 0: the endpoint with which other processes join. Over tcp it ends in "?key=" and two keys. A process that has it may join: keep it
 * secret. The empty text for a mesh that joins. Borrowed: valid as long as the mesh. Thread: any. */
WEFT_API const char *weft_mesh_join_endpoint(const weft_mesh *mesh);
/* How many connections this process has turned away: whoever came to its endpoint and was no weft, or one that does not fit. Writes into
 * `buffer`, at most `size` bytes with a NUL, what is to be said of the last one: "a connection from tcp://127.0.0.1:40123: not a weft
 * connection: ..."; the empty text if there was none. Thread: any. */
WEFT_API uint64_t weft_mesh_refused(const weft_mesh *mesh, char *buffer, size_t size);
/* Ends with WEFT_ECANCELED what waits or works on the mesh in this process, now or later: weft_run_start, weft_run_serve, the steps of a
 * run. The other ranks fail with it. NULL is a no-op. Thread: any, and signal handlers. */
WEFT_API void weft_mesh_cancel(weft_mesh *mesh);
/* NULL is a no-op. After the runs on it have been freed. Thread: owner. */
WEFT_API void weft_mesh_free(weft_mesh *mesh);

/* Writes a new secret key into `secret`, WEFT_KEY_SIZE bytes. Thread: any. */
WEFT_API weft_status weft_key_new(char *secret, weft_error *err);
/* Writes the public key that belongs to a secret one into `public_key`, WEFT_KEY_SIZE bytes. Thread: any. */
WEFT_API weft_status weft_key_public(const char *secret, char *public_key, weft_error *err);

/* Name of the first node of a stage; NULL for a stage that is not. Borrowed: valid as long as the plan. Thread: any. */
WEFT_API const char *weft_plan_first(const weft_plan *plan, uint32_t stage);

/* ---- data ---------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_data weft_data;

typedef struct weft_data_config {
  uint32_t size, reserved;
  const char *path;           /* bytes for a vocabulary of 256; else ids, little-endian: NAME.u16 or NAME.u32; NULL: drawn from the seed */
  const char *eval_path;      /* held-out data of their own, or NULL */
  double eval_share;          /* else the last share of `path` is held out; 0: none. Drawn data have 64 windows held out in any case */
  int64_t vocabulary, seq_len;   /* tokens; 0: rows of numbers, `path` is NULL */
  int64_t width;              /* of rows */
} weft_data_config;
#define WEFT_DATA_INIT {sizeof(weft_data_config), 0, NULL, NULL, 0, 0, 0, 0}

/* Opens training data. A file is read once, and refused if it is too short or has an id that the vocabulary does not have. Owner: caller;
 * free with weft_data_free. Thread: any. */
WEFT_API weft_status weft_data_open(const weft_data_config *config, weft_data **out, weft_error *err);
/* NULL is a no-op. Thread: owner. */
WEFT_API void weft_data_free(weft_data *data);
/* Fills the two inputs of a preset, whose dimension 0 counts the samples. Sample j is the window at an offset that is drawn for (seed,
 * step, j), and the same window one token later as targets. Thread: any. */
WEFT_API weft_status weft_data_sample(const weft_data *data, uint64_t seed, uint64_t step, weft_tensor *x, weft_tensor *target,
                                      weft_error *err);
/* Windows of held-out data, which follow each other; 0: nothing is held out. Thread: any. */
WEFT_API int64_t weft_data_eval_windows(const weft_data *data);
/* Fills the two inputs with held-out windows from `first` on. Thread: any. */
WEFT_API weft_status weft_data_eval(const weft_data *data, int64_t first, weft_tensor *x, weft_tensor *target, weft_error *err);

/* ---- run ----------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_run weft_run;

typedef struct weft_run_config {
  uint32_t size;
  uint32_t threads;           /* compute threads per rank, at most 1024; 0: one with a mesh; without one, everything runs inside
                                 weft_run_poll */
} weft_run_config;
#define WEFT_RUN_INIT {sizeof(weft_run_config), 0}

/* Takes the memory that the plan says, draws the first values of the parameters. `mesh` NULL: all ranks live in this process. Otherwise
 * waits until every other rank has joined, or fails with WEFT_ETIMEDOUT and the ranks that are missing; the mesh outlives the run and
 * serves one run. `config` may be NULL. Owner: caller; free with weft_run_free. Thread: any. */
WEFT_API weft_status weft_run_start(const weft_plan *plan, weft_mesh *mesh, const weft_run_config *config, weft_run **out,
                                    weft_error *err);
/* NULL is a no-op. Drops steps that were submitted and not polled; ends the run on every rank. May wait for a job under way. Thread:
 * owner. */
WEFT_API void weft_run_free(weft_run *run);
/* Any rank but 0: joins, is given a rank, model and plan, and serves until the run ends. Returns WEFT_OK after an orderly end, otherwise
 * what failed and on which rank (WEFT_EPEER: a rank was lost; WEFT_ECANCELED: rank 0 ended the run while a step was under way). `plan`: of
 * a process that made the plan itself, which must equal that of rank 0 (WEFT_EPEER names the section that differs); NULL: taken from
 * rank 0. `ops`: a model whose user ops are known here; may be NULL. `config` may be NULL; threads 0 counts as 1. Thread: owner of the
 * mesh. */
WEFT_API weft_status weft_run_serve(weft_mesh *mesh, const weft_plan *plan, const weft_model *ops, const weft_run_config *config,
                                    weft_error *err);

enum {
  WEFT_TRAIN = 0,       /* forward, backward, update */
  WEFT_NO_UPDATE = 1,   /* forward, backward; weights stay, gradients can be read */
  WEFT_EVAL = 2,        /* forward to the loss */
  WEFT_FORWARD = 4      /* forward to the outputs; inputs that they do not need may be NULL */
};

/* One step: all samples of all inputs, in the order in which the inputs were added, dimension 0 being the samples. The engine cuts them
 * into micro-batches, and with an asynchronous schedule WEFT_TRAIN makes an update of every weft_plan_config.micro_batches of them. On
 * WEFT_OK the run has taken references of its own and delivers events with this tag: one per micro-batch, then exactly one final one. On
 * failure nothing has changed and no event comes; WEFT_EAGAIN: 16 steps and saves are not over. Thread: owner. */
WEFT_API weft_status weft_run_submit(weft_run *run, weft_tensor *const *inputs, uint32_t n_inputs, uint32_t flags, uint64_t tag,
                                     weft_error *err);

enum {
  WEFT_EVENT_MICRO_BATCH = 1,   /* loss of one micro-batch, or its outputs */
  WEFT_EVENT_DONE = 2,          /* final: the step is over */
  WEFT_EVENT_ERROR = 3,         /* final: the run has failed; status and text say why */
  WEFT_EVENT_UPDATE = 4,        /* asynchronous schedules: what an update of the step came to; ascending, before the final event */
  WEFT_EVENT_SAVED = 5          /* final event of a save that was queued: `path`, or status and text say why there is none */
};

enum {
  WEFT_CAUSE_FAILED = 1,        /* something failed in the process of the rank; detail describes it */
  WEFT_CAUSE_CLOSED = 2,        /* the connection to the rank was closed; detail: what the transport reports */
  WEFT_CAUSE_SILENT = 3,        /* nothing arrived from the rank for limit_ms */
  WEFT_CAUSE_MISSING = 4,       /* count data frames that the rank announced did not arrive within limit_ms */
  WEFT_CAUSE_UNREACHABLE = 5,   /* the rank did not connect, within limit_ms unless that is 0; detail: what the transport reports */
  WEFT_CAUSE_LATE = 6,          /* the rank did not do within limit_ms what detail names */
  WEFT_CAUSE_REFUSED = 7,       /* the process differs from the rest of the run; detail says how */
  WEFT_CAUSE_PROTOCOL = 8,      /* the rank violated the protocol; detail says how */
  WEFT_CAUSE_NO_RUN = 9         /* the run did not begin; detail says why */
};
enum { WEFT_ACTIVITY_UNKNOWN = 0, WEFT_ACTIVITY_IDLE = 1, WEFT_ACTIVITY_RUNS = 2, WEFT_ACTIVITY_WAITS = 3 };
enum {
  WEFT_AWAITS_NOTHING = 0,
  WEFT_AWAITS_COMMIT = 1,       /* rank 0 says when the weights may change */
  WEFT_AWAITS_RELEASE = 2,      /* the rank's own messages have to leave */
  WEFT_AWAITS_INPUT = 3,
  WEFT_AWAITS_ACTIVATION = 4,
  WEFT_AWAITS_GRADIENT = 5,
  WEFT_AWAITS_MESSAGE = 6       /* any other message */
};

/* Why a run has failed, as facts. Every rank has the same ones. */
typedef struct weft_failure {
  uint32_t size;
  uint32_t cause;                 /* WEFT_CAUSE_... */
  weft_status status;
  int32_t rank;                   /* the rank that failed, not the one that noticed; -1: none in particular */
  int32_t other;                  /* not -1: both ranks are alive, and the connection between them was lost */
  uint32_t joining;               /* 1: the process of the rank had not joined the run yet */
  uint32_t pid;                   /* of that process; 0: this process, or unknown */
  uint32_t n_stages;
  const uint32_t *stages;         /* that the rank hosts, ascending */
  const char *host;               /* of that process; "": this one, or unknown */
  const char *detail;             /* for a person; its meaning depends on the cause */
  uint32_t activity;              /* WEFT_ACTIVITY_...: what the rank did when it failed; of a rank that was lost, its last status */
  uint32_t job;                   /* 'F', 'I', 'W', 'B', 'R', 'O': that action. 'c': clears gradients, 'g': reduces them, 'u': updates weights,
                                     'e': finishes the step. 0: none */
  int32_t stage, micro_batch;     /* of the action; -1 if it is none */
  uint32_t mode;                  /* of the step: WEFT_TRAIN, WEFT_EVAL, WEFT_FORWARD */
  uint32_t awaited;               /* WEFT_AWAITS_... */
  int32_t awaited_rank;           /* from which the message is awaited; otherwise -1 */
  uint32_t reserved;
  uint64_t step;                  /* training steps before that step; WEFT_ACTIVITY_IDLE: steps of any kind that are done */
  int64_t limit_ms, count;        /* depend on the cause */
  int64_t heard_ms;               /* time since the last frame of the rank; -1: unknown */
  int64_t reported_ms;            /* time since its last status; -1: unknown */
} weft_failure;
#define WEFT_FAILURE_INIT \
  {sizeof(weft_failure), 0, 0, -1, -1, 0, 0, 0, NULL, NULL, NULL, 0, 0, -1, -1, 0, 0, -1, 0, 0, 0, 0, -1, -1}

typedef struct weft_event {
  uint32_t size;
  uint32_t kind;                  /* ignore kinds that you do not know */
  uint64_t tag;
  weft_status status;
  uint32_t micro_batch;
  uint64_t step;                  /* training steps before this one; update: updates before it; saved: those in the checkpoint */
  double loss;                    /* mean over what the loss counts: of the micro-batch, of the update, or of the whole step */
  double grad_norm;               /* done, update: global norm before clipping; done after several updates: of the last. Where the loss or
                                     the norm is not finite the update was made all the same, and the weights are spoiled: look at it */
  weft_tensor *const *outputs;    /* micro-batch of a WEFT_FORWARD step: in the order of weft_model_add_output. Borrowed as all here: copy
                                     what is to stay. A reference keeps no content, and none can be submitted */
  uint32_t n_outputs;
  int32_t rank;                   /* error, saved: the rank that failed, or -1 */
  const char *text;               /* error, saved: why; else NULL */
  double idle;                    /* done: share of the time from the step's first forward to its last backward action, on any rank, in
                                     which a rank ran no kernel; mean over ranks */
  const double *idle_by_rank;     /* done; ranks of different machines are compared by their own clocks */
  uint32_t n_ranks, reserved2;
  const char *path;               /* saved: the checkpoint; NULL if there is none */
  const weft_failure *failure;    /* error, and saved if the run has failed: the same as facts; otherwise NULL */
} weft_event;
#define WEFT_EVENT_INIT {sizeof(weft_event), 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, NULL, 0, NULL, 0, 0, NULL, NULL}

/* The next event into *event, whose size is set; what it points to is borrowed until the next poll. Returns 1 for an event, 0 when the
 * time (nanoseconds; negative: no limit) is over or nothing was submitted; without an event all of *event but its size is 0. Thread:
 * owner. */
WEFT_API weft_status weft_run_poll(weft_run *run, weft_event *event, int64_t timeout_ns);

/* Why the run has failed, also if another call than weft_run_poll noticed it. Returns 1 and fills *out, or 0 for a run that has not
 * failed. What *out points to is borrowed: valid as long as the run. Thread: owner. */
WEFT_API weft_status weft_run_failure(const weft_run *run, weft_failure *out);

/* The facts as text for a person, as in weft_event.text, and a NUL; a caller that knows more may change them before. Writes at most `size`
 * bytes; returns the bytes that the whole text needs, as snprintf would. Thread: any. */
WEFT_API size_t weft_failure_text(const weft_failure *failure, char *buffer, size_t size);

/* Readable while weft_run_poll has something to do; level-triggered, for poll(2) and the like; never read from it. -1: the process had no
 * descriptor left when the run started. Borrowed: valid as long as the run. Thread: any. */
WEFT_API int weft_run_fd(const weft_run *run);

/* Bytes of a rank's tensors that are really in memory; compare weft_plan_bytes. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_resident(weft_run *run, uint32_t rank, int64_t *bytes, weft_error *err);

enum { WEFT_VALUE = 0, WEFT_GRAD = 1, WEFT_STATE = 2 };   /* WEFT_STATE + k: optimizer tensor k (momentum; exp_avg, exp_avg_sq) */

/* Copies a parameter, its gradient of the last step that went backward (before clipping; of a step with several updates, that of the
 * last one), or its optimizer state, or the gradient of an input (WEFT_GRAD; the samples of the last step), into or from `tensor`, which
 * has its shape. Only between steps: WEFT_ESTATE while steps or saves are not over. Thread: owner. */
WEFT_API weft_status weft_run_read(weft_run *run, const char *name, uint32_t what, weft_tensor *tensor, weft_error *err);
WEFT_API weft_status weft_run_write(weft_run *run, const char *name, uint32_t what, const weft_tensor *tensor, weft_error *err);

/* From now on every rank keeps when its next `jobs` jobs (actions and the like) ran; 0: no more. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_trace(weft_run *run, uint32_t jobs, weft_error *err);
/* Writes what was kept as a Chrome trace (JSON; chrome://tracing, Perfetto), a process per rank. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_save_trace(weft_run *run, const char *path, weft_error *err);

/* 32 hex digits and a NUL over all parameter bits by name: two runs agree if and only if their digests do. XXH3-128 over, per parameter
 * in byte order of names, its name, a NUL, and the XXH3-128 of its little-endian bytes (two little-endian 64-bit words, the high one
 * first); a tied parameter counts once. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_digest(weft_run *run, char digest[33], weft_error *err);
/* The same over the optimizer state, whose tensors are named PARAMETER.exp_avg, PARAMETER.exp_avg_sq or PARAMETER.momentum. Thread:
 * owner. */
WEFT_API weft_status weft_run_optimizer_digest(weft_run *run, char digest[33], weft_error *err);

/* ---- checkpoints --------------------------------------------------------------------------------------------------------------- */

typedef struct weft_pair { const char *key, *value; } weft_pair;

typedef struct weft_save_config {
  uint32_t size;
  uint32_t n_options;
  const char *directory;      /* made if there is none; holds step-00000010/, ..., and latest, which names the newest. Two are kept. */
  const char *model;          /* what the model is, for whoever loads it: a preset's text; NULL: nothing */
  const weft_pair *options;   /* whatever else the caller wants to find again; a key is there once, and not empty */
  uint32_t flags, reserved;   /* 0 or WEFT_SAVE_QUEUE */
  uint64_t tag;               /* with WEFT_SAVE_QUEUE: comes back with the event */
} weft_save_config;
#define WEFT_SAVE_INIT {sizeof(weft_save_config), 0, NULL, NULL, NULL, 0, 0, 0}

enum { WEFT_SAVE_QUEUE = 1 };   /* do not wait: the save takes its turn behind the steps that were submitted */

/* Writes parameters, optimizer state, seed, settings and the number of steps; the checkpoint appears whole or not at all. Refuses a
 * directory that holds a newer one. After a failure the run goes on, and earlier checkpoints are untouched.
 * Waits for the end, and is for the time between steps. With WEFT_SAVE_QUEUE it may be called while steps are under way: the checkpoint
 * has the steps submitted before it and none submitted later, which begin as soon as all bytes have left their ranks. On WEFT_OK exactly
 * one WEFT_EVENT_SAVED will come; on failure nothing has changed and no event comes; WEFT_EAGAIN: 16 steps and saves are not over. Not
 * after a failed step. Thread: owner. */
WEFT_API weft_status weft_run_save(weft_run *run, const weft_save_config *config, weft_error *err);

typedef struct weft_checkpoint weft_checkpoint;

typedef struct weft_checkpoint_info {
  uint32_t size;
  uint32_t weights_only;      /* 1: a safetensors file; model is NULL, seed and step are 0 */
  const char *path;           /* what was opened: of a directory of checkpoints, the latest. Borrowed, as all here: valid as long as
                                 the checkpoint */
  const char *model;          /* as given to weft_run_save; NULL: nothing */
  uint64_t seed, step;
  const weft_pair *options;   /* in byte order of keys */
  uint32_t n_options;
  uint32_t n_params, n_states;   /* tensors: parameters, then optimizer state */
  uint32_t reserved;
  const char *warning;        /* the checkpoints that were passed over, each with what is wrong with it, or NULL */
} weft_checkpoint_info;
#define WEFT_CHECKPOINT_INFO_INIT {sizeof(weft_checkpoint_info), 0, NULL, NULL, 0, 0, NULL, 0, 0, 0, 0, NULL}

/* Opens a checkpoint, a safetensors file, or the latest checkpoint of a directory of them. Of a directory, the latest is verified at once,
 * and if it is damaged the newest intact one is opened; weft_checkpoint_describe then gives a warning. A single checkpoint is verified
 * when it is read. Owner: caller; free with weft_checkpoint_free. Thread: any. */
WEFT_API weft_status weft_checkpoint_open(const char *path, weft_checkpoint **out, weft_error *err);
/* NULL is a no-op. Thread: owner. */
WEFT_API void weft_checkpoint_free(weft_checkpoint *checkpoint);
/* Thread: any. */
WEFT_API weft_status weft_checkpoint_describe(const weft_checkpoint *checkpoint, weft_checkpoint_info *info);
/* Name of tensor `index` and its shape; the name is NULL and dtype 0 where there is none. `dtype` (may be NULL) gets the file's own name
 * for it, which may be one that weft does not compute with (desc.dtype is 0). Borrowed: valid as long as the checkpoint. Thread: any. */
WEFT_API const char *weft_checkpoint_tensor(const weft_checkpoint *checkpoint, uint32_t index, weft_desc *desc, const char **dtype);
/* XXH3-128 of a tensor's bytes, 32 hex digits and a NUL; index -1: over all parameters, as weft_run_digest. Thread: owner. */
WEFT_API weft_status weft_checkpoint_digest(weft_checkpoint *checkpoint, int64_t index, char digest[33], weft_error *err);
/* Writes the parameters as one safetensors file. Refuses a path in a checkpoint. Thread: owner. */
WEFT_API weft_status weft_checkpoint_export(weft_checkpoint *checkpoint, const char *path, weft_error *err);

enum { WEFT_LOAD_ALL = 0, WEFT_LOAD_WEIGHTS = 1 };

/* Takes parameters by name; with WEFT_LOAD_ALL also optimizer state and the number of steps, so that the run goes on bit for bit, at any
 * number of ranks, if the plan has the seed, the optimizer and the micro-batches of the run that was saved: of these only the rule is
 * checked. An error counts what is missing, surplus or of another shape. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_load(weft_run *run, weft_checkpoint *checkpoint, uint32_t what, weft_error *err);

#ifdef __cplusplus
}
#endif

#endif
