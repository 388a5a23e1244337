// A rank and its peers: its engine, the controller on rank 0, and one link to each rank with which
// it exchanges messages. It is a pure state machine that takes events and times and returns
// effects. The driver owns the worker, the memory, the transport and the clock.
//
// The driver of a process that hosts one rank:
//    connects the peers (the higher rank of a pair dials), and calls connected / received / sent /
//    disconnected; runs jobs on the worker in the given order, and calls ran(); provides the memory
//    of tensors; calls tick() at next_tick().
//
// Failure: the first origin counts. It is sent to every peer and reported once; from then on the
// node only closes connections.
//
// If the connection of two ranks breaks, each would report the other as lost. Therefore a rank that
// loses another one first asks rank 0, which has a link to both. If rank 0 receives a frame of the
// suspect, only the connection was lost. If rank 0 also loses the suspect, that rank was lost.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "link/link.h"
#include "node/effect_router.h"

namespace weft {

// A tensor in the memory of this rank.
struct MessageAt {
  Mode mode = Mode::train;
  int32_t edge = 0, micro_batch = 0;
  int32_t variant = 0;    // 1: the short last micro-batch
  uint64_t sequence = 0;  // of the step
};

// None of these functions calls the node before it returns.
class RankNodeEffects {
 public:
  virtual ~RankNodeEffects() = default;

  // --- the worker and its memory
  // Jobs run in the given order; answer each with RankNode::ran(). A job copies the feeds that it
  // waits for from the inputs if they are on this rank and, with `deliver`, the tensors that it
  // posts to this rank.
  virtual void run(const StepDescriptor& step, double scale, int32_t job, bool deliver) = 0;
  // Copy a tensor from its outgoing slot to its landing slot, both on this rank; answer with
  // copied().
  virtual void copy(const MessageAt& at) = 0;
  // The memory of a tensor for another rank; for a feed edge (rank 0 only) the samples. Valid and
  // unchanged until the engine releases the slot; for a feed, until the end of its step.
  virtual Result<std::span<const std::byte>> outgoing(const MessageAt& at) = 0;
  // The memory of its landing slot. A tensor may arrive before its step has begun here, if all
  // steps before it are complete, or if the step overlaps the one that runs.
  virtual Result<std::span<std::byte>> landing(const MessageAt& at) = 0;
  // All its bytes have arrived. If the result is not ok, the run fails.
  virtual Status landed(const MessageAt& at) = 0;
  // Rank 0: the sum of losses in a delivery of the loss; 0 for other deliveries.
  virtual double loss(const MessageAt& at) = 0;

  // --- the transport: see LinkEffects::send
  virtual void send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
                    std::span<const std::byte> payload, uint64_t token) = 0;
  // Nothing more will be sent to this peer: close the connection when all frames have been sent, or
  // 300 ms later. Called once per peer for any reason, before or after failed(), but never for a
  // peer that was not connected.
  virtual void hang_up(int32_t peer) = 0;
  virtual std::string trouble(int32_t) { return {}; }  // see LinkEffects

  // --- reports
  virtual void joined() = 0;  // rank 0: every rank has all its links; other ranks: this rank has
  virtual void message(int32_t peer, uint32_t type,
                       std::span<const std::byte> bytes) = 0;  // types >= kFirstFreeType
  virtual void micro_batch(int32_t micro_batch) = 0;           // rank 0: see ControllerEffects
  virtual void step_done(const StepResult& result) = 0;        // rank 0
  virtual void failed(const Origin& origin) = 0;               // once
  virtual void closed() = 0;  // once: the run has ended normally on this rank and its peers
};

class RankNode final : private RankLinks {
 public:
  static constexpr uint32_t kFirstFreeType =
      16;  // of link messages; lower types belong to the node

  // `effects` outlives the node.
  RankNode(std::shared_ptr<const Plan> plan, int32_t rank, const Identity& identity,
           RankNodeEffects& effects, LinkTimes times = {});
  ~RankNode() override;

  // Ranks to which this rank needs a connection, ascending: every rank to rank 0, and both ends of
  // every edge of any mode.
  static std::vector<int32_t> peers_of(const Plan& plan, int32_t rank);
  const std::vector<int32_t>& peers() const { return peers_; }

  // From this call, peers have LinkTimes::hello to join. A node without peers has joined at once.
  void start(LinkTime now);

  // --- the transport. Events of a peer are ignored after its connection has been closed.
  void connected(int32_t peer, LinkTime now);
  void disconnected(int32_t peer, const std::string& why, LinkTime now);
  void received(int32_t peer, Lane lane, std::span<const std::byte> frame, LinkTime now);
  void sent(int32_t peer, uint64_t token, LinkTime now);
  void tick(LinkTime now);
  LinkTime next_tick() const;

  // --- the worker. `squares`: see Engine::ran(); a status that is not ok fails the run with this
  // rank as origin.
  void ran(int32_t job, std::span<const double> squares, const Status& status, LinkTime now,
           const JobTime& time = {});
  void copied(int32_t edge, int32_t micro_batch, LinkTime now);
  size_t most_tasks() const { return router_.most_tasks(rank_); }  // jobs and copies in progress

  // --- the owner
  // Rank 0, joined: the next step; see Controller::begin(). outgoing() of feed edges is answered
  // from its inputs.
  Status begin(const StepDescriptor& step, LinkTime now);
  // Rank 0: see Controller::feed().
  Status feed(int32_t micro_batches, LinkTime now);
  void open_sinks(LinkTime now);  // rank 0: see Controller::open_sinks()
  // When joined; type >= kFirstFreeType. Copied.
  void send_message(int32_t peer, uint32_t type, std::span<const std::byte> bytes, LinkTime now);
  // Failure of this rank; `during`: whether its current activity failed.
  void fail(Code code, const std::string& detail, LinkTime now, const Activity& during = {});
  void fail(const Origin& origin, LinkTime now);  // of another rank that has no link yet
  // Rank 0, idle: ends the run on every rank.
  void bye(LinkTime now);

  int32_t rank() const { return rank_; }
  // Not failed, and no step runs here; on rank 0: on any rank.
  bool idle() const;
  // Whether time without progress is a fault: a job runs here; or this is rank 0, no rank runs a
  // job, and the step waits for nothing from the owner. A rank may wait as long as the rank that
  // computes for it, which is the one to report if that takes too long.
  bool must_progress() const;
  bool awaits_owner() const;  // rank 0: see Controller::awaits_owner()
  bool has_failed() const { return failed_; }
  bool is_dead() const;  // every link has ended: nothing more will be sent
  const Origin& origin() const { return origin_; }
  uint64_t next_sequence() const { return next_sequence_; }  // of the next step that begins
  const Engine& engine() const { return router_.engine(); }
  const StepDescriptor& step() const { return router_.step(); }  // the last one that began here
  const StepDescriptor* find_step(EdgeKind kind, uint64_t sequence) const {
    return router_.find_step(kind, sequence);
  }
  // What this rank does and, on rank 0, what the step waits for and the last status of every other
  // rank.
  std::string describe(LinkTime now) const;

 private:
  struct Peer;  // a link and its effects
  struct Event;

  bool controls() const { return rank_ == 0; }
  Peer* find(int32_t rank);
  void push(const Event& event);
  void note(const Status& status);
  void drain(LinkTime now);
  Status handle(const Event& event);
  Status joined_here();
  Status received_joined(int32_t from);
  Status received_control(int32_t from, Control message);
  Status received_message(int32_t from, uint32_t type, std::span<const std::byte> bytes);
  Status arrived(const Event& event);
  Status take(const Event& event);
  Status granted(const Event& event);
  Status released(const Event& event);
  Status left();
  void copied_here(const MessageAt& at);
  Origin of_this(Code code, const std::string& detail, const Activity& during = {}) const;
  Origin not_joined() const;
  void complete(Origin& origin);
  void fail_with(const Origin& origin);
  // --- arbitration.cc: which rank is lost if one rank reports the loss of another
  bool ask_first(const Peer& peer) const;
  void suspect(Peer& peer);
  Status received_suspicion(int32_t from, std::span<const std::byte> bytes);
  void refute_suspicion(int32_t alive);
  void confirm_suspicion();
  void hang_up_dead();
  static MessageAt at(const StepDescriptor& step, int32_t edge, int32_t micro_batch);
  const Edge& edge_at(const MessageAt& at) const;
  Result<Route*> route_of(const MessageAt& at);
  Route::Expected& expected(Mode mode, Route& route, uint64_t sequence, bool overlaps) const;
  Result<std::span<std::byte>> landing(Peer& from, const Tag& tag, uint64_t bytes);

  // RankLinks
  void run(int32_t job, bool deliver) override;
  void post(const Route& route, const StepDescriptor& step, int32_t micro_batch,
            bool delivered) override;
  void grant(Route& route, const StepDescriptor& step, int32_t micro_batch) override;
  void control(int32_t to, const Control& message) override;
  void micro_batch(int32_t micro_batch) override { effects_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { effects_.step_done(result); }

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;
  RankNodeEffects& effects_;
  const Process process_;     // this one
  const LinkTime join_time_;  // a rank says hello within half of it, and then has the others
  const std::vector<int32_t> peers_;
  std::vector<std::unique_ptr<Peer>> links_;  // in the order of peers_
  EffectRouter router_;
  Fifo<Event> queue_;
  std::vector<Event> early_;  // arrived before their step began here
  std::vector<std::byte> bytes_;
  std::vector<double> numbers_;       // of the last control message
  std::vector<double> denominators_;  // of the current step
  Status fault_;                      // of an effect, until drain() reads it
  LinkTime now_ = 0;
  // By sequence % kStepsAtOnce: time of the start of a step; on other ranks, of its begin message.
  std::array<LinkTime, kStepsAtOnce> begun_at_ = {};
  uint64_t next_sequence_ = 0;  // of the next one
  int32_t open_links_ = 0, closed_links_ = 0;
  int32_t joined_ranks_ = 0;   // rank 0: number of ranks that have joined
  LinkTime join_by_ = kNever;  // rank 0: all of them
  struct Suspicion {
    int32_t by = -1, of = -1;  // ranks; -1: none
    Origin origin;             // the failure to report if no frame contradicts it
    LinkTime until = kNever;
  };
  Suspicion suspicion_;  // rank 0: received; other ranks: sent
  bool joined_ = false, failed_ = false, leaving_ = false, closed_ = false;
  Origin origin_;
};

}  // namespace weft
