// The inline driver: all ranks in this process, on the caller's thread, one event at a time in a fixed order. For tiny embeddings,
// debuggers and deterministic tests.
#pragma once

#include <memory>
#include <vector>

#include "engine/controller.h"
#include "engine/engine.h"
#include "runtime/batch.h"
#include "runtime/worker.h"

namespace weft {


class InlineRun {
 public:
  static Result<std::unique_ptr<InlineRun>> make(std::shared_ptr<const Plan> plan, Tiles& tiles);
  ~InlineRun();

  // Runs one step to its end. After a failure every call fails with the same status. `deliver`, if given, is called for each
  // micro-batch whose results have all arrived.
  Result<StepResult> step(const StepDescriptor& step, const Batch& batch, void (*deliver)(void* context, int32_t micro_batch) = nullptr,
                          void* context = nullptr);

  // A delivery of the last step at rank 0.
  View delivered(int32_t edge, int32_t micro_batch);
  Worker& worker(int32_t rank) { return *workers_[static_cast<size_t>(rank)]; }
  const Plan& plan() const { return *plan_; }

 private:
  struct Event {
    enum class Kind : uint8_t { run, arrived, granted, released, control } kind;
    int32_t rank;   // where it happens; kController: the controller
    int32_t edge_or_job = 0, micro_batch = 0;
    int32_t from = 0;
    Control control;
  };
  class RankEffects;
  class MainEffects;

  InlineRun(std::shared_ptr<const Plan> plan);
  Status handle(const Event& event);
  void push(const Event& event);
  void land(int32_t edge, int32_t micro_batch, std::span<const std::byte> bytes);
  int32_t variant(int32_t micro_batch) const { return step_.short_last && micro_batch == step_.micro_batches - 1 ? 1 : 0; }

  std::shared_ptr<const Plan> plan_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<RankEffects>> effects_;
  std::unique_ptr<MainEffects> main_;
  Controller controller_;
  std::vector<Event> queue_;
  size_t head_ = 0;
  Status failure_;

  // Of the step that runs.
  StepDescriptor step_;
  const Batch* batch_ = nullptr;
  void (*on_micro_batch_)(void*, int32_t) = nullptr;
  void* context_ = nullptr;
  StepResult result_;
  bool over_ = true;
};

}  // namespace weft
