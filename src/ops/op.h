// An op: what a node of a model computes. Stateless; one row in ops.def each.
//
//   forward       out, stash          <- in, weights
//   input_grad    din (per input)     <- dout, and what `uses_input` names           "I"
//   weight_grad   acc of one weight  += dout, and what `uses_weight` names           "W", one call
//   per weight; the first one of a sum may write acc instead (writes_sum)
//
// I and W are separate so that a schedule may run W late. A call is a pure function of its
// operands, attributes and key: same bits for any number of threads, any address, any host
// floating-point mode. Every op has exactly one output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kernels/packed_elements.h"
#include "kernels/tiles.h"
#include "tensor/row_set.h"
#include "tensor/shape.h"

namespace weft {

// The part of a larger tensor that a piece of a node computes: from index `begin` on, of an axis
// with `whole` indices. If whole is 0, the node is not a piece.
struct Section {
  int32_t axis = 0;
  int64_t begin = 0;
  int64_t whole = 0;
  friend bool operator==(const Section&, const Section&) = default;
};

// Collectives: the axis of the model, and coordinates along it. ppermute: for each coordinate, the
// coordinate whose value it receives, or -1; mask: the coordinates that keep their value;
// broadcast: the coordinate whose value all receive.
struct Over {
  int32_t axis = -1;
  int32_t size = 0;
  std::vector<int32_t> coordinates{};
  friend bool operator==(const Over&, const Over&) = default;
};

enum class Collective : uint8_t {
  none,
#define WEFT_COLLECTIVE(name) name,
#include "ops/collectives.def"
#undef WEFT_COLLECTIVE
};

// The settings of a node, besides its operands. One struct for all ops; each op lists the fields
// that it reads (Op::reads) and checks them.
struct Attrs {
  int32_t axis = 0;    // mean, sum, max, slice, concat, gather
  int32_t heads = 0;   // attention, cached_attention, rope
  uint32_t flags = 0;  // AttrFlag
  int64_t begin = 0;   // slice: [begin, end) along axis
  int64_t end = 0;
  double factor = 0;  // scale: factor; norms: epsilon; dropout, attention: probability of dropout;
                      // softmax_cross_entropy: label smoothing; rope: of the result, 0 is 1
  double momentum = 0;  // batch_norm: the share of the new moments in the running ones
  double cap = 0;       // softcap; attention, cached_attention: of scores, 0: none
  Shape dims{};  // reshape: target, first may be -1 (the batch); transpose: permutation; conv1d:
                 // stride, padding, dilation; mean, sum, max: axes; conv2d: these and groups;
                 // max_pool, average_pool: size, stride, padding; attention: window;
                 // cached_attention: sequences, positions of each, window
  Over over{};
  std::vector<float> frequencies{};  // rope: radians per position, of each pair of columns
  // Set by shard() and expand() only. Attentions, rope, dropout: of the output; embedding: of the
  // table, with kPositions of the output; cross_entropy_part: of the logits.
  Section section{};
  friend bool operator==(const Attrs&, const Attrs&) = default;
};

enum AttrFlag : uint32_t {
  kTanh = 1,    // gelu: the tanh approximation; otherwise erf
  kCausal = 2,  // attention: row t sees columns <= t
  kOutIn = 4,   // linear: weight stored [out, in]; otherwise [in, out]
  kPositions =
      8,  // embedding: look up the position along the last axis of the indices, not the index
  kBf16Cache = 16,   // cached_attention: keys and values are kept in bf16
  kUnitOffset = 32,  // rms_norm: the scale is 1 + the weight
  // The other fields, for Op::reads.
  kAxis = 256,
  kHeads = 512,
  kRange = 1024,
  kFactor = 2048,
  kDims = 4096,
  kOver = 8192,
  kCoordinates = 16384,
  kFrequencies = 32768,
  kCap = 65536,
  kMomentum = 131072,
};

// One operand at build time. `batched`: dimension 0 is a multiple of the number of samples, so no
// op may mix elements along it, except in training those that average() something: they see one
// micro-batch at a time.
struct Operand {
  Desc desc;
  bool batched = false;
};

// The result of infer() for given operand shapes.
struct Inferred {
  Desc out;
  std::vector<Desc> stash;  // kept by forward for I or W
  size_t scratch = 0;       // bytes that any single call may use while it runs (64-byte aligned)
  // Kept from one forward call to the next, in the order in which they are submitted; zero at the
  // start of a run. Independent of the number of samples. A node with state has no gradient.
  std::vector<Desc> state{};
};

// Which of forward's tensors a later call reads: bit i of `in` = input i, `out` = the output,
// `stash` = all stash, `weights` = the values of all weights.
struct Uses {
  uint32_t in = 0;
  bool out = false;
  bool stash = false;
  bool weights = false;  // W; I always reads them
};

// Multiply-adds count as two.
struct Cost {
  double forward_flops = 0, input_flops = 0, weight_flops = 0;
};

// The key of a call's random numbers.
struct CallKey {
  uint64_t seed = 0, step = 0;
  uint32_t micro_batch = 0, node = 0;
};

// The operands of one call. Views that the call neither reads nor writes have null data.
struct Call {
  const Attrs* attrs = nullptr;
  std::span<const View> in;
  std::span<const View> weights;
  View out;
  std::span<const View> stash;
  std::span<const View> state;  // Inferred::state: read and written
  View dout;                    // I, W
  std::span<const View>
      din;   // I: one per input; null data if no gradient is needed. Written, never added to.
  View acc;  // W: of weight `weight`; added to
  bool begins_sum = false;  // W: acc holds no sum yet, and is written; see Op::writes_sum
  RowSet* rows = nullptr;   // W: where to note rows of acc, see Op::adds_rows; null: nowhere
  int weight = 0;
  // Weight 0 as the call multiplies by it, packed (kernels/packed.h; for bf16 tensors
  // kernels/bf16_pack.h), and then read instead of the view; null: it is not packed, and no tensor
  // of a product is bf16.
  const void* packed = nullptr;
  kernels::PackedMatrix stored;  // weight 0 if it is stored only packed; null data: the view has it
  void* scratch = nullptr;
  CallKey key;
  bool training = true;    // dropout is the identity when false
  double denominator = 1;  // losses: the divisor of the step's loss
  Tiles* tiles = nullptr;  // never null when called
};

// Elements of weight 0 from `first` on, however it is stored.
void copy_weight(const Call& call, int64_t first, std::span<float> out);

// The most micro-batches of one call of weight_grads().
constexpr size_t kMostTogether = 8;

class Op {
 public:
  virtual ~Op() = default;
  virtual std::string_view name() const = 0;
  virtual uint32_t version() const { return 1; }
  // A user op: infer() may fail at any call, so it is called only where the failure can
  // be returned. Its output is proportional to the samples; each stash is this too, or constant.
  // Its scratch is constant.
  virtual bool of_caller() const { return false; }

  // They have no kernels: expand() replaces their nodes.
  virtual Collective collective() const { return Collective::none; }
  // The output depends only on the shapes of the inputs, so they have no gradient.
  virtual bool reads_shapes_only() const { return false; }

  // With bf16 values, too: the output, and the gradient of it, are stored as f32.
  virtual bool keeps_f32() const { return false; }

  // The attributes that the op reads, of AttrFlag; others are refused when a node is added.
  virtual uint32_t reads() const { return 0; }
  // Checks attributes, counts, dtypes and shapes; errors name the port ("input 1 expects
  // f32[?,256], got f32[4,128]").
  virtual Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                                 std::span<const Desc> weights) const = 0;
  // Whether the op can compute with the numbers of its i32 input `port`, for any number of samples.
  // Inputs that a node computes have no data. Forward fails for what this refuses.
  virtual Status check_input(const Attrs& attrs, int port, std::span<const View> in,
                             std::span<const Desc> weights) const {
    (void)attrs, (void)port, (void)in, (void)weights;
    return {};
  }
  // May input `port` receive a gradient?
  virtual bool differentiable(int port) const {
    (void)port;
    return true;
  }
  // Whether W of this weight can begin a sum. The result is that of an addition to zeros. Of other
  // weights, acc is cleared before the first call.
  virtual bool writes_sum(int weight) const {
    (void)weight;
    return false;
  }
  // Whether W adds to some rows of acc only. It notes these in Call::rows before it adds.
  virtual bool adds_rows() const { return false; }
  // More than 0: that weight is a moving average. W adds what it averages, and an update moves it
  // by this share towards the mean of what all calls of W in the step have added.
  virtual double average(const Attrs& attrs, int weight) const {
    (void)attrs, (void)weight;
    return 0;
  }
  // May the weights receive gradients?
  virtual bool trains_weights() const { return true; }
  virtual Uses uses_input(const Attrs& attrs) const {
    (void)attrs;
    return {};
  }  // what I reads
  virtual Uses uses_weight(const Attrs& attrs) const {
    (void)attrs;
    return {};
  }  // what W reads
  virtual Cost cost(const Attrs& attrs, std::span<const Desc> in, std::span<const Desc> weights,
                    const Desc& out) const = 0;

  // Forward multiplies by weight 0, a matrix, or by its transpose; input_grad by the other one; and
  // its gradient is a product as well. With bf16 values these calls take bf16 tensors and packed
  // weights; they write f32 or bf16.
  virtual bool multiplies_weight() const { return false; }
  // Whether forward multiplies by the transpose of weight 0.
  virtual bool multiplies_transposed(const Attrs& attrs) const {
    (void)attrs;
    return false;
  }
  // Whether forward, unless it is a loss, and input_grad compute each row of their results only
  // from the same row of their operands. The dimensions of input 0 except the last one number the
  // rows, and all tensors of the call begin with them. A call can then be made for some rows only,
  // with tensors of shape [rows, ..]. With bf16 values, the worker makes it so, and converts only
  // these rows at a time.
  virtual bool by_rows(const Attrs& attrs, std::span<const Desc> in,
                       std::span<const Desc> weights) const {
    (void)attrs, (void)in, (void)weights;
    return false;
  }
  // Whether forward of a loss, and weight_grad of other weights than those of products, also take
  // inputs and dout that are bf16, all of them. Other calls get float32 copies.
  virtual bool sums_bf16() const { return false; }
  // Weight 0 is only copied into the output, so that an output in bf16 is the same if the weight is
  // bf16. Forward reads it by copy_weight() only: it may be bf16, or packed.
  virtual bool copies_weight() const { return false; }
  // Bytes that weight_grads needs for bf16 tensors of so many micro-batches.
  virtual int64_t bf16_scratch(const Desc& in, const Desc& weight, int32_t micro_batches) const {
    (void)in, (void)weight, (void)micro_batches;
    return 0;
  }

  virtual Status forward(const Call& call) const = 0;
  virtual Status input_grad(const Call& call) const = 0;
  virtual Status weight_grad(const Call& call) const {
    (void)call;
    return {};
  }
  // The same for several micro-batches, which are added to one acc in this order. The calls have
  // the same weights and scratch memory.
  virtual Status weight_grads(std::span<const Call> calls) const {
    for (const Call& call : calls) WEFT_TRY(weight_grad(call));
    return {};
  }

  // A loss: its output is one f64, the sum over the micro-batch; I scales by 1/denominator and
  // reads no dout.
  virtual bool is_loss() const { return false; }
  // Losses: the input with the targets, and what a batch of them adds to the divisor.
  virtual int target_port() const { return 1; }
  virtual double count(const View& targets) const {
    return static_cast<double>(targets.desc.elements());
  }
};

// Fails if an attribute is set that the op does not read. The error names it, and the attributes
// that the op reads.
Status check_reads(const Op& op, const Attrs& attrs);

// The built-in op or collective of that name, or null. Owned by the library, immutable, usable from
// any thread.
const Op* find_op(std::string_view name);
// Ops of sharded and expanded models, which cannot be found by name.
const Op& zeros_op();
const Op& cross_entropy_part_op();
const Op& cross_entropy_of_parts_op();
// All built-in ops in the order of ops.def.
std::span<const Op* const> all_ops();
// In the order of collectives.def.
std::span<const Op* const> all_collectives();

}  // namespace weft
