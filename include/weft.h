/**
 * @file weft.h
 * weft trains and runs neural networks in parallel across threads, processes and machines, with the same bits for every split.
 *
 * Objects, in the order in which a program creates them; weft(3) and examples/embed.c contain a complete program:
 *
 *     weft_model    a graph of ops over named parameters
 *     weft_plan     partition, schedule and memory layout of a step; checked before anything runs
 *     weft_mesh     the processes of a run; without one, this process hosts all ranks
 *     weft_run      a plan being executed: submit batches, poll events, read and write parameters
 *     weft_tensor   a dense array, possibly around memory of the caller
 *
 * Reproducibility. For one model, seed, data, micro-batches, gradient_groups and tensor (weft_plan_config; by default those of the mesh), every
 * synchronous schedule, partition, number of ranks and of threads gives bit-identical losses, gradients and weights: see weft_run_digest().
 *
 * Errors. A function that can fail returns a weft_status: 0 or more is success, less than 0 is a failure (WEFT_E...). Most of them
 * also describe it in a weft_error of the caller, which may be NULL. A failed call changes no results but the content of its buffers.
 *
 * Ownership. A function with a parameter `weft_X **out` creates an object, and the caller frees it with weft_X_free, which accepts NULL;
 * a tensor counts references, see weft_tensor_unref. A plan keeps what it needs of its model, and a run its plan: either may be freed first.
 *
 * Threads. Each function states "Thread: any" or "Thread: owner". The owner is any one thread at a time; the library does not lock
 * objects of the caller. No object survives fork().
 *
 * The host process. The library does not print, exit or abort, does not change signals, locale or working directory, and starts no
 * thread before weft_run_start, weft_mesh_listen, weft_mesh_join or weft_profile_new. weft(3) lists exceptions of its dependencies.
 *
 * Structs. Every struct that may grow begins with `size`, and grows at its end only.
 * - A configuration has a function NAME_init(config, size), where `size` is sizeof the struct of the caller. It sets every field to its
 *   default, which is an ordinary value; change fields after it. If `config` may be NULL, NULL means the defaults. A program that was
 *   built with an older header has a shorter struct, and the fields that it lacks have their defaults.
 * - A struct that the library fills (weft_error, weft_event, the ..._info) requires only `size`, set to its sizeof.
 * - A configuration with a size of 0 is refused by its name, so a zero-filled struct is an error. A longer struct than this version's is
 *   accepted if the bytes that this version lacks are 0.
 *
 * Values. In enumerations that the caller passes, 0 is not valid; weft_long_samples is an exception. Times are int64_t nanoseconds (_ns).
 *
 * Languages. The header requires C99, or C++11 if it is included from C++.
 */
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
#define WEFT_VERSION_MINOR 2
#define WEFT_VERSION_PATCH 0

#ifdef __cplusplus
#define WEFT_UINT32_ : uint32_t   /* in C++, any value that a program passes is a value of the type; C has the same size */
extern "C" {
#else
#define WEFT_UINT32_
#endif

/* ---- status ------------------------------------------------------------------------------------------------------------------- */

/** WEFT_OK, a failure (less than 0), or a result that the function describes (more than 0). */
typedef int32_t weft_status;

/** Failures. The values never change and are never reused. */
enum weft_status_code {
  WEFT_OK = 0,          /**< success */
  WEFT_EINVAL = -1,     /**< an argument, shape or name is not valid */
  WEFT_ENOMEM = -2,     /**< memory cannot be allocated */
  WEFT_ESTATE = -3,     /**< the call is valid, but not at this time */
  WEFT_EAGAIN = -4,     /**< a bounded queue is full */
  WEFT_ECANCELED = -5,  /**< weft_mesh_cancel, freeing a run, or a rank that left has ended the call or the run */
  WEFT_ETIMEDOUT = -6,  /**< a deadline has passed */
  WEFT_EPEER = -7,      /**< another rank is lost, or was refused */
  WEFT_EPROTO = -8,     /**< a peer violated the protocol */
  WEFT_ENOTSUP = -9,    /**< this build or machine does not support it */
  WEFT_ENOENT = -10,    /**< there is no such item */
  WEFT_EUSER = -11,     /**< a callback of the caller returned a failure */
  WEFT_EINTERNAL = -12, /**< an error in weft; please report it */
  WEFT_EIO = -13,       /**< input or output failed */
  WEFT_EDATA = -14      /**< the content of a file, text or tensor is wrong */
};

/** The text of a status; "unknown status" for other values. Borrowed: always valid. Thread: any. */
WEFT_API const char *weft_status_text(weft_status status);

/** A failure in words: what failed, what was expected and what was found. Set `size` before the call. */
typedef struct weft_error {
  uint32_t size;       /**< if it is smaller than the struct, the text is cut; below 10, nothing is written */
  weft_status status;
  char text[504];      /**< ends with a NUL; a longer text is cut */
} weft_error;

/** The version of the library at run time, "0.2.0". Borrowed: always valid. Thread: any. */
WEFT_API const char *weft_version(void);

/**
 * Writes the names of the kernels that multiply matrices, with a NUL: "fp32: weft kernels, AVX2; BLIS 0.9.0 is the fallback; bf16: FMA".
 * Returns the bytes that the whole text needs, with its NUL. Sets *slow (may be NULL) to 1 if these kernels use only a part of the
 * processor; the text then gives the reason. Initializes BLIS if BLIS multiplies. Thread: any; weft(3) describes BLIS_ARCH_TYPE.
 */
WEFT_API size_t weft_kernels(char *buffer, size_t size, uint32_t *slow);

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */

typedef enum weft_dtype WEFT_UINT32_ {
  WEFT_F32 = 1,   /**< float */
  WEFT_I32 = 2,   /**< int32_t */
  WEFT_F64 = 3    /**< double; used for losses only */
} weft_dtype;

#define WEFT_MAX_DIMS 8

/** Type and dimensions of a dense array in row-major order. */
typedef struct weft_desc {
  weft_dtype dtype;
  uint32_t n_dims;   /**< 0 to WEFT_MAX_DIMS; 0: a scalar */
  int64_t dims[WEFT_MAX_DIMS];
} weft_desc;

typedef struct weft_tensor weft_tensor;
/** A value inside a model. 0: none. */
typedef struct weft_value { uint32_t id; } weft_value;
/** A parameter inside a model. 0: none. */
typedef struct weft_param { uint32_t id; } weft_param;

/** Called exactly once, from any thread, when a wrapped tensor is no longer used. It must return normally and must not call weft. */
typedef void (*weft_release_cb)(void *data, void *payload);

/**
 * Makes a tensor around memory of the caller, without a copy. `data` is aligned to its elements. It must stay valid until `release` (may be
 * NULL) is called, and unchanged in steps that use it. No `release` if this fails. Owner: caller; drop with weft_tensor_unref. Thread: any.
 */
WEFT_API weft_status weft_tensor_wrap(const weft_desc *desc, void *data, weft_release_cb release, void *payload, weft_tensor **out, weft_error *err);
/** Makes a tensor with its own memory, filled with zeros. Owner: caller; drop with weft_tensor_unref. Thread: any. */
WEFT_API weft_status weft_tensor_new(const weft_desc *desc, weft_tensor **out, weft_error *err);
/** Adds a reference and returns its argument. Thread: any. */
WEFT_API weft_tensor *weft_tensor_ref(weft_tensor *tensor);
/** Removes a reference; the last one frees the tensor. NULL is a no-op. Thread: any. */
WEFT_API void weft_tensor_unref(weft_tensor *tensor);
/** The memory of a tensor. Borrowed: valid as long as the tensor. Thread: any. */
WEFT_API void *weft_tensor_data(const weft_tensor *tensor);
/** The type and dimensions of a tensor. Thread: any. */
WEFT_API weft_desc weft_tensor_desc(const weft_tensor *tensor);

/* ---- model -------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_model weft_model;

/** Creates an empty model. Owner: caller; free with weft_model_free. Thread: any. */
WEFT_API weft_status weft_model_new(weft_model **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_model_free(weft_model *model);

/** Flags of weft_model_add_input. */
enum weft_input_flags {
  WEFT_INPUT_WANT_GRAD = 1   /**< the gradient of the input can be read after a step; targets of a loss have none */
};

/** Adds an input, F32 or I32. `sample` describes one sample: dimension 0 counts samples and is 1. Thread: owner. */
WEFT_API weft_status weft_model_add_input(weft_model *model, const char *name, const weft_desc *sample, uint32_t flags, weft_value *out,
                                          weft_error *err);

/** Initial values of a parameter. */
typedef enum weft_init WEFT_UINT32_ {
  WEFT_INIT_ZEROS = 1,
  WEFT_INIT_CONSTANT = 2,   /**< `value` */
  WEFT_INIT_NORMAL = 3      /**< normal distribution with mean 0 and standard deviation `value`, keyed by seed, name and element */
} weft_init;

/** Adds a parameter, always F32. Thread: owner. */
WEFT_API weft_status weft_model_add_param(weft_model *model, const char *name, const weft_desc *desc, weft_init init, double value,
                                          weft_param *out, weft_error *err);

/** Flags of a node. */
enum weft_node_flags {
  WEFT_NODE_TANH = 1,        /**< gelu: the tanh approximation */
  WEFT_NODE_CAUSAL = 2,      /**< attention: row t uses columns up to t */
  WEFT_NODE_OUT_IN = 4,      /**< linear: the weight is stored as [out, in], not [in, out] */
  WEFT_NODE_POSITIONS = 8,   /**< embedding: look up positions along the last axis of the indices, not the indices */
  WEFT_NODE_BF16_CACHE = 16, /**< cached_attention: keys and values are kept in bf16 */
  WEFT_NODE_UNIT_OFFSET = 32 /**< rms_norm: the scale is 1 + the parameter */
};

/** A node: one op with its operands. weft_model_add_node(3) lists the ops, the collectives and the fields that they use. */
typedef struct weft_node_config {
  uint32_t size;
  uint32_t flags;             /**< of weft_node_flags. Default: 0. */
  const char *name;           /**< unique in a model. Default: NULL, which is "<op>_<number>". */
  const char *op;             /**< a built-in op, or one of weft_model_add_op. Default: NULL, which is refused. */
  const weft_value *inputs;   /**< in port order */
  const weft_param *params;   /**< linear: weight, bias; conv1d, conv2d: weight, bias; embedding: table; layer_norm: scale,
                                   shift; rms_norm: scale; batch_norm: scale, shift, running mean, running variance; add, sub, mul:
                                   optionally the last operand; a user op: its own */
  uint32_t n_inputs, n_params;
  int32_t axis;               /**< mean, sum, max, slice, concat, gather */
  int32_t heads;              /**< attention, cached_attention, rope */
  int64_t begin, end;         /**< slice */
  double factor;              /**< scale: factor; layer_norm, rms_norm, batch_norm: epsilon; dropout, attention: probability of dropout;
                                   softmax_cross_entropy: label smoothing; rope: multiplies rotated columns, 0 is 1 */
  uint32_t n_dims;            /**< number of `dims` */
  uint32_t n_coordinates;     /**< number of `coordinates` */
  int64_t dims[WEFT_MAX_DIMS];/**< reshape: target, the first may be -1 (the batch); transpose: permutation; conv1d, conv2d: stride,
                                   padding, dilation, and groups of conv2d; max_pool, average_pool: size, stride, padding; mean,
                                   sum, max: adjacent axes; all_to_all: the dimension that is cut, the dimension that is joined;
                                   attention: optionally a window; cached_attention: sequences, positions of each, optionally a window */
  const char *axis_name;      /**< collectives: the axis of the model along which they move values */
  const int32_t *coordinates; /**< ppermute: for each coordinate its source, or -1 for zeros; mask: coordinates that keep their value;
                                   broadcast: the coordinate whose value all receive */
  const float *frequencies;   /**< rope: for each pair of columns, its rotation per position in radians */
  uint32_t n_frequencies;     /**< number of `frequencies` */
  double cap;                 /**< softcap: the bound; attention, cached_attention: scores s become cap tanh(s / cap), 0 is none */
  double momentum;            /**< batch_norm: the share of the moments of a step in the running ones, above 0 to 1 */
} weft_node_config;
/** Sets the defaults. All fields without a stated default are 0 or NULL. Thread: any. */
WEFT_API void weft_node_config_init(weft_node_config *config, size_t size);

/** Adds a node and infers its shape. An error names the node, the port and both shapes. Strings and arrays are copied. Thread: owner. */
WEFT_API weft_status weft_model_add_node(weft_model *model, const weft_node_config *config, weft_value *out, weft_error *err);

/**
 * Adds y = x W + b with new parameters: NAME.weight [in, out], initialized from N(0, 0.02), and NAME.bias [out], zero. `in` is the last
 * dimension of x. The deviation suits wide layers; for narrow ones about 1 / sqrt(in) trains faster: add the parameters and a node. Thread: owner.
 */
WEFT_API weft_status weft_model_add_linear(weft_model *model, const char *name, weft_value x, int64_t out_features, weft_value *out, weft_error *err);

/** Adds an op with one input and no settings: "relu", "gelu", "tanh", "softmax", ... `name` may be NULL. Thread: owner. */
WEFT_API weft_status weft_model_add_unary(weft_model *model, const char *name, const char *op, weft_value x, weft_value *out, weft_error *err);
/** Adds an op with two inputs and no settings: "add", ..., or a loss of a result and its target: "mse", ... `name` may be NULL. Thread: owner. */
WEFT_API weft_status weft_model_add_binary(weft_model *model, const char *name, const char *op, weft_value a, weft_value b,
                                           weft_value *out, weft_error *err);
/** Adds layer normalization over the last dimension n of x, with epsilon 1e-5, NAME.weight [n], 1, and NAME.bias [n], 0. Thread: owner. */
WEFT_API weft_status weft_model_add_layer_norm(weft_model *model, const char *name, weft_value x, weft_value *out, weft_error *err);
/** Adds batch normalization of the last dimension n of x: epsilon 1e-5, momentum 0.1, NAME.weight and .running_var [n], 1, NAME.bias and
 * .running_mean [n], 0. A micro-batch has its own moments; an update moves the running ones towards their mean. Thread: owner. */
WEFT_API weft_status weft_model_add_batch_norm(weft_model *model, const char *name, weft_value x, weft_value *out, weft_error *err);
/** Adds the rows of a new parameter NAME.weight [rows, width], initialized from N(0, 0.02), which `ids` select. `flags`: 0 or
 * WEFT_NODE_POSITIONS. Thread: owner. */
WEFT_API weft_status weft_model_add_embedding(weft_model *model, const char *name, weft_value ids, int64_t rows, int64_t width,
                                              uint32_t flags, weft_value *out, weft_error *err);
/** Adds attention with `heads` heads over queries, keys and values, which are side by side in the last dimension of `qkv`. `flags`: 0 or
 * WEFT_NODE_CAUSAL. `name` may be NULL. Thread: owner. */
WEFT_API weft_status weft_model_add_attention(weft_model *model, const char *name, weft_value qkv, int32_t heads, uint32_t flags,
                                              weft_value *out, weft_error *err);
/** Adds dropout with this probability. `name` may be NULL. Thread: owner. */
WEFT_API weft_status weft_model_add_dropout(weft_model *model, const char *name, weft_value x, double probability, weft_value *out, weft_error *err);

/** Makes a value an output: steps of WEFT_FORWARD deliver it, and others if weft_plan_config.step_kinds says so. Thread: owner. */
WEFT_API weft_status weft_model_add_output(weft_model *model, weft_value value, weft_error *err);

/**
 * Makes the model an SPMD program, which every coordinate of the axis executes; an axis has 1 to 16 coordinates. Nodes use the values of
 * one coordinate, and collectives move values between coordinates. A model may have several axes; "data", "stage" and "auto" are axes of
 * plans. A loss, and an output that is not cut over the axis, is the value of coordinate 0. Thread: owner.
 */
WEFT_API weft_status weft_model_add_axis(weft_model *model, const char *name, uint32_t size, weft_error *err);

/** Flags of weft_model_cut_input, _param and _output. */
enum weft_cut_flags {
  WEFT_CUT_DROP = 1   /**< a coordinate has one index of the dimension, and its value lacks that dimension */
};

/**
 * Cuts dimension `dim` of an input, parameter or output over an axis into equal pieces, one per coordinate. Without a cut, every
 * coordinate has the whole tensor. `dim` is a dimension of the whole tensor, which is submitted, read, written and delivered; later nodes
 * use the piece. Cut an input or parameter before a node uses it. Dimension 0 of inputs and outputs is never cut. Thread: owner.
 */
WEFT_API weft_status weft_model_cut_input(weft_model *model, weft_value input, uint32_t dim, const char *axis, uint32_t flags, weft_error *err);
WEFT_API weft_status weft_model_cut_param(weft_model *model, weft_param param, uint32_t dim, const char *axis, uint32_t flags, weft_error *err);
WEFT_API weft_status weft_model_cut_output(weft_model *model, weft_value output, uint32_t dim, const char *axis, uint32_t flags, weft_error *err);

/** All nodes that use the parameter at one coordinate add their gradients to one sum. Otherwise each node has a sum of its own, and a
 * loop that is unrolled needs memory for as many. It changes the order of additions and the digest. A plan is refused if it has these
 * nodes in several stages. To be called before a node uses the parameter. Thread: owner. */
WEFT_API weft_status weft_model_share_gradient(weft_model *model, weft_param param, weft_error *err);

/** One tensor of a call of a user op. */
typedef struct weft_view {
  void *data;   /**< NULL if the call does not use the tensor */
  weft_desc desc;
} weft_view;

/** The operands of one call of a user op. The library fills the struct; it and its arrays are valid until the callback returns. */
typedef struct weft_op_call {
  uint32_t size;                  /**< sizeof the struct of the library; a later version may have more fields */
  uint32_t n_inputs, n_params;
  uint32_t training;              /**< 1 in a step with a backward pass, otherwise 0 */
  const weft_view *inputs;        /**< in port order */
  const weft_view *params;
  weft_view output;               /**< written by forward */
  weft_view stash;                /**< written by forward for the gradients; without data and shape in a gradient that does not read it */
  weft_view grad_output;          /**< backward, backward_params: the gradient of the output */
  const weft_view *grad_inputs;   /**< backward: one per input. They hold zeros, and have no data if no gradient is needed. */
  const weft_view *grad_params;   /**< backward_params: one per parameter, in the same way */
  void *payload;                  /**< of weft_model_add_op */
  weft_error *err;                /**< a callback that fails may write the reason to err->text, which messages then contain */
  uint64_t seed;                  /**< for random numbers; depends on the node, the micro-batch and the updates before the step */
} weft_op_call;

/** Tensors that a gradient of a user op reads besides grad_output. The others have no data in its call, and a stash has no desc. */
enum weft_op_reads {
  WEFT_OP_READS_INPUTS = 1,
  WEFT_OP_READS_PARAMS = 2,
  WEFT_OP_READS_OUTPUT = 4,
  WEFT_OP_READS_STASH = 8,
  WEFT_OP_READS_ALL = 15
};

/**
 * An op of the caller, with 1 to 16 inputs, up to 16 parameters and one output. Each call must be a pure function of weft_op_call. `shape`
 * runs inside the calls that make nodes, plans and profiles, the other callbacks on compute threads, or inside weft_run_poll if there are
 * none. They may run at the same time and must not call weft. They return 0, or a failure: that of the call or the run is WEFT_EUSER.
 */
typedef struct weft_op {
  uint32_t size;
  uint32_t version;           /**< part of the hash of the plan, with the name. Default: 1. */
  const char *name;           /**< 1 to 200 bytes without spaces and control characters */
  /**
   * Sets call->output.desc for the shapes of the inputs and parameters, or fails if it does not accept them. It may set
   * call->stash.desc; otherwise there is no stash. Both are F32 or I32. Dimension 0 of the output is the samples; its other dimensions do
   * not depend on them. The stash follows this rule, or does not depend on the samples at all. It is called with 1 and 2 samples for a
   * node, and with micro_batch_size and short_size for a plan.
   */
  int32_t (*shape)(weft_op_call *call);
  /** Writes the output and the stash, in every mode of a step. */
  int32_t (*forward)(const weft_op_call *call);
  /** Writes, or adds to, each of grad_inputs that has data, which is at least one. NULL: inputs have no gradient, so nothing below the op
   * is trained. */
  int32_t (*backward)(const weft_op_call *call);
  /** Writes, or adds to, each of grad_params that has data: the gradient of this micro-batch only, which the library adds to the sum of the
   * step. One call may ask for some of the parameters. NULL: parameters of the op cannot be trained. */
  int32_t (*backward_params)(const weft_op_call *call);
  void (*destroy)(void *payload);   /**< called once, after the last model, plan and run with the op is freed; may be NULL */
  uint32_t backward_reads;          /**< of weft_op_reads. Default: WEFT_OP_READS_ALL. */
  uint32_t backward_params_reads;   /**< of weft_op_reads. Default: WEFT_OP_READS_ALL. */
} weft_op;
/** Sets the defaults: version 1, gradients that read everything, and no callbacks. Thread: any. */
WEFT_API void weft_op_init(weft_op *op, size_t size);

/** Registers an op under its name for this model. On failure, destroy is not called. Thread: owner. */
WEFT_API weft_status weft_model_add_op(weft_model *model, const weft_op *op, void *payload, weft_error *err);

/** What weft_model_describe lists. */
typedef enum weft_item_kind WEFT_UINT32_ {
  WEFT_ITEM_INPUT = 1,
  WEFT_ITEM_PARAM = 2,
  WEFT_ITEM_NODE = 3,
  WEFT_ITEM_OUTPUT = 4
} weft_item_kind;

/** An input, parameter, node or output of a model. Pointers are borrowed: valid until the model changes or is freed. */
typedef struct weft_item {
  uint32_t size;
  uint32_t reserved;
  const char *name;
  const char *op;     /**< of a node or output; else NULL */
  weft_value value;   /**< of an input, node or output; else 0 */
  weft_param param;   /**< of a parameter; else 0 */
  weft_desc desc;     /**< of one sample; of a node, in a model with axes: of the piece at a coordinate */
} weft_item;

/** Describes item `index` of a kind, from 0 in the order in which they were added, or returns WEFT_ENOENT. Thread: owner. */
WEFT_API weft_status weft_model_describe(const weft_model *model, weft_item_kind kind, uint32_t index, weft_item *out);
/** The type and dimensions of a value for a number of samples. Thread: owner. */
WEFT_API weft_status weft_model_shape(const weft_model *model, weft_value value, int64_t samples, weft_desc *out, weft_error *err);

/** The number of elements of all parameters. Thread: owner. */
WEFT_API int64_t weft_model_parameters(const weft_model *model);

/** Describes a preset and its data. */
typedef struct weft_preset_info {
  uint32_t size;
  uint32_t tokens;      /**< 1: inputs "tokens" and "targets" (I32 [1, seq_len]), output logits; 0: "x" and "target" (F32 [1, width]) */
  int64_t vocabulary, context, seq_len;   /**< of a preset with tokens */
  int64_t width;
  const char *text;     /**< NAME with every key, which makes the same model in later versions. Borrowed: valid as long as the model */
} weft_preset_info;

/**
 * Makes a model by name, NAME[:key=value,...]: "mlp", "gpt-nano", "gpt2", "llama", ...; weft-train(1) lists the names, the keys and
 * their defaults. `seq_len` is the number of tokens per sample; 0 is the whole context. An mlp without a number of layers has at least
 * `stages` layers. The model cannot be changed. `info` may be NULL. Owner: caller; free with weft_model_free. Thread: any.
 */
WEFT_API weft_status weft_model_preset(const char *text, int64_t seq_len, uint32_t stages, weft_model **out, weft_preset_info *info, weft_error *err);

/**
 * Makes a preset with tokens for packed samples: a model with the same parameters in which a sample has several sequences, one after another.
 * It has a third input, "positions" (I32 [1, seq_len]): that of each token in its sequence, from 0. Tokens attend to their own sequence only,
 * so that the loss and the gradients are those of the sequences as samples. Targets of padding are -1. The other parameters are those of
 * weft_model_preset. Owner: caller; free with weft_model_free. Thread: any.
 */
WEFT_API weft_status weft_model_packed(const char *text, int64_t seq_len, uint32_t stages, weft_model **out, weft_preset_info *info, weft_error *err);

/** The cache of a decoder. */
typedef struct weft_decoder_config {
  uint32_t size;
  uint32_t flags;       /**< 0, or WEFT_NODE_BF16_CACHE. Default: 0. */
  int64_t sequences;    /**< that the cache has a place for, and with replicas the cache of each. Default: 1. */
  int64_t context;      /**< positions of each sequence; 0: the context of the model. Default: 0. */
} weft_decoder_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_decoder_config_init(weft_decoder_config *config, size_t size);

/**
 * Makes the decoder of a preset with tokens: a model with the same parameters that keeps the keys and values of sequences between forward
 * steps. A sample is a token. Inputs, all I32 [1, 1]: "tokens"; "positions", of each in its sequence, from 0; "sequences", from 0, or -1
 * for a sample without a sequence, whose output has no meaning. With n places for sequences, -2 - (a * n + b) is a sample without a sequence
 * that copies the keys and values of sequence a, from position 0 to that of the sample, to sequence b. Output: logits F32 [1, 1, vocabulary].
 * `info` may be NULL; its `seq_len` is the number of positions of the cache. `config`: NULL is the defaults. Owner: caller; free with
 * weft_model_free. Thread: any.
 */
WEFT_API weft_status weft_model_decoder(const char *text, const weft_decoder_config *config, weft_model **out, weft_preset_info *info,
                                        weft_error *err);

/** Adapters of low rank (LoRA) for linear nodes. */
typedef struct weft_adapter_config {
  uint32_t size;
  uint32_t rank;              /**< rows of A and columns of B, from 1 to 65536. Default: 8. */
  double alpha;               /**< alpha / rank is the factor of an adapter, above 0. Default: 8. */
  const char *const *targets; /**< names of linear nodes, or what follows a dot in them; or only "all-linear", each linear node that computes no
                                   output. Default: NULL, those of q_proj, v_proj, c_attn, query_key_value and qkv_proj that there are. */
  uint32_t n_targets, reserved;
  double dropout;             /**< probability with which training drops an element of x for A, from 0 to 0.99. Default: 0. */
} weft_adapter_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_adapter_config_init(weft_adapter_config *config, size_t size);

/**
 * Makes a copy of a model in which linear nodes have adapters: where node NAME computed W x, it computes W x + alpha / rank * B A x. A is the
 * parameter NAME.lora_A.weight [rank, in], which is random; B is NAME.lora_B.weight [out, rank], which is 0. All other parameters keep their
 * names. Parameter groups of a plan select what is trained (weft_plan_config.groups). The model must have a loss or an output, and no axes.
 * The copy cannot be changed; its values have other numbers, and weft_model_describe lists them. A preset can also have adapters by its keys
 * lora_rank, lora_alpha, lora_dropout and lora_targets. `config`: NULL is the defaults. Owner: caller; free with weft_model_free. Thread: any.
 */
WEFT_API weft_status weft_model_adapt(const weft_model *model, const weft_adapter_config *config, weft_model **out, weft_error *err);

/* ---- profile ------------------------------------------------------------------------------------------------------------------ */

/** Measured times of the kernels of each node of a model. */
typedef struct weft_profile weft_profile;

typedef struct weft_profile_config {
  uint32_t size;
  uint32_t micro_batch_size;  /**< samples, that of the plans which use the profile. Default: 4. */
  uint32_t repeats;           /**< micro-batches that are measured. Default: 10. */
  uint32_t threads;           /**< 1 to 1024. Default: 1. */
  const char *precision;      /**< "f32" or "bf16", that of the plans which use the profile. Default: "f32". */
  const char *f32_nodes;      /**< as in weft_plan_config, that of the plans which use the profile. Default: "". */
} weft_profile_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_profile_config_init(weft_profile_config *config, size_t size);

/** Medians of a node for one micro-batch, and the size of its results as f32. */
typedef struct weft_node_times {
  uint32_t size;
  uint32_t reserved;
  const char *name;           /**< borrowed: valid as long as the profile */
  int64_t forward_ns;         /**< forward pass */
  int64_t input_ns;           /**< gradients of the inputs */
  int64_t weight_ns;          /**< gradients of the parameters */
  uint64_t output_bytes, stash_bytes;
} weft_node_times;

/**
 * Runs every kernel of the model on random data, in this thread and in `threads` - 1 others. The model cannot be changed afterwards.
 * `config` may be NULL. Owner: caller; free with weft_profile_free. Thread: owner of the model.
 */
WEFT_API weft_status weft_profile_new(weft_model *model, const weft_profile_config *config, weft_profile **out, weft_error *err);
/** Reads a file of weft_profile_save. Owner: caller; free with weft_profile_free. Thread: any. */
WEFT_API weft_status weft_profile_load(const char *path, weft_profile **out, weft_error *err);
/** Writes the profile as JSON and replaces the file at `path`. Thread: any. */
WEFT_API weft_status weft_profile_save(const weft_profile *profile, const char *path, weft_error *err);
/** The number of nodes, which are those of the model without its inputs. Thread: any. */
WEFT_API uint32_t weft_profile_nodes(const weft_profile *profile);
/** Describes node `index`, or returns WEFT_ENOENT. Thread: any. */
WEFT_API weft_status weft_profile_node(const weft_profile *profile, uint32_t index, weft_node_times *times);
/** NULL is a no-op. Thread: any. */
WEFT_API void weft_profile_free(weft_profile *profile);

/* ---- plan --------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_plan weft_plan;

/** A description of machines and links, which need not be this machine: ranks, speeds, distances. weft-plan(1) describes the file. */
typedef struct weft_cluster weft_cluster;

/** Reads a cluster file. Owner: caller; free with weft_cluster_free. Thread: any. */
WEFT_API weft_status weft_cluster_load(const char *path, weft_cluster **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_cluster_free(weft_cluster *cluster);
/** The number of ranks of a cluster. Thread: any. */
WEFT_API uint32_t weft_cluster_ranks(const weft_cluster *cluster);

/** Update rules, as in PyTorch. */
typedef enum weft_rule WEFT_UINT32_ { WEFT_ADAMW = 1, WEFT_ADAM = 2, WEFT_SGD = 3 } weft_rule;
/** The learning rate over the steps. */
typedef enum weft_rate_curve WEFT_UINT32_ { WEFT_RATE_CONSTANT = 1, WEFT_RATE_COSINE = 2, WEFT_RATE_LINEAR = 3 } weft_rate_curve;

/** An update rule and its settings. */
typedef struct weft_optimizer {
  uint32_t size;
  weft_rule rule;             /**< Default: WEFT_ADAMW. */
  double rate;                /**< learning rate. Default: 1e-3. */
  double momentum;            /**< sgd. Default: 0. */
  double beta1, beta2, eps;   /**< adam, adamw. Defaults: 0.9, 0.999, 1e-8. */
  double weight_decay;        /**< of parameters with 2 dimensions or more. Default: 0. */
  double clip;                /**< the maximum global norm of the gradients; 0: no clipping. Default: 1. */
  weft_rate_curve curve;      /**< Default: WEFT_RATE_CONSTANT. */
  uint32_t decay_all;         /**< 1: parameters with 0 and 1 dimensions decay as well. Default: 0. */
  uint64_t warmup;            /**< steps of linear warm-up. Default: 0. */
  uint64_t total;             /**< cosine, linear: steps until min_rate. Default: 0. */
  double min_rate;            /**< cosine, linear. Default: 0. */
} weft_optimizer;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_optimizer_init(weft_optimizer *optimizer, size_t size);

/** How the model is cut into stages. */
typedef enum weft_split WEFT_UINT32_ {
  WEFT_SPLIT_COST = 1,         /**< minimizes the cost of the slowest stage */
  WEFT_SPLIT_UNIFORM = 2,      /**< equal numbers of nodes */
  WEFT_SPLIT_PARAMETERS = 3,   /**< equal numbers of parameters */
  WEFT_SPLIT_TYPE = 4,         /**< equal numbers of nodes of one op, `split_type` */
  WEFT_SPLIT_PIPEDREAM = 5     /**< the partitioner of PipeDream; for schedule "pipedream" it also selects stage_replicas */
} weft_split;

/** Kinds of steps that the runs of a plan make; a mask. weft_run_submit takes a weft_step_mode and refuses these values. */
enum weft_step_kinds {
  WEFT_STEPS_TRAIN = 0x100,     /**< WEFT_TRAIN, WEFT_NO_UPDATE; without it there are no gradients and no optimizer state */
  WEFT_STEPS_EVAL = 0x200,      /**< WEFT_EVAL */
  WEFT_STEPS_FORWARD = 0x400,   /**< WEFT_FORWARD; without it and the outputs below rank 0 has no memory for outputs */
  WEFT_STEPS_FILL = 0x800,      /**< WEFT_FILL */
  WEFT_STEPS_ALL = 0xf00,       /**< all kinds above that the model allows */
  WEFT_STEPS_TRAIN_OUTPUTS = 0x1000, /**< with WEFT_STEPS_TRAIN: these steps deliver the outputs, too, which precision "bf16" does not round */
  WEFT_STEPS_EVAL_OUTPUTS = 0x2000   /**< the same with WEFT_STEPS_EVAL */
};

/** weft_plan_config.warm_up: weft_plan_new selects the warm-up with the shortest predicted step. */
#define WEFT_WARM_UP_AUTO 0

/**
 * An axis of the mesh of ranks. "data": replicas, which divide the micro-batches of a step. "stage": the ranks of a pipeline. "tensor":
 * ranks that share each stage and compute pieces of it. Axes of the model replace "tensor": these ranks divide its coordinates.
 */
typedef struct weft_axis {
  const char *name;
  uint32_t size;       /**< 1 to 4096 */
  uint32_t reserved;   /**< 0 */
} weft_axis;

/**
 * How a plan trains the parameters whose names match a pattern. The last group that matches a parameter determines how it is trained; groups
 * are not combined. A frozen parameter is not changed. It has no gradient, no optimizer state and no part in the norm; the backward
 * pass ends where nothing below is trained. A parameter that the loss does not depend on is always frozen.
 */
typedef struct weft_parameter_group {
  uint32_t size;                /**< the same in all groups of a configuration */
  uint32_t frozen;              /**< 1: the parameters are not trained. Default: 0. */
  const char *pattern;          /**< of whole names: '*' is any text, '?' any character. It must match a parameter. */
  double rate_factor;           /**< the learning rate of the step is multiplied by it; 0 or more. Default: 1. */
  double weight_decay_factor;   /**< weft_optimizer.weight_decay is multiplied by it, for parameters that decay; 0 or more. Default: 1. */
} weft_parameter_group;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_parameter_group_init(weft_parameter_group *group, size_t size);

/** What weft_plan_new makes a plan from. For a count whose default is 0, 0 means that weft_plan_new determines it. */
typedef struct weft_plan_config {
  uint32_t size;
  uint32_t ranks;             /**< of a pipeline; with `axes`, 1 or the product of their sizes. Default: 1. */
  uint32_t micro_batches;     /**< per step. Default: 8. */
  uint32_t micro_batch_size;  /**< samples. Default: 4. */
  uint32_t short_size;        /**< samples that the last micro-batch of a step may have instead, and all micro-batches of a forward step
                                   with fewer samples than a full one; 0: they are always full. Default: 0. */
  weft_split split;           /**< Default: WEFT_SPLIT_COST. */
  const char *schedule;       /**< a name of weft_schedule_describe; "auto": the best of weft_plan_compare. Default: "1f1b". */
  const char *const *cuts;    /**< names of the first nodes of stages 1, 2, ...; replaces `split`. Default: NULL. */
  uint32_t n_cuts;            /**< Default: 0. */
  uint32_t step_kinds;        /**< of weft_step_kinds. Default: WEFT_STEPS_ALL. */
  uint64_t seed;              /**< Default: 0. */
  const weft_optimizer *optimizer;   /**< NULL: the defaults of weft_optimizer_init. Default: NULL. */
  uint32_t chunks;            /**< stages per rank; 0: the number that the schedule uses. Default: 0. */
  uint32_t group;             /**< interleaved, interleaved-zb: micro-batches per chunk before the next chunk; 0: the number of ranks.
                                   1f1b-delayed-w: micro-batches whose weight gradients follow one another; 0: 4; with "auto", 4 or 8. Default: 0. */
  uint32_t warm_up;           /**< 1f1b: forward actions before the first backward action, per later rank; 2 hides the latency of links;
                                   or WEFT_WARM_UP_AUTO. Default: 1. */
  uint32_t segment;           /**< asynchronous schedules: updates per step, each of micro_batches; a multiple of all stage_replicas.
                                   0: 16, or the next multiple. Default: 0. */
  const char *schedule_text;  /**< a written schedule, in the form of weft_plan_timetable; replaces schedule. Default: NULL. */
  const char *recompute;      /**< what the backward pass recomputes: "none", "stage", "every:N" (nodes) or "auto". Default: "none". */
  uint64_t memory_limit;      /**< bytes per rank, for recompute "auto" or WEFT_SPLIT_COST; 0: no limit. Default: 0. */
  const char *split_type;     /**< WEFT_SPLIT_TYPE: the name of an op. Default: NULL. */
  const weft_profile *profile;       /**< measured times; NULL: costs that the ops estimate. Default: NULL. */
  const double *speeds;       /**< of each rank, relative to the machine of the profile; for WEFT_SPLIT_COST and predictions. NULL: all
                                   are 1. Default: NULL. */
  int64_t link_latency_ns;    /**< of a message; for WEFT_SPLIT_COST, predictions and the number of slots. Default: 0. */
  double link_bandwidth;      /**< bytes per second of a link in each direction, for WEFT_SPLIT_COST, _PIPEDREAM and predictions; 0: no
                                   limit. Default: 0. */
  const weft_cluster *cluster;       /**< replaces `speeds` and the links; predictions are for these machines. Default: NULL. */
  uint32_t vertical_sync;     /**< asynchronous schedules, 1: all stages use the version of the weights that the first stage uses.
                                   Default: 0. */
  uint32_t gradient_groups;   /**< groups in which the gradients of micro-batches are added, 1 to micro_batches; decides rounding. 0: the
                                   number of replicas. Default: 0. */
  uint32_t tensor;            /**< pieces into which large nodes are cut (tensor parallelism), 1 to 16; decides rounding. 0: the size of
                                   the axis "tensor". Default: 0. */
  uint32_t n_axes;            /**< Default: 0. */
  const weft_axis *axes;      /**< each name at most once. Rank (d * stage + p) * tensor + t has piece t of position p of replica d. Axes
                                   of the model take the place of "tensor", in the order of the model. Or only "auto": the best mesh of
                                   that many ranks, for a model without axes. Default: NULL. */
  const char *shard;          /**< what replicas keep in parts: "none", "optimizer" (its state) or "parameters" (also values, which are
                                   gathered for each block of the model); with the axis "auto" also "auto", see
                                   weft_plan_compare. Default: "optimizer". */
  const char *stage_replicas; /**< asynchronous schedules: ranks of each stage, e.g. "3,1", which take turns with its micro-batches; an
                                   update of a stage uses the mean of that many times micro_batches; decides rounding. With
                                   "pipedream-2bw" equal numbers. "": one rank each. Default: "". */
  const weft_parameter_group *groups;   /**< parameters that are frozen or have their own factors. Default: NULL. */
  uint32_t n_groups;          /**< Default: 0. */
  uint32_t n_speeds;          /**< 0 or the number of ranks. Default: 0. */
  const char *precision;      /**< type in which values and gradients between nodes are stored and sent: "f32" or "bf16". Parameters, their
                                   gradients and the optimizer state remain f32. A parameter that no step of the plan trains is bf16,
                                   too, if only linear nodes multiply by it and embeddings look it up. It is rounded when written, which
                                   changes no result of a step; reads, digests and files have the rounded values. Default: "f32". */
  const char *f32_nodes;      /**< nodes that with "bf16" multiply in f32, have f32 values and gradients of these, and do not round
                                   parameters: "NAME,...", where * is any text, ? any character. Default: "". */
} weft_plan_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_plan_config_init(weft_plan_config *config, size_t size);

/** Describes a schedule. */
typedef struct weft_schedule_info {
  uint32_t size;
  uint32_t chunks;            /**< stages per rank; 0: any number, 2 unless the configuration gives another */
  const char *name;           /**< borrowed, like `about`: always valid */
  const char *about;          /**< one line, with the sizes that the schedule supports */
  uint32_t asynchronous;      /**< 1: weights change while other micro-batches are in progress */
  uint32_t forward_only;      /**< 1: cannot train */
} weft_schedule_info;

/** Describes schedule `index`, from 0, or returns WEFT_ENOENT. Thread: any. */
WEFT_API weft_status weft_schedule_describe(uint32_t index, weft_schedule_info *info);

/**
 * Makes a plan: cuts the model into stages, makes a schedule, checks that it cannot deadlock, and lays out all memory. The model cannot be
 * changed after the first successful weft_plan_new, weft_plan_load, weft_plan_compare or weft_profile_new. `config` may be NULL. Owner:
 * caller; free with weft_plan_free. Thread: owner of the model.
 */
WEFT_API weft_status weft_plan_new(weft_model *model, const weft_plan_config *config, weft_plan **out, weft_error *err);
/**
 * Writes the inputs of a plan (first nodes of stages, schedule, sizes, settings) as JSON, and replaces the file at `path`. The file does not
 * contain profile, speeds, links and cluster, so a plan that is loaded is predicted without them. Thread: any.
 */
WEFT_API weft_status weft_plan_save(const weft_plan *plan, const char *path, weft_error *err);
/**
 * Makes the same plan for the same model from a file of weft_plan_save, or fails; weft_plan_new(3) describes how to edit the file. Owner:
 * caller; free with weft_plan_free. Thread: owner of the model.
 */
WEFT_API weft_status weft_plan_load(weft_model *model, const char *path, weft_plan **out, weft_error *err);
/** NULL is a no-op. Thread: any. */
WEFT_API void weft_plan_free(weft_plan *plan);
/** The number of stages. Thread: any. */
WEFT_API uint32_t weft_plan_stages(const weft_plan *plan);
/** Name of the first node of a stage; NULL if `stage` is out of range. Borrowed: valid as long as the plan. Thread: any. */
WEFT_API const char *weft_plan_first(const weft_plan *plan, uint32_t stage);
/** Bytes of the tensors of a rank; 0 if `rank` is out of range. Thread: any. */
WEFT_API int64_t weft_plan_bytes(const weft_plan *plan, uint32_t rank);

/** What planned memory is for. */
typedef enum weft_memory_kind WEFT_UINT32_ {
  WEFT_MEMORY_WEIGHTS = 1,      /**< all versions */
  WEFT_MEMORY_GRADIENTS = 2,    /**< accumulators, and the sums for the norm */
  WEFT_MEMORY_OPTIMIZER = 3,    /**< optimizer state */
  WEFT_MEMORY_ACTIVATIONS = 4,  /**< values of micro-batches that only this rank uses */
  WEFT_MEMORY_MESSAGES = 5,     /**< slots of values that arrive from other ranks or leave for them */
  WEFT_MEMORY_SCRATCH = 6,      /**< of one kernel, or of one action */
  WEFT_MEMORY_STATE = 7         /**< that nodes keep between steps: keys and values of cached_attention */
} weft_memory_kind;
/** Planned bytes of one kind on a rank; the sum over all kinds is weft_plan_bytes. 0 if `rank` or `kind` is out of range. Thread: any. */
WEFT_API int64_t weft_plan_memory(const weft_plan *plan, uint32_t rank, weft_memory_kind kind);
/** The learning rate of step `step`; the first step is 0. Thread: any. */
WEFT_API double weft_plan_rate(const weft_plan *plan, uint64_t step);
/** The number of elements of the parameters that a rank owns; 0 if `rank` is out of range. Thread: any. */
WEFT_API int64_t weft_plan_owned(const weft_plan *plan, uint32_t rank);
/** The same for the parameters that a rank holds: its own, and copies of tied ones. Thread: any. */
WEFT_API int64_t weft_plan_resident(const weft_plan *plan, uint32_t rank);
/**
 * Writes the schedule of training steps as text, with a NUL: one row per rank of a pipeline, e.g. "0F0 0F1 0B0 0B1".
 * weft_plan_config.schedule_text accepts it. Writes at most `size` bytes; returns the bytes of the whole text, with its NUL. Thread: any.
 */
WEFT_API size_t weft_plan_timetable(const weft_plan *plan, char *buffer, size_t size);

/**
 * Fills *out, whose size the caller has set, with a configuration that makes the same plan for the same model, if link_latency_ns was 0: with
 * the cuts, without profile, speeds, links and cluster. Pointers are borrowed: valid as long as the plan. Thread: any.
 */
WEFT_API weft_status weft_plan_settings(const weft_plan *plan, weft_plan_config *out);

/** Results of choices that the configuration left to weft_plan_new. */
typedef struct weft_plan_info {
  uint32_t size;
  uint32_t ranks, stages, micro_batches;
  const char *schedule;       /**< its name; "written" for a written schedule. Borrowed: valid as long as the plan */
  uint32_t warm_up;           /**< 1f1b: forward actions ahead per later rank; else 0 */
  uint32_t group;             /**< 1f1b-delayed-w: micro-batches whose weight gradients follow one another; else 0 */
  int64_t trained;            /**< elements of the parameters that are neither frozen nor moving averages */
} weft_plan_info;

/** Describes a plan. Thread: any. */
WEFT_API weft_status weft_plan_describe(const weft_plan *plan, weft_plan_info *info);
/** The first rank that hosts a stage, in replica 0; 0 if `stage` is out of range. Thread: any. */
WEFT_API uint32_t weft_plan_rank(const weft_plan *plan, uint32_t stage);
/**
 * The number of ranks that have the same part of a stage: replicas of the pipeline, or the ranks of stage_replicas, which are consecutive
 * from weft_plan_rank on. 0 if `stage` is out of range. Thread: any.
 */
WEFT_API uint32_t weft_plan_replicas(const weft_plan *plan, uint32_t stage);

/** The maximum number of updates of a step of WEFT_TRAIN: those of a segment of an asynchronous schedule, otherwise 1. Thread: any. */
WEFT_API uint32_t weft_plan_updates(const weft_plan *plan);
/** The number of minibatches in progress that suits an asynchronous schedule (NOAM of PipeDream); 0 if it is synchronous. Thread: any. */
WEFT_API uint32_t weft_plan_noam(const weft_plan *plan);
/** Versions of its weights that a rank keeps: 1 with a synchronous schedule; 0 if `rank` is out of range. Thread: any. */
WEFT_API uint32_t weft_plan_versions(const weft_plan *plan, uint32_t rank);

/* ---- prediction --------------------------------------------------------------------------------------------------------------- */

/** One simulated step of a plan (a training step; a forward step if the model has no loss). The simulation uses the engine of a run. */
typedef struct weft_prediction weft_prediction;

/** Flags of weft_plan_simulate. */
enum weft_predict_flags {
  WEFT_PREDICT_TIMELINE = 1   /**< record when every job runs, for weft_prediction_save_trace */
};

/** Simulates a step of a plan. Owner: caller; free with weft_prediction_free. Thread: any. */
WEFT_API weft_status weft_plan_simulate(const weft_plan *plan, uint32_t flags, weft_prediction **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_prediction_free(weft_prediction *prediction);

typedef struct weft_prediction_info {
  uint32_t size;
  uint32_t ranks, links;
  uint32_t reserved;
  int64_t step_ns;            /**< duration of the step, until the controller has received all reports */
  int64_t commit_ns;          /**< from the beginning of the step until the weights may change */
  double idle, idle_own;      /**< means over ranks, see weft_rank_prediction */
  int64_t peak_bytes;         /**< of the largest rank */
  int64_t messages, bytes;    /**< tensors over all links */
} weft_prediction_info;

typedef struct weft_rank_prediction {
  uint32_t size;
  uint32_t reserved;
  int64_t first_ns, last_ns;  /**< beginning of the first action and end of the last, from the beginning of the step */
  int64_t busy_ns;            /**< in kernels of actions */
  double idle;                /**< share of the time from the beginning of the step to the commit in which the rank runs no kernel */
  double idle_own;            /**< the same, from first_ns to last_ns */
  int64_t peak_bytes;
} weft_rank_prediction;

typedef struct weft_link_prediction {
  uint32_t size;
  uint32_t from, to;          /**< ranks */
  uint32_t reserved;
  int64_t messages, bytes;    /**< per step */
} weft_link_prediction;

/** Describes the step. Thread: any. */
WEFT_API weft_status weft_prediction_describe(const weft_prediction *prediction, weft_prediction_info *info);
/** Describes a rank, or returns WEFT_ENOENT. Thread: any. */
WEFT_API weft_status weft_prediction_rank(const weft_prediction *prediction, uint32_t rank, weft_rank_prediction *out);
/** Describes link `index`, or returns WEFT_ENOENT. Thread: any. */
WEFT_API weft_status weft_prediction_link(const weft_prediction *prediction, uint32_t index, weft_link_prediction *out);
/** Writes the timeline in the format of weft_run_save_trace, so that both can be compared. Thread: any. */
WEFT_API weft_status weft_prediction_save_trace(const weft_prediction *prediction, const char *path, weft_error *err);

/** Predictions of all schedules that a configuration allows. */
typedef struct weft_comparison weft_comparison;

typedef struct weft_candidate {
  uint32_t size;
  uint32_t chunks;            /**< stages per rank */
  uint32_t warm_up;           /**< 1f1b: forward actions ahead per later rank; else 0 */
  uint32_t best;              /**< 1: the smallest of the candidates within 0.1 % of the shortest step, under the limit of bytes */
  uint32_t over;              /**< 1: a rank exceeds the limit of bytes */
  uint32_t group;             /**< 1f1b-delayed-w: micro-batches whose weight gradients follow one another; else 0 */
  const char *schedule;       /**< borrowed, like `refused`: valid as long as the comparison */
  const char *refused;        /**< why there is no such plan, or NULL. If it is not NULL, all fields below are 0. */
  int64_t step_ns;
  double idle, idle_own;
  int64_t peak_bytes, bytes;
  uint32_t data, stage, tensor;   /**< sizes of the axes if axis "auto" was given; else 0, like work_ns and waiting_ns */
  uint32_t reserved2;
  int64_t work_ns;            /**< part of step_ns: the busiest rank in kernels */
  int64_t waiting_ns;         /**< part of step_ns: waiting for other ranks. Messages take the remaining time. */
  const char *shard;          /**< weft_plan_config.shard of the candidate; borrowed like `schedule`. NULL without the axis "auto" */
} weft_candidate;
/**
 * Plans and simulates a step for each of several candidates. With config->schedule "auto", these are all synchronous schedules of
 * weft_schedule_describe, otherwise only that one; with WEFT_WARM_UP_AUTO, 1f1b has a candidate for each of several warm-ups; with "auto" and
 * group 0, 1f1b-delayed-w for 4 and 8. With the axis "auto", there is one per mesh, with its best schedule; config->shard "auto" then selects
 * "parameters" if the plan exceeds the memory limit. Owner: caller; free with weft_comparison_free. Thread: owner of the model.
 */
WEFT_API weft_status weft_plan_compare(weft_model *model, const weft_plan_config *config, weft_comparison **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_comparison_free(weft_comparison *comparison);
/** Describes candidate `index`, or returns WEFT_ENOENT. Thread: any. */
WEFT_API weft_status weft_comparison_row(const weft_comparison *comparison, uint32_t index, weft_candidate *out);

/* ---- mesh --------------------------------------------------------------------------------------------------------------------- */

/** The processes of a run. Rank 0, the controller, listens and starts the run; every other process joins and serves. */
typedef struct weft_mesh weft_mesh;

/** Flags of a mesh. */
enum weft_mesh_flags {
  WEFT_MESH_INSECURE = 1   /**< tcp without encryption: any process that reaches rank 0 may join. All ranks of the run need the flag */
};

/** weft_mesh_config.rank: rank 0 assigns a rank. */
#define WEFT_ANY_RANK (-1)

/** Size of a key as text: 64 digits, 0 to 9 and a to f, and a NUL. */
#define WEFT_KEY_SIZE 65

typedef struct weft_mesh_config {
  uint32_t size;
  uint32_t flags;             /**< of weft_mesh_flags. Default: 0. */
  const char *endpoint;       /**< listen: "ipc://" (a socket in a new directory with mode 0700), "ipc://PATH" or "tcp://ADDR:PORT" (port
                                   0: any); NULL is "ipc://". join: the result of weft_mesh_join_endpoint of rank 0. Default: NULL. */
  const char *listen;         /**< join: where other ranks reach this process; NULL: an address on the route to rank 0. Default: NULL. */
  int32_t rank;               /**< join: the requested rank, 1 or more, or WEFT_ANY_RANK. Default: WEFT_ANY_RANK. */
  uint32_t reserved;          /**< 0 */
  int64_t join_timeout_ns;    /**< until all ranks have joined; join: until rank 0 answers. 1000000 to 4294967295000000. Default: 60000000000. */
  int64_t peer_timeout_ns;    /**< listen: a rank that sends no frame for this time is lost, on every rank; join: the same until the value
                                   of rank 0 is known. 1000000000 (1 s) to 4294967295000000. Default: 5000000000 (5 s). */
  const char *key;            /**< tcp: secret key of this process. listen: other processes know rank 0 by it; NULL: a new key for this
                                   mesh. join: rank 0 permits this process by it, if `endpoint` has only the public key of rank 0; or has
                                   no key, and rank 0 has the same key. Default: NULL. */
  const char *allow;          /**< listen, tcp: public keys of processes that may join without the keys of the join endpoint, one per
                                   line; text after a space and lines that begin with '#' are comments. Default: NULL. */
} weft_mesh_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_mesh_config_init(weft_mesh_config *config, size_t size);

/** Rank 0: listens, on a thread of the library. `config` may be NULL. Owner: caller; free with weft_mesh_free. Thread: any. */
WEFT_API weft_status weft_mesh_listen(const weft_mesh_config *config, weft_mesh **out, weft_error *err);
/** Any other rank: opens its endpoint. weft_run_serve connects to rank 0. Owner: caller; free with weft_mesh_free. Thread: any. */
WEFT_API weft_status weft_mesh_join(const weft_mesh_config *config, weft_mesh **out, weft_error *err);
/** The endpoint of this process. Borrowed: valid as long as the mesh. Thread: any. */
WEFT_API const char *weft_mesh_endpoint(const weft_mesh *mesh);
/**
 * Rank 0: the endpoint with which other processes join. Over tcp it ends in "?key=" and two keys; a process that has it may join, so keep it
 * secret. "" for a mesh that joins. Borrowed: valid as long as the mesh. Thread: any.
 */
WEFT_API const char *weft_mesh_join_endpoint(const weft_mesh *mesh);
/**
 * Ends all present and future runs on the mesh in this process with WEFT_ECANCELED: their start, their steps, and weft_run_serve. The run
 * ends on the other ranks as well. NULL is a no-op. Thread: any, and signal handlers.
 */
WEFT_API void weft_mesh_cancel(weft_mesh *mesh);
/**
 * NULL is a no-op. Ends a run of the mesh first; later calls on the run return WEFT_ESTATE, but weft_run_free works. Thread: owner, which
 * must also be the owner of the run then.
 */
WEFT_API void weft_mesh_free(weft_mesh *mesh);

/** Writes a new secret key into `secret`, WEFT_KEY_SIZE bytes. Thread: any. */
WEFT_API weft_status weft_key_new(char *secret, weft_error *err);
/** Writes the public key of a secret key into `public_key`, WEFT_KEY_SIZE bytes. Thread: any. */
WEFT_API weft_status weft_key_public(const char *secret, char *public_key, weft_error *err);

/* ---- data --------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_data weft_data;
/** From text to ids of tokens and back. */
typedef struct weft_tokenizer weft_tokenizer;

/** For samples of NAME.jsonl with more than seq_len + 1 tokens: refuse the file; keep their tokens until there; or leave them out. */
typedef enum weft_long_samples WEFT_UINT32_ { WEFT_LONG_REFUSE = 0, WEFT_LONG_CUT = 1, WEFT_LONG_SKIP = 2 } weft_long_samples;
/** Data of a preset. Default of every field, except end_token: 0 or NULL. */
typedef struct weft_data_config {
  uint32_t size;
  int32_t end_token;          /**< NAME.jsonl: the token after each completion and text that does not end with it, or with an eos_token_id
                                   of the model beside the tokenizer; -1: none. Default: -1 */
  const char *path;           /**< little-endian ids, NAME.u16 or NAME.u32; with `tokenizer`, a text in UTF-8, or samples, NAME.jsonl; a file of
                                   bytes if the vocabulary is 256 and there is no tokenizer. NULL: synthetic data, or only eval_path */
  const char *eval_path;      /**< a file of held-out data, or NULL */
  double eval_share;          /**< without eval_path: this share at the end of `path` is held out, 0 or more and less than 1. Synthetic
                                   data has 64 held-out windows */
  int64_t vocabulary, seq_len;   /**< of tokens; 0: rows of numbers, and `path` is NULL */
  int64_t width;              /**< of rows */
  const weft_tokenizer *tokenizer;   /**< for text; used only by weft_data_open */
  uint32_t packed;            /**< if not 0, a window of NAME.jsonl has as many samples as fit, for weft_model_packed */
  weft_long_samples long_samples;   /**< of NAME.jsonl. WEFT_LONG_CUT also leaves out those without a target before the cut */
} weft_data_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_data_config_init(weft_data_config *config, size_t size);

/**
 * Opens training data. A file is read once, and refused if it is too short or contains an id that is not in the vocabulary. The ids of a text
 * are kept in memory. A line of NAME.jsonl is {"prompt": "...", "completion": "..."}, a sample: the tokens for the beginning of a text, the
 * prompt, the completion and end_token. Only the completion and end_token are targets; the targets of the prompt, and of the padding after
 * the sample, are -1, which the loss does not count. Of {"text": "..."} all tokens but the first are targets. Of {"messages": [{"role": "...",
 * "content": "..."}, ...]}, a conversation in the form of the chat template (weft_tokenizer_chat), only the answers of the role "assistant",
 * with the end of their turns, are targets. A window is one sample or, if `packed` is not 0, as many as it has room for; eval_share is a share
 * of the samples that are used. Owner: caller; free with weft_data_free. Thread: any.
 */
WEFT_API weft_status weft_data_open(const weft_data_config *config, weft_data **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_data_free(weft_data *data);
/**
 * Fills the two inputs of a preset with samples, which dimension 0 counts. Sample j is the window at an offset that is drawn for (seed, step,
 * j); its target is the same window one token later. The windows of NAME.jsonl take turns, in a new order that is drawn from the seed each
 * time all have been used, if every step has as many samples. Thread: any.
 */
WEFT_API weft_status weft_data_sample(const weft_data *data, uint64_t seed, uint64_t step, weft_tensor *x, weft_tensor *target, weft_error *err);
/** Fills the third input of weft_model_packed, i32[samples, seq_len], as weft_data_sample does: each token's place in its sequence. Thread: any. */
WEFT_API weft_status weft_data_positions(const weft_data *data, uint64_t seed, uint64_t step, weft_tensor *positions, weft_error *err);
/** The number of windows of an epoch: those of NAME.jsonl, or adjacent ones of a file of tokens. 0: there is no file. Thread: any. */
WEFT_API int64_t weft_data_windows(const weft_data *data);
/** The number of windows of held-out data; 0: there is none. Thread: any. */
WEFT_API int64_t weft_data_eval_windows(const weft_data *data);
/** The number of samples, training and held out, of which WEFT_LONG_CUT has cut the end off. Thread: any. */
WEFT_API int64_t weft_data_cut_samples(const weft_data *data);
/** The number of samples, training and held out, that WEFT_LONG_CUT and WEFT_LONG_SKIP have left out. Thread: any. */
WEFT_API int64_t weft_data_skipped_samples(const weft_data *data);
/**
 * Fills the two inputs with held-out windows, starting at `first`, which must be one. The last one of tokens may be shorter, and there may be
 * fewer than the tensors have room for; the rest is padding, whose targets are -1. Thread: any.
 */
WEFT_API weft_status weft_data_eval(const weft_data *data, int64_t first, weft_tensor *x, weft_tensor *target, weft_error *err);
/** Fills the third input of weft_model_packed for the windows of weft_data_eval. Thread: any. */
WEFT_API weft_status weft_data_eval_positions(const weft_data *data, int64_t first, weft_tensor *positions, weft_error *err);

/* ---- tokenizers --------------------------------------------------------------------------------------------------------------- */

/** Flags of weft_tokenizer_encode, weft_tokenizer_decode and weft_text_stream_new. */
enum weft_tokenizer_flags {
  WEFT_ADD_SPECIALS = 1,    /**< encode: add the tokens for the beginning and the end of a text that the file has in "post_processor" */
  WEFT_PLAIN_SPECIALS = 2,  /**< encode: the name of a special token in the text is text, for text that is not trusted */
  WEFT_SKIP_SPECIALS = 4    /**< decode: leave special tokens out */
};

/**
 * Opens tokenizer.json of Hugging Face's `tokenizers`, or that of a directory. The model must be BPE; weft_tokenizer_open(3) lists the parts
 * that are known. A part that is not known is refused. The chat template beside the file is read, too; without one, or with one that is not
 * known, only weft_tokenizer_chat fails. Owner: caller; free with weft_tokenizer_free. Thread: any.
 */
WEFT_API weft_status weft_tokenizer_open(const char *path, weft_tokenizer **out, weft_error *err);
/** The same from the `size` bytes of a file. Owner: caller; free with weft_tokenizer_free. Thread: any. */
WEFT_API weft_status weft_tokenizer_parse(const char *json, size_t size, weft_tokenizer **out, weft_error *err);
/** NULL is a no-op. Streams keep what they need. Thread: owner. */
WEFT_API void weft_tokenizer_free(weft_tokenizer *tokenizer);
/** The number of ids, from 0 on; 0 for NULL. Some may have no token. Thread: any. */
WEFT_API int64_t weft_tokenizer_vocabulary(const weft_tokenizer *tokenizer);
/** The id of a token as the file writes it, for instance "<|endoftext|>"; -1 if there is none. Thread: any. */
WEFT_API int32_t weft_tokenizer_id(const weft_tokenizer *tokenizer, const char *token);
/** The id of the token that ends a text: 'eos_token' of tokenizer_config.json, or of the class it names; -1: none. Thread: any. */
WEFT_API int32_t weft_tokenizer_end_token(const weft_tokenizer *tokenizer);
/**
 * The token of an id as the file writes it, or NULL. *special (may be NULL) is set to 1 for a special token, otherwise to 0. Borrowed: valid
 * as long as the tokenizer. Thread: any.
 */
WEFT_API const char *weft_tokenizer_token(const weft_tokenizer *tokenizer, int32_t id, uint32_t *special);
/**
 * Encodes `size` bytes of UTF-8. `flags`: of weft_tokenizer_flags, or 0. *n_ids is set to the number of ids; at most `capacity` of them are
 * written to `ids`, which may be NULL if `capacity` is 0. WEFT_EDATA: the text is not UTF-8. Thread: any.
 */
WEFT_API weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text, size_t size, uint32_t flags, int32_t *ids,
                                           size_t capacity, size_t *n_ids, weft_error *err);
/**
 * Decodes ids. Ids without a token are left out; bytes that are not UTF-8 become U+FFFD. `flags`: of weft_tokenizer_flags, or 0. *size is set
 * to the bytes of the text; at most `capacity` are written to `text`, which may be NULL if `capacity` is 0, and a NUL if it fits. Thread: any.
 */
WEFT_API weft_status weft_tokenizer_decode(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, uint32_t flags, char *text,
                                           size_t capacity, size_t *size, weft_error *err);

/** A message of a conversation, in UTF-8. */
typedef struct weft_chat_message {
  const char *role;           /**< "system", "user", "assistant", or another one that the template knows */
  const char *content;
} weft_chat_message;

/** How a conversation becomes a text. */
typedef struct weft_chat_config {
  uint32_t size;
  uint32_t add_generation_prompt;   /**< 1: the text ends with the beginning of an answer; 0: it ends with the last message. Default: 1 */
  int64_t local_time_ns;      /**< for templates that print the date: the local time since 1970-01-01 00:00. 0: none; such a template then
                                   prints a date of its own, or fails. Default: 0 */
  uint32_t refuse_specials;   /**< 1: for contents that are not trusted: those that change the text's special tokens, or other added tokens
                                   that the template writes, are refused. Roles must be trusted. Default: 0 */
  uint32_t reserved;          /**< 0 */
} weft_chat_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_chat_config_init(weft_chat_config *config, size_t size);
/**
 * Renders a conversation with the chat template of the model: the file chat_template.jinja beside tokenizer.json, or "chat_template" in
 * tokenizer_config.json. The text is that of Transformers' apply_chat_template. It has all special tokens that the model expects, so it is
 * encoded with flags 0. As with Transformers, the name of a special token in a content then becomes this token, which could end a message;
 * `refuse_specials` prevents it. `config` may be NULL. *size is set to the bytes of the text; at most `capacity` bytes are written to `text`, with
 * a NUL if there is space for it. `text` may be NULL if `capacity` is 0. WEFT_ENOENT: there is no template. WEFT_EINVAL: the messages
 * are refused, for instance a role. WEFT_EDATA: the template is not valid, or uses a part of Jinja that weft does not know. Thread: any.
 */
WEFT_API weft_status weft_tokenizer_chat(const weft_tokenizer *tokenizer, const weft_chat_message *messages, size_t n_messages,
                                         const weft_chat_config *config, char *text, size_t capacity, size_t *size, weft_error *err);

/** Decodes ids that arrive one by one. */
typedef struct weft_text_stream weft_text_stream;

/** Starts a text. `flags`: WEFT_SKIP_SPECIALS or 0. Owner: caller; free with weft_text_stream_free. Thread: any. */
WEFT_API weft_status weft_text_stream_new(const weft_tokenizer *tokenizer, uint32_t flags, weft_text_stream **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_text_stream_free(weft_text_stream *stream);
/**
 * Sets *text to what the id adds to the text, *size bytes of UTF-8 and a NUL. A character whose bytes are not complete is held back, so the
 * text may be empty. Borrowed: valid until the next call with the stream. Thread: owner.
 */
WEFT_API weft_status weft_text_stream_add(weft_text_stream *stream, int32_t id, const char **text, size_t *size, weft_error *err);
/**
 * Sets *text to the rest; a character that is still incomplete becomes U+FFFD. The stream then starts another text. Borrowed: valid until
 * the next call with the stream. Thread: owner.
 */
WEFT_API weft_status weft_text_stream_finish(weft_text_stream *stream, const char **text, size_t *size, weft_error *err);

/** How a tokenizer is trained. */
typedef struct weft_tokenizer_config {
  uint32_t size;
  uint32_t vocabulary;        /**< number of tokens: at least 256 and the special tokens. Default: 32768 */
  uint32_t min_count;         /**< a pair of tokens that occurs less often in the text is not merged. Default: 2 */
  uint32_t n_specials;        /**< Default: 0 */
  const char *const *specials;   /**< special tokens, whose ids are the first. Default: NULL */
} weft_tokenizer_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_tokenizer_config_init(weft_tokenizer_config *config, size_t size);
/**
 * Trains a byte-level BPE, as GPT-2 has, on `n_text` bytes of UTF-8, and writes tokenizer.json to `path`. The result is that of the
 * `tokenizers` library for the same text as one string. `config` may be NULL. Thread: any.
 */
WEFT_API weft_status weft_tokenizer_train(const char *text, size_t n_text, const weft_tokenizer_config *config, const char *path, weft_error *err);

/* ---- run ---------------------------------------------------------------------------------------------------------------------- */

typedef struct weft_run weft_run;

/** Flags of a run. */
enum weft_run_flags {
  WEFT_RUN_NOWAIT = 1   /**< weft_run_start returns at once; events tell the progress of the start */
};

/** Levels of log lines. */
typedef enum weft_log_level WEFT_UINT32_ {
  WEFT_LOG_WARNING = 1,   /**< refused processes, long waits, failures */
  WEFT_LOG_INFO = 2,      /**< also the start and the end of a run over processes, its ranks, checkpoints */
  WEFT_LOG_DEBUG = 3      /**< also every connection */
} weft_log_level;
/**
 * Receives a log line without a newline; `text` is valid during the call. Called by one thread at a time, which may be any thread of the
 * library or of a caller. It must return soon, because the run waits for it, and must not call weft.
 */
typedef void (*weft_log_cb)(weft_log_level level, const char *text, void *payload);

typedef struct weft_run_config {
  uint32_t size;
  uint32_t threads;           /**< compute threads per rank, 0 to 1024. Without a mesh, 0 means that weft_run_poll computes; with a mesh,
                                   0 counts as 1. Default: 0. */
  uint32_t flags;             /**< of weft_run_flags. Default: 0. */
  weft_log_level log_level;   /**< the most detailed level of lines that `log` gets. Default: WEFT_LOG_INFO. */
  weft_log_cb log;            /**< gets the log lines of the run. Default: NULL: there are none. */
  void *log_payload;          /**< of `log`. Default: NULL. */
  const char *weights_dir;    /**< for weft_run_serve and weft_run_join: a directory. When rank 0 loads a safetensors file, this rank reads
                                   its part of that file itself if it finds the file below this directory, at the path that rank 0 uses and
                                   with the same contents. Rank 0 sends the other parts. Copied by the call. Default: NULL. */
} weft_run_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_run_config_init(weft_run_config *config, size_t size);

/**
 * Allocates the planned memory and initializes the parameters. If `mesh` is NULL, this process hosts all ranks. Otherwise the call waits
 * until every other rank has joined; WEFT_ETIMEDOUT names the missing ranks. The mesh serves one run; weft_mesh_free ends the run.
 * `config` may be NULL. Owner: caller; free with weft_run_free. Thread: any.
 *
 * With WEFT_RUN_NOWAIT the call returns at once, and weft_run_poll delivers WEFT_EVENT_JOINED, _LEFT and _REFUSED, and then either
 * WEFT_EVENT_STARTED or WEFT_EVENT_FAILED. Other calls on the run return WEFT_ESTATE until then. Without mesh and threads, it starts at once.
 */
WEFT_API weft_status weft_run_start(const weft_plan *plan, weft_mesh *mesh, const weft_run_config *config, weft_run **out, weft_error *err);
/** Ends the run on every rank, also during the start, and discards unfinished steps. May wait for a running job. NULL is a no-op. Thread: owner. */
WEFT_API void weft_run_free(weft_run *run);
/**
 * Any rank except 0: joins, receives a rank, model and plan, and serves until the run ends. Returns WEFT_OK after a normal end, otherwise the
 * failure and its rank (WEFT_EPEER: a rank was lost; WEFT_ECANCELED: rank 0 ended the run during a step). `plan`: of a process that made
 * the plan itself; if it differs from that of rank 0, WEFT_EPEER names the section. NULL: the plan is received. `ops`: a model whose user
 * ops are available here; may be NULL. `config` may be NULL. Thread: owner of the mesh.
 */
WEFT_API weft_status weft_run_serve(weft_mesh *mesh, const weft_plan *plan, const weft_model *ops, const weft_run_config *config, weft_error *err);
/**
 * weft_run_serve that returns at once. weft_run_poll delivers WEFT_EVENT_JOINED with the rank of this process, WEFT_EVENT_STARTED, and
 * finally WEFT_EVENT_ENDED or WEFT_EVENT_FAILED. Only weft_run_poll, weft_run_fd, weft_run_failure and weft_run_free are possible. Freed
 * before its final event, the rank leaves, and the run fails on the other ranks with WEFT_ECANCELED. `plan` and `ops` may be freed after the
 * call. Owner: caller; free with weft_run_free. Thread: owner of the mesh.
 */
WEFT_API weft_status weft_run_join(weft_mesh *mesh, const weft_plan *plan, const weft_model *ops, const weft_run_config *config,
                                   weft_run **out, weft_error *err);

/** What a step does. */
typedef enum weft_step_mode WEFT_UINT32_ {
  WEFT_TRAIN = 1,       /**< forward, backward, update */
  WEFT_NO_UPDATE = 2,   /**< forward, backward; the weights do not change, and gradients can be read */
  WEFT_EVAL = 3,        /**< forward to the loss */
  WEFT_FORWARD = 4,     /**< forward to the outputs; inputs that they do not need may be NULL */
  WEFT_FILL = 5         /**< forward to the state of nodes, as the caches of weft_model_decoder, and no further; there are no outputs */
} weft_step_mode;

/**
 * Submits one step: all samples of all inputs, in the order in which the inputs were added to the model. Dimension 0 counts samples, which
 * the engine divides into micro-batches. With an asynchronous schedule, WEFT_TRAIN makes one update per weft_plan_config.micro_batches of
 * them, and WEFT_FORWARD takes the samples of one update. If the call succeeds, the run holds references to the inputs, and delivers
 * events with this tag: one per micro-batch (WEFT_FILL: none), then exactly one final event. If the call fails, it has no effect;
 * WEFT_EAGAIN: 16 steps and saves are not finished. Queued steps of one mode without a backward pass overlap. Thread: owner.
 */
WEFT_API weft_status weft_run_submit(weft_run *run, weft_tensor *const *inputs, uint32_t n_inputs, weft_step_mode mode, uint64_t tag,
                                     weft_error *err);

/** Sets the learning rate of all steps submitted after this call, in place of that of the plan (weft_plan_rate); rate_factor of parameter
 * groups still applies. Not stored in checkpoints. A rate that is negative or not finite is WEFT_EINVAL. Thread: owner. */
WEFT_API weft_status weft_run_set_rate(weft_run *run, double rate, weft_error *err);

/**
 * Makes one step: submits it, waits until it is finished, and sets *loss (may be NULL) to its loss. Failures of the run are returned. If the
 * step delivers outputs, `outputs` may be `n_outputs` tensors of the caller in the order of weft_model_add_output, each of the shape of its
 * output for all samples; the call fills them, except NULL, or in part if it fails. Else `n_outputs` is 0. Only between steps. Thread: owner.
 */
WEFT_API weft_status weft_run_step(weft_run *run, weft_tensor *const *inputs, uint32_t n_inputs, weft_step_mode mode,
                                   weft_tensor *const *outputs, uint32_t n_outputs, double *loss, weft_error *err);

/** Kinds of events. Ignore kinds that you do not know. */
typedef enum weft_event_kind WEFT_UINT32_ {
  WEFT_EVENT_MICRO_BATCH = 1,   /**< the loss of one micro-batch, its outputs, or both */
  WEFT_EVENT_DONE = 2,          /**< final: the step is finished */
  WEFT_EVENT_ERROR = 3,         /**< final: the run has failed; status, text and failure give the reason */
  WEFT_EVENT_UPDATE = 4,        /**< asynchronous schedules: the result of one update; in ascending order, before the final event */
  WEFT_EVENT_SAVED = 5,         /**< final event of a queued save: `path`, or the status and text of its failure */
  WEFT_EVENT_JOINED = 6,        /**< a process has joined as `rank`, and `missing` ranks have not joined; of weft_run_join: this process */
  WEFT_EVENT_LEFT = 7,          /**< the process that joined as `rank` left before all ranks had joined: the rank is missing again */
  WEFT_EVENT_REFUSED = 8,       /**< this process has refused `count` connections so far; `text` describes the last one */
  WEFT_EVENT_STARTED = 9,       /**< the run has started */
  WEFT_EVENT_FAILED = 10,       /**< the run has failed, and not in a step or save: in its start, between steps, or one of weft_run_join.
                                     Fields as for WEFT_EVENT_ERROR. Steps that are submitted later still have their final event */
  WEFT_EVENT_ENDED = 11         /**< of weft_run_join, instead of FAILED: rank 0 has ended the run. Nothing follows either of them */
} weft_event_kind;

/** Why a run has failed. */
typedef enum weft_cause WEFT_UINT32_ {
  WEFT_CAUSE_FAILED = 1,        /**< something failed in the process of the rank; detail describes it */
  WEFT_CAUSE_CLOSED = 2,        /**< the connection to the rank was closed; detail: what the transport reports */
  WEFT_CAUSE_SILENT = 3,        /**< nothing arrived from the rank for limit_ns */
  WEFT_CAUSE_MISSING = 4,       /**< `count` data frames that the rank announced did not arrive within limit_ns */
  WEFT_CAUSE_UNREACHABLE = 5,   /**< the rank did not connect, within limit_ns unless that is 0; detail: what the transport reports */
  WEFT_CAUSE_LATE = 6,          /**< the rank did not do within limit_ns what detail names */
  WEFT_CAUSE_REFUSED = 7,       /**< the process differs from the rest of the run; detail describes the difference */
  WEFT_CAUSE_PROTOCOL = 8,      /**< the rank violated the protocol; detail describes how */
  WEFT_CAUSE_NO_RUN = 9         /**< the run did not begin; detail gives the reason */
} weft_cause;

/** What a rank did when it failed. */
typedef enum weft_activity WEFT_UINT32_ {
  WEFT_ACTIVITY_UNKNOWN = 0,
  WEFT_ACTIVITY_IDLE = 1,
  WEFT_ACTIVITY_RUNS = 2,
  WEFT_ACTIVITY_WAITS = 3
} weft_activity;

/** What a rank that waits is waiting for. */
typedef enum weft_awaited WEFT_UINT32_ {
  WEFT_AWAITS_NOTHING = 0,
  WEFT_AWAITS_COMMIT = 1,       /**< the message of rank 0 that the weights may change */
  WEFT_AWAITS_RELEASE = 2,      /**< the messages of the rank itself have to leave */
  WEFT_AWAITS_INPUT = 3,
  WEFT_AWAITS_ACTIVATION = 4,
  WEFT_AWAITS_GRADIENT = 5,
  WEFT_AWAITS_MESSAGE = 6       /**< any other message */
} weft_awaited;

/** The failure of a run. Every rank reports the same. */
typedef struct weft_failure {
  uint32_t size;
  weft_cause cause;
  weft_status status;
  int32_t rank;                   /**< the rank that failed, not the one that noticed it; -1: none */
  int32_t other;                  /**< not -1: both ranks are alive, and the connection between them was lost */
  uint32_t joining;               /**< 1: the process of the rank had not joined the run yet */
  uint32_t pid;                   /**< of that process; 0: this process, or unknown */
  uint32_t n_stages;
  const uint32_t *stages;         /**< stages that the rank hosts, ascending */
  const char *host;               /**< of that process; "": this host, or unknown */
  const char *detail;             /**< a description, depending on the cause */
  weft_activity activity;         /**< of the rank when it failed; if it was lost, in its last report */
  uint32_t job;                   /**< 'F', 'I', 'W', 'B', 'R', 'O': that action. 'c': clears gradients; 'g': adds gradients; 'u': updates
                                       weights; 'e': finishes the step; 0: none */
  int32_t stage, micro_batch;     /**< of the action; -1: none */
  weft_step_mode mode;            /**< of the step: WEFT_TRAIN, WEFT_EVAL, WEFT_FORWARD or WEFT_FILL */
  weft_awaited awaited;
  int32_t awaited_rank;           /**< the sender of the awaited message; -1: none */
  uint32_t reserved;
  uint64_t step;                  /**< training steps before that step; WEFT_ACTIVITY_IDLE: finished steps of any kind */
  int64_t limit_ns, count;        /**< see weft_cause */
  int64_t heard_ns;               /**< time since the last frame of the rank; -1: unknown */
  int64_t reported_ns;            /**< time since the last report of the rank; -1: unknown */
} weft_failure;

/** An event of a run. All pointers are borrowed and valid until the next poll, also one by weft_run_step, weft_run_save or a generator. */
typedef struct weft_event {
  uint32_t size;
  weft_event_kind kind;
  uint64_t tag;                   /**< of the step or save */
  weft_status status;
  uint32_t micro_batch;
  uint64_t step;                  /**< updates of the weights before this step or update; saved: those in the checkpoint */
  double loss;                    /**< the mean over the micro-batch, the update or the whole step */
  double grad_norm;               /**< done, update: global norm before clipping; done after several updates: of the last one. If it is not
                                       finite, the weights keep their values; update: those of ranks whose gradients are not finite */
  weft_tensor *const *outputs;    /**< micro-batch, if the step delivers outputs: in the order they were added. Copy them: they change later */
  uint32_t n_outputs;
  int32_t rank;                   /**< error, failed, saved: the rank that failed, or -1; joined, left: the rank; started: that of this process */
  const char *text;               /**< error, failed, saved: description of the failure; refused: of the connection; else NULL */
  double idle;                    /**< done: share of time without its kernels, mean over ranks, from the first to the last action of the step */
  const double *idle_by_rank;     /**< done; by the clock of each machine */
  uint32_t n_ranks;
  uint32_t missing;               /**< joined, left: ranks that have not joined */
  const char *path;               /**< saved: the checkpoint; NULL if there is none */
  const weft_failure *failure;    /**< error, failed, and saved if the run has failed: the facts behind `text`; else NULL */
  const char *host;               /**< joined: machine of the process; else NULL */
  uint32_t pid;                   /**< joined: of the process */
  uint32_t ranks;                 /**< joined, left, started: ranks of the run */
  uint64_t count;                 /**< refused: connections refused by this process since the mesh was made */
} weft_event;

/**
 * Fills *event with the next event. Set event->size before the call. Returns 1 for an event. Returns 0 if `timeout_ns` has passed (negative:
 * no limit), and at once if there is no event and no start, step or save is in progress; all fields of *event except size are then 0. In a
 * run without threads the call computes, and compares the time after each job: with `timeout_ns` 0 it runs at most one job, which is one
 * action of one rank. A save is not divided. Thread: owner.
 */
WEFT_API weft_status weft_run_poll(weft_run *run, weft_event *event, int64_t timeout_ns, weft_error *err);

/**
 * Returns 1 and fills *out if the run has failed, even if another call than weft_run_poll noticed it; else returns 0. The pointers in *out
 * are borrowed: valid as long as the run. Thread: owner.
 */
WEFT_API weft_status weft_run_failure(const weft_run *run, weft_failure *out);

/**
 * Writes a failure as text, in the form of weft_event.text, with a NUL; the caller may change fields before. Writes at most `size` bytes;
 * returns the bytes that the whole text needs, with its NUL. Thread: any.
 */
WEFT_API size_t weft_failure_text(const weft_failure *failure, char *buffer, size_t size);

/**
 * A descriptor that is readable while weft_run_poll, or weft_generator_poll, has something to do: level-triggered, for poll(2) and similar
 * calls. Do not read from it. -1: the process had no descriptor left when the run started. Borrowed: valid until the run or its mesh is
 * freed. Thread: any.
 */
WEFT_API int weft_run_fd(const weft_run *run);

/** Bytes of the tensors of a rank that are in memory; compare weft_plan_bytes. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_resident(weft_run *run, uint32_t rank, int64_t *bytes, weft_error *err);

/** Tensors of a parameter. */
typedef enum weft_part WEFT_UINT32_ {
  WEFT_VALUE = 1,
  WEFT_GRAD = 2,         /**< gradient of the last step with a backward pass, before clipping; of several updates, the last one */
  WEFT_MOMENTUM = 3,     /**< state of sgd with momentum */
  WEFT_EXP_AVG = 4,      /**< state of adam and adamw: mean of the gradients */
  WEFT_EXP_AVG_SQ = 5    /**< state of adam and adamw: mean of their squares */
} weft_part;

/**
 * Copies a tensor of a parameter into `tensor`, which has the same shape. WEFT_GRAD also reads the gradient of an input, for the samples of
 * the last step. Only between steps: WEFT_ESTATE while steps or saves are not finished. Thread: owner.
 */
WEFT_API weft_status weft_run_read(weft_run *run, const char *name, weft_part part, weft_tensor *tensor, weft_error *err);
/** Copies `tensor` into a tensor of a parameter, except WEFT_GRAD, which can only be read. Only between steps, as weft_run_read. Thread: owner. */
WEFT_API weft_status weft_run_write(weft_run *run, const char *name, weft_part part, const weft_tensor *tensor, weft_error *err);

/** Makes every rank record the times of its next `jobs` jobs (actions and others); 0: stop. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_trace(weft_run *run, uint32_t jobs, weft_error *err);
/** Writes the records as a Chrome trace (JSON, for Perfetto and chrome://tracing), one track per rank. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_save_trace(weft_run *run, const char *path, weft_error *err);
/**
 * Makes a profile with the times that the run has recorded since weft_run_trace, in at least five training steps. Predictions from it include
 * what ranks lose by sharing a machine. `profile` has the times to scale; it is of the same model and micro-batch size. Only between steps.
 * Owner: caller; free with weft_profile_free. Thread: owner.
 */
WEFT_API weft_status weft_run_profile(weft_run *run, const weft_profile *profile, weft_profile **out, weft_error *err);

/**
 * Writes 32 hex digits and a NUL, a hash over all parameters. Runs with the same parameters have the same digest, and others
 * practically never do; it is not a cryptographic hash. It is the XXH3-128 over, per parameter in byte order of names, its name, a NUL, and the
 * XXH3-128 of its little-endian bytes (two little-endian 64-bit words, the high one first). A tied parameter counts once. Only between steps.
 * Thread: owner.
 */
WEFT_API weft_status weft_run_digest(weft_run *run, char digest[33], weft_error *err);
/** The same over the optimizer state, whose tensors are named PARAMETER.exp_avg, PARAMETER.exp_avg_sq or PARAMETER.momentum. Thread: owner. */
WEFT_API weft_status weft_run_optimizer_digest(weft_run *run, char digest[33], weft_error *err);

/* ---- generator ---------------------------------------------------------------------------------------------------------------- */

/** Continues sequences of tokens with the run of a decoder. */
typedef struct weft_generator weft_generator;

/** The next token of a sequence, before it is chosen. The library fills the struct; it and its arrays are valid until the callback returns. */
typedef struct weft_choice {
  uint32_t size;              /**< sizeof the struct of the library; a later version may have more fields */
  uint32_t reserved;
  uint64_t sequence;          /**< as weft_generator_add returned it */
  uint64_t index;             /**< of the token among those that are added, from `first` */
  const int32_t *tokens;      /**< of the sequence, without the next one */
  size_t n_tokens;
  float *logits;              /**< one per token of the vocabulary, as the model computes them; may be changed, -INFINITY excludes a token */
  size_t n_logits;
  void *payload;              /**< of weft_sequence_config */
  weft_error *err;            /**< a callback that fails may write the reason to err->text, which the failure then contains */
} weft_choice;

/** How a sequence is continued. The filters apply after the temperature: top_k, then top_p, then min_p. */
typedef struct weft_sequence_config {
  uint32_t size;
  uint32_t top_k;             /**< choose among that many of the most likely tokens; 0: all. Default: 0. */
  double temperature;         /**< of the random choice; 0: always the most likely token. Default: 1. */
  double top_p;               /**< choose among the fewest most likely tokens that together have this probability. Default: 1. */
  double min_p;               /**< choose among tokens of at least this part of the probability of the most likely one. Default: 0. */
  double repetition_penalty;  /**< divides positive logits of tokens of the sequence, and multiplies others. Default: 1. */
  uint64_t seed;              /**< of random choices, with `number` and the index of the token. Default: 0. */
  uint64_t number;            /**< of the sequence, as a second seed. Default: 0. */
  uint64_t first;             /**< index of the first token that is added. Default: 0. */
  uint64_t limit;             /**< tokens to add; 0: as many as the cache has positions for. Default: 0. */
  const int32_t *stops;       /**< tokens that end the sequence. Default: NULL. */
  uint32_t n_stops;           /**< number of `stops`. Default: 0. */
  uint32_t reserved;
  /**
   * Reads the logits of each next token, and may change them, before the penalty and the temperature. Called inside weft_generator_poll. It
   * must not call functions of the run and its generator. It returns 0, or a failure, with which the sequence ends: WEFT_EUSER. Default: NULL.
   */
  int32_t (*choose)(const weft_choice *choice);
  void *payload;              /**< of `choose`; must be valid until the sequence has ended. Default: NULL. */
} weft_sequence_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_sequence_config_init(weft_sequence_config *config, size_t size);

/** Why a sequence ends with a token. */
typedef enum weft_sequence_end WEFT_UINT32_ {
  WEFT_SEQUENCE_CONTINUES = 0,
  WEFT_SEQUENCE_LIMIT = 1,    /**< `limit` tokens were added */
  WEFT_SEQUENCE_STOP = 2,     /**< the token is one of `stops` */
  WEFT_SEQUENCE_CONTEXT = 3   /**< the cache has no position for the token */
} weft_sequence_end;

/** A token that was added to a sequence. */
typedef struct weft_token {
  uint32_t size;
  weft_sequence_end end;      /**< if it is not 0, the sequence has left the generator */
  uint64_t sequence;          /**< as weft_generator_add returned it */
  uint64_t index;             /**< of the token among those that are added, from `first` */
  int32_t token;
  uint32_t reserved;
} weft_token;

/**
 * Creates a generator of a run whose model is of weft_model_decoder. The run must be idle. With replicas, which divide the sequences, the
 * number of micro-batches of the plan has to be a multiple of theirs. Until the generator is freed, only the generator submits steps to the
 * run and polls it; others get WEFT_ESTATE. Owner: caller; free with weft_generator_free. Thread: owner of the run.
 */
WEFT_API weft_status weft_generator_new(weft_run *run, weft_generator **out, weft_error *err);
/** A step in progress ends first. NULL is a no-op. Works after weft_run_free, too; other calls then return WEFT_ESTATE. Thread: owner. */
WEFT_API void weft_generator_free(weft_generator *generator);

/**
 * Adds a sequence that begins with `tokens`, 1 to the number of positions of the cache, which are copied. `config`: NULL is the defaults.
 * `sequence` receives its identifier. If the cache has the tokens with which it begins, of a sequence of the same replica that runs or has
 * left, at most a few of them are computed again. WEFT_EAGAIN: the cache has no place for another sequence. Between any two tokens.
 * Thread: owner.
 */
WEFT_API weft_status weft_generator_add(weft_generator *generator, const int32_t *tokens, size_t n_tokens,
                                        const weft_sequence_config *config, uint64_t *sequence, weft_error *err);
/** Ends a sequence; its tokens that have not been polled are dropped. WEFT_ENOENT: it has ended, and no token was left. Thread: owner. */
WEFT_API weft_status weft_generator_remove(weft_generator *generator, uint64_t sequence, weft_error *err);

/**
 * Waits for the next token and returns 1, or 0 if the time has passed or the generator has no sequence; `timeout_ns` is like that of
 * weft_run_poll. It computes steps for all sequences: their next tokens, and parts of their beginnings. If a step has fewer rows than there
 * are sequences, the sequences get rows in turn. A token depends only on the weights, its sequence and the configuration of it, not on other
 * sequences, ranks and threads. WEFT_EDATA: a logit is NaN, or the largest one is not finite; WEFT_EUSER: `choose` failed. Then
 * token->sequence has ended, and the others continue; after other failures it is 0. Thread: owner.
 */
WEFT_API weft_status weft_generator_poll(weft_generator *generator, weft_token *token, int64_t timeout_ns, weft_error *err);

/* ---- checkpoints -------------------------------------------------------------------------------------------------------------- */

typedef struct weft_pair { const char *key, *value; } weft_pair;

/** Flags of weft_run_save. */
enum weft_save_flags {
  WEFT_SAVE_QUEUE = 1   /**< return at once; the save is made after the steps that were submitted before it */
};

/** Default of every field: 0 or NULL. */
typedef struct weft_save_config {
  uint32_t size;
  uint32_t n_options;
  const char *directory;      /**< made if missing. Has the two newest checkpoints, step-00000010/ ..., and latest, which names the newest */
  const char *model;          /**< the text of a preset, from which a reader can make the model; may be NULL */
  const weft_pair *options;   /**< stored with the checkpoint; keys are unique and not empty */
  uint32_t flags;             /**< of weft_save_flags */
  uint32_t reserved;          /**< 0 */
  uint64_t tag;               /**< with WEFT_SAVE_QUEUE: the tag of the event */
} weft_save_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_save_config_init(weft_save_config *config, size_t size);

/**
 * Writes parameters, optimizer state, seed, settings and the number of steps. The checkpoint appears complete or not at all. A directory with a newer
 * checkpoint is refused; a checkpoint of the same step is replaced, whichever run made it. A failure does not affect the run or earlier checkpoints.
 * The call waits for the end of the save, and is made between steps. With WEFT_SAVE_QUEUE it may be made during steps: the checkpoint contains the
 * steps that were submitted before it and none that were submitted later. If the call succeeds, exactly one WEFT_EVENT_SAVED follows; if not, it has
 * no effect. WEFT_EAGAIN: 16 steps and saves are not finished. Not possible after a failed step. Thread: owner.
 */
WEFT_API weft_status weft_run_save(weft_run *run, const weft_save_config *config, weft_error *err);

/** Writes all parameters as one safetensors file. A path inside a checkpoint is refused. Only between steps. Thread: owner. */
WEFT_API weft_status weft_run_export(weft_run *run, const char *path, weft_error *err);

typedef struct weft_checkpoint weft_checkpoint;

/** All pointers are borrowed and valid as long as the checkpoint. */
typedef struct weft_checkpoint_info {
  uint32_t size;
  uint32_t weights_only;      /**< 1: a safetensors file, or a directory of Transformers or PEFT; seed and step are 0 */
  const char *path;           /**< the checkpoint that was opened; of a directory of checkpoints, the latest */
  const char *model;          /**< as given to weft_run_save; of a directory of Transformers, a text for weft_model_preset; or NULL */
  uint64_t seed, step;
  const weft_pair *options;   /**< in byte order of keys */
  uint32_t n_options;
  uint32_t n_params, n_states;   /**< tensors: parameters, then optimizer state */
  uint32_t n_ends;            /**< number of `ends` */
  const char *warning;        /**< the damaged checkpoints that were skipped, each with its damage; or NULL */
  const char *source;         /**< the directory with the files of weft_checkpoint_keep_source, or a directory of Transformers itself; or NULL */
  const int32_t *ends;        /**< tokens that end a text, the eos_token_id of generation_config.json or config.json in `source`; for
                                   weft_sequence_config.stops */
  const char *adapters;       /**< of a directory of PEFT, which has only adapters: the keys of a preset that has them; otherwise NULL */
} weft_checkpoint_info;

/**
 * Opens a checkpoint, a safetensors file, the latest checkpoint of a directory, or a directory that Hugging Face's Transformers wrote: config.json
 * and model.safetensors, or several files with model.safetensors.index.json; or adapters that PEFT wrote: adapter_config.json and
 * adapter_model.safetensors. The latest checkpoint of a directory is verified at once; if it is damaged, the newest intact one is opened,
 * and weft_checkpoint_describe warns. A single checkpoint is verified when it is read. Owner: caller; free with weft_checkpoint_free. Thread: any.
 */
WEFT_API weft_status weft_checkpoint_open(const char *path, weft_checkpoint **out, weft_error *err);
/** NULL is a no-op. Thread: owner. */
WEFT_API void weft_checkpoint_free(weft_checkpoint *checkpoint);
/** Describes a checkpoint. Thread: any. */
WEFT_API weft_status weft_checkpoint_describe(const weft_checkpoint *checkpoint, weft_checkpoint_info *info);
/**
 * The name and shape of tensor `index`; the name is NULL and desc->dtype 0 if there is none. `dtype` (may be NULL) receives the name of its
 * type in the file, or NULL; if weft has no such type, desc->dtype is 0. Borrowed: valid as long as the checkpoint. Thread: any.
 */
WEFT_API const char *weft_checkpoint_tensor(const weft_checkpoint *checkpoint, uint32_t index, weft_desc *desc, const char **dtype);
/** XXH3-128 of the bytes of a tensor, 32 hex digits and a NUL; index -1: of all parameters, as weft_run_digest. Thread: owner. */
WEFT_API weft_status weft_checkpoint_digest(weft_checkpoint *checkpoint, int64_t index, char digest[33], weft_error *err);
/** weft_checkpoint_export_as with the defaults. Thread: owner. */
WEFT_API weft_status weft_checkpoint_export(weft_checkpoint *checkpoint, const char *path, weft_error *err);

typedef struct weft_export_config {
  uint32_t size;
  uint32_t merge;             /**< 1: add the adapters of the model to the weights that they adapt, and do not write them. Default: 0. */
  const char *dtype;          /**< type of the parameters in the files: "f32", or "bf16", to which they are rounded. Default: "f32". */
  uint64_t shard_bytes;       /**< of a directory: bytes of the tensors in a file, which may have more only if it has one tensor.
                                   Default: 5000000000, as with Transformers. */
  const char *adapters;       /**< directory of PEFT, whose adapters are added to the model. NULL: none. Default: NULL. */
} weft_export_config;
/** Sets the defaults. Thread: any. */
WEFT_API void weft_export_config_init(weft_export_config *config, size_t size);

/**
 * Writes the parameters of a checkpoint, or of a directory of Transformers, as one safetensors file. If the path ends with '/', writes a directory
 * that Transformers loads: config.json, model.safetensors or several files with model.safetensors.index.json, and the files of
 * weft_checkpoint_keep_source. It is made if it does not exist; other files there are kept. The new config.json appears last, and an old one is
 * removed first. If the model is a preset with adapters that are not merged, the directory is one of PEFT: adapter_config.json, and
 * adapter_model.safetensors with only the adapters. A path inside a checkpoint, or that is read, is refused. Parameters are read one by one.
 * `config`: NULL is the defaults. Thread: owner.
 */
WEFT_API weft_status weft_checkpoint_export_as(weft_checkpoint *checkpoint, const char *path, const weft_export_config *config, weft_error *err);

/**
 * Copies the files of a model that are neither weights nor checkpoints into `directory`/source, for exports of the checkpoints in `directory`:
 * config.json, from which only the ids of special tokens are used, generation_config.json, and the files of the tokenizer. `directory` is a
 * directory of checkpoints, and is made if it does not exist. `source` is a directory of Transformers, or weft_checkpoint_info.source; NULL:
 * none. `tokenizer` is a file tokenizer.json, or its directory, which replaces the tokenizer of `source`; NULL: none. The copies appear
 * together, and replace earlier ones, also if there is nothing to copy. WEFT_ESTATE: a run writes a checkpoint there. Thread: any.
 */
WEFT_API weft_status weft_checkpoint_keep_source(const char *directory, const char *source, const char *tokenizer, weft_error *err);

/** What weft_run_load takes from a checkpoint. */
typedef enum weft_load WEFT_UINT32_ {
  WEFT_LOAD_ALL = 1,       /**< parameters, optimizer state and the number of steps */
  WEFT_LOAD_WEIGHTS = 2    /**< parameters */
} weft_load;

/**
 * Loads parameters by name; those of safetensors files are of type F32, F16 or BF16. With WEFT_LOAD_ALL the run continues bit for bit at any
 * number of ranks, if its plan has the seed, optimizer, micro-batches, gradient_groups and tensor of the run that was saved; of these, only the
 * update rule is checked. An error counts missing, surplus and mismatched tensors; if reading fails later, some are loaded. With WEFT_LOAD_WEIGHTS,
 * adapters keep their values if the checkpoint has none, and other parameters if it has only adapters. Between steps. Thread: owner.
 */
WEFT_API weft_status weft_run_load(weft_run *run, weft_checkpoint *checkpoint, weft_load what, weft_error *err);
/**
 * Loads parameters as weft_run_load with WEFT_LOAD_WEIGHTS, but not those whose names match a pattern of `kept`, for example those of a new head.
 * These keep their values, and the checkpoint may lack them or have other shapes. Patterns are separated by commas; '*' is any text, '?' any
 * character. WEFT_ENOENT: a pattern matches no parameter of the run or the checkpoint. Between steps. Thread: owner.
 */
WEFT_API weft_status weft_run_load_except(weft_run *run, weft_checkpoint *checkpoint, const char *kept, weft_error *err);

#ifdef __cplusplus
}
#endif

#endif
