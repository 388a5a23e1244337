// One rank's part in a step: its engine, on rank 0 the controller too, and the routes of its edges.
// The only place that knows which effect concerns which rank, and which message is for the engine
// or for the controller. Links carry the messages: sockets (node.h), memory (runtime/local.h) or
// the simulator (sim/sim.h).
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
    int32_t link;  // what the links call it; -1: this rank
  };
  int32_t edge;
  EdgeKind kind;
  bool incoming, outgoing;
  int32_t out_slots;             // tensors that may be posted and not released
  std::array<int64_t, 2> bytes;  // of a full and of the short micro-batch
  Peer other;
  // What may land next, for links that check it: the micro-batch, the end of those that were
  // granted, and the sequence of the step that both are of.
  int32_t next = 0, room = 0;
  uint64_t sequence = UINT64_MAX;

  // The other end of a micro-batch's message: that of all micro-batches.
  const Peer& peer(int32_t) const { return other; }
};

// What carries the messages of one rank. None of these calls back into the router before it
// returns.
class RankLinks {
 public:
  virtual ~RankLinks() = default;
  // See Effects; answer with ran().
  virtual void run(int32_t job, bool deliver) = 0;
  // The micro-batch of that edge goes to the route's peer, where arrived() is called. Answer with
  // released().
  virtual void post(const Route& route, int32_t micro_batch, bool delivered) = 0;
  virtual void grant(Route& route, int32_t micro_batch) = 0;       // the peer's granted()
  virtual void control(int32_t rank, const Control& message) = 0;  // that rank's heard()
  virtual void micro_batch(int32_t micro_batch) = 0;               // rank 0: see ControllerEffects
  virtual void step_done(const StepResult& result) = 0;            // rank 0
};

class EffectRouter final : private ControllerEffects {
 public:
  // `link_to`: what the links call a peer.
  EffectRouter(std::shared_ptr<const Plan> plan, int32_t rank, RankLinks& links,
               const std::function<int32_t(int32_t peer)>& link_to);

  // Rank 0: the controller's next step.
  Status begin(const StepDescriptor& step);
  Status ran(int32_t job, std::span<const double> squares, const JobTime& time = {});
  // `loss`: see Controller::delivered().
  Status arrived(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss);
  Status granted(uint64_t sequence, int32_t edge, int32_t micro_batch);
  Status released(int32_t edge, int32_t micro_batch);
  Status heard(int32_t from, const Control& message);
  void abort() { engine_.abort(); }

  // The step that began here last.
  const StepDescriptor& step() const { return step_; }
  bool idle() const { return engine_.idle() && (!controller_ || controller_->idle()); }
  // Appends, for a person, what the controller and the engine wait for.
  void describe(std::string& out) const;
  const Engine& engine() const { return engine_; }
  const Controller* controller() const { return controller_.get(); }  // rank 0
  std::span<const Route> routes(Mode mode) const { return routes_[static_cast<size_t>(mode)]; }
  Route* find(Mode mode, int32_t edge);  // null: not an edge of this rank
  // Tensors that may be posted and not released, to a peer; -1: to all.
  size_t most_posts(int32_t peer = -1) const;
  // Jobs and, to ranks of this process, copies that may be under way.
  size_t most_tasks(int32_t peer = -1) const { return Engine::kAhead + most_posts(peer); }

 private:
  void run(int32_t job, bool deliver) override { links_.run(job, deliver); }
  void post(int32_t edge, int32_t micro_batch, bool delivered) override {
    links_.post(*find(step_.mode, edge), micro_batch, delivered);
  }
  void grant(int32_t edge, int32_t micro_batch) override {
    links_.grant(*find(step_.mode, edge), micro_batch);
  }
  void control(int32_t rank, const Control& message) override { links_.control(rank, message); }
  void micro_batch(int32_t micro_batch) override { links_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { links_.step_done(result); }
  bool is(EdgeKind kind, int32_t edge);

  RankLinks& links_;
  std::array<std::vector<Route>, kModes> routes_;  // ascending by edge
  StepDescriptor step_;
  Engine engine_;
  std::unique_ptr<Controller> controller_;  // rank 0
};

}  // namespace weft
