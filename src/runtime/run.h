// A run: a plan at work behind a queue of steps and a queue of events. One interface, a driver behind it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/controller.h"
#include "runtime/batch.h"
#include "tensor/shape.h"

namespace weft {

struct StepRequest {
  Mode mode = Mode::train;
  bool update = true;
  uint64_t tag = 0;
  Batch batch;
  std::shared_ptr<void> keep;   // whatever keeps the batch's memory valid; dropped after the final event
};

struct RunEvent {
  enum class Kind : uint8_t { micro_batch = 1, done = 2, error = 3 };
  Kind kind = Kind::done;
  uint64_t tag = 0;
  uint64_t step = 0;
  int32_t micro_batch = 0;
  double loss = 0;                    // mean over what counts: of the micro-batch, or of the step
  double grad_norm = 0;
  Status status;
  const std::vector<View>* outputs = nullptr;   // micro-batch of an infer step; valid until the next poll
};

// What a name means to read and write.
enum class Part : uint8_t { value, grad, state0, state1 };

class Run {
 public:
  static constexpr size_t kQueue = 16;   // steps that may wait

  virtual ~Run() = default;
  virtual const Plan& plan() const = 0;

  // On success exactly one final event will come.
  virtual Status submit(StepRequest request) = 0;
  // The next event, if there is one within the time (nanoseconds; negative: no limit).
  virtual bool poll(RunEvent& event, int64_t timeout_ns) = 0;
  virtual bool idle() const = 0;         // no step waits or runs

  // Between steps alone; sizes are checked by the caller. A parameter, whoever holds it.
  virtual Status read(ParamId param, Part part, std::span<float> out) = 0;
  virtual Status write(ParamId param, Part part, std::span<const float> in) = 0;
  // The gradient of a model input, of the samples of the last training step; `out` has them all.
  virtual Status read_input_grad(NodeId input, std::span<float> out) = 0;
};

// XXH3-128 over all parameters by name; `part` value: weights, state: all optimizer tensors.
Result<Digest> run_digest(Run& run);

// All ranks in this process on the caller's thread: steps run inside poll().
Result<std::unique_ptr<Run>> start_inline(std::shared_ptr<const Plan> plan);

}  // namespace weft
