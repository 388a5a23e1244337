// The part of one rank in a step: its engine, the controller on rank 0, and the routes of its
// edges. Only this class maps effects to ranks, and messages to the engine or the controller. Links
// carry the messages: sockets (node.h), memory (runtime/local.h) or the simulator (sim/sim.h).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "engine/controller.h"
#include "engine/engine.h"

namespace weft {

// An edge that begins or ends at this rank, in one mode.
struct Route {
  struct Peer {
    int32_t rank;
    int32_t link;  // its number for the links; -1: this rank
  };
  int32_t edge;
  EdgeKind kind;
  bool incoming, outgoing;
  int32_t out_slots;             // tensors that may be posted and not released
  std::array<int64_t, 2> bytes;  // of a full and of the short micro-batch
  Peer other;
  // Of steps with even and with odd sequences, for links that check it, the next tensor that may
  // arrive: the micro-batch, the end of the granted ones, and the sequence of their step.
  struct Expected {
    int32_t next = 0, room = 0;
    uint64_t sequence = UINT64_MAX;
  };
  std::array<Expected, 2> expected = {};
};

// The transport of the messages of one rank. None of these functions calls the router before it
// returns.
class RankLinks {
 public:
  virtual ~RankLinks() = default;
  // See Effects; answer with ran(). Of the step of the engine.
  virtual void run(int32_t job, bool deliver) = 0;
  // Sends the micro-batch of this edge to the peer of the route, where arrived() is called. Answer
  // with released().
  virtual void post(const Route& route, const StepDescriptor& step, int32_t micro_batch,
                    bool delivered) = 0;
  // The peer's granted().
  virtual void grant(Route& route, const StepDescriptor& step, int32_t micro_batch) = 0;
  virtual void control(int32_t rank, const Control& message) = 0;  // that rank's received()
  virtual void micro_batch(int32_t micro_batch) = 0;               // rank 0: see ControllerEffects
  virtual void step_done(const StepResult& result) = 0;            // rank 0
};

class EffectRouter final : private ControllerEffects {
 public:
  // `link_to`: the number of a peer for the links.
  EffectRouter(std::shared_ptr<const Plan> plan, int32_t rank, RankLinks& links,
               const std::function<int32_t(int32_t peer)>& link_to);

  // Rank 0: the next step of the controller.
  Status begin(const StepDescriptor& step);
  Status feed(int32_t micro_batches) { return controller_->feed(micro_batches, *this); }
  void open_sinks() { controller_->open_sinks(*this); }
  Status ran(int32_t job, std::span<const double> squares, const JobTime& time = {});
  // `loss`: see Controller::delivered().
  Status arrived(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss);
  Status granted(uint64_t sequence, int32_t edge, int32_t micro_batch);
  Status released(int32_t edge, int32_t micro_batch);  // not of inputs, which are not moved
  Status received(int32_t from, const Control& message);
  void abort() { engine_.abort(); }

  // The last step that the engine began.
  const StepDescriptor& step() const { return engine_.step(); }
  // The step of a message of the route: of Engine::find() or, for inputs and deliveries, of
  // Controller::find(). Null: there is no such step.
  const StepDescriptor* find_step(EdgeKind kind, uint64_t sequence) const;
  bool idle() const { return engine_.idle() && (!controller_ || controller_->idle()); }
  // Appends a text of what the controller and the engine wait for.
  void describe(std::string& out) const;
  const Engine& engine() const { return engine_; }
  const Controller* controller() const { return controller_.get(); }  // rank 0
  std::span<const Route> routes(Mode mode) const { return routes_[static_cast<size_t>(mode)]; }
  Route* find(Mode mode, int32_t edge);  // null: not an edge of this rank
  // Tensors that may be posted and not released, to a peer; -1: to all.
  size_t most_posts(int32_t peer = -1) const;
  // Maximum number of jobs, and of copies to ranks of this process, in progress.
  size_t most_tasks(int32_t peer = -1) const { return Engine::kAhead + most_posts(peer); }

 private:
  void run(int32_t job, bool deliver) override { links_.run(job, deliver); }
  void post(const StepDescriptor& step, int32_t edge, int32_t micro_batch,
            bool delivered) override {
    links_.post(*find(step.mode, edge), step, micro_batch, delivered);
  }
  void grant(const StepDescriptor& step, int32_t edge, int32_t micro_batch) override {
    links_.grant(*find(step.mode, edge), step, micro_batch);
  }
  void control(int32_t rank, const Control& message) override { links_.control(rank, message); }
  void micro_batch(int32_t micro_batch) override { links_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { links_.step_done(result); }
  bool is(EdgeKind kind, uint64_t sequence, int32_t edge);

  RankLinks& links_;
  std::array<std::vector<Route>, kModes> routes_;  // ascending by edge
  Engine engine_;
  std::unique_ptr<Controller> controller_;  // rank 0
};

}  // namespace weft
