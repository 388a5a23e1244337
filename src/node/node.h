// A rank among its peers: its engine, on rank 0 the controller too, and one link to each rank that
// it speaks to. Still a pure state machine: events and time go in, effects come out; the driver
// owns worker, memory, transport and clock.
//
// The driver of a process that hosts one rank:
//    connects the peers (the higher rank of a pair dials), and tells connected / received / sent /
//    disconnected; runs jobs on the worker in the order given, and tells ran(); says where tensors
//    lie when it is asked; calls tick() when next_tick() has come.
//
// Failure: the first origin wins. It is told to every peer, reported once, and from then on the
// node only hangs up.
//
// Two ranks whose connection breaks would each call the other lost. So a rank that loses another
// one asks rank 0 first, which has a link to both: if it hears the accused, their connection was
// lost and neither of them; if it loses the accused too, that is the story.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "link/link.h"
#include "node/effect_router.h"

namespace weft {

// One tensor in this rank's memory.
struct MessageAt {
  Mode mode = Mode::train;
  int32_t edge = 0, micro_batch = 0;
  int32_t variant = 0;  // 1: the short last micro-batch
};

// None of these calls back into the node before it returns.
class RankNodeEffects {
 public:
  virtual ~RankNodeEffects() = default;

  // --- the worker and its memory
  // Jobs run in the order given; answer each with RankNode::ran(). A job copies the feeds that it
  // waits for from the inputs if they stay on this rank, and with `deliver` also what it posts to
  // this rank.
  virtual void run(const StepDescriptor& step, double scale, int32_t job, bool deliver) = 0;
  // Copy a tensor from where it leaves to where it lands, both on this rank; answer with copied().
  virtual void copy(const MessageAt& at) = 0;
  // Where a tensor leaves from to another rank; for a feed edge (only rank 0): the samples. Valid
  // and unchanged until the engine's next release of the place; a feed's until its step is done.
  virtual Result<std::span<const std::byte>> outgoing(const MessageAt& at) = 0;
  // Where it lands. A tensor may land before its step has begun here, when all steps before are
  // done.
  virtual Result<std::span<std::byte>> landing(const MessageAt& at) = 0;
  // All its bytes are there. Not ok: the run fails.
  virtual Status landed(const MessageAt& at) = 0;
  // Rank 0: the sum of losses that a delivery of the model's loss brings; 0 for others.
  virtual double loss(const MessageAt& at) = 0;

  // --- the transport: see LinkEffects::send
  virtual void send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
                    std::span<const std::byte> payload, uint64_t token) = 0;
  // Nothing more will be sent to that peer: close the connection once what was sent has left, or
  // 300 ms later. Comes once per peer, whatever ended the link, before or after failed(); never for
  // a peer that was not connected.
  virtual void hang_up(int32_t peer) = 0;
  virtual std::string trouble(int32_t) { return {}; }  // see LinkEffects

  // --- reports
  virtual void joined() = 0;  // rank 0: every rank has all its links; others: this one has
  virtual void message(int32_t peer, uint32_t type,
                       std::span<const std::byte> bytes) = 0;  // types >= kFirstFreeType
  virtual void micro_batch(int32_t micro_batch) = 0;           // rank 0: see ControllerEffects
  virtual void step_done(const StepResult& result) = 0;        // rank 0
  virtual void failed(const Origin& origin) = 0;               // once
  virtual void closed() = 0;  // once: the run has ended orderly everywhere this rank looks
};

class RankNode final : private RankLinks {
 public:
  static constexpr uint32_t kFirstFreeType =
      16;  // of link messages; those below are the node's own

  // `effects` outlives the node.
  RankNode(std::shared_ptr<const Plan> plan, int32_t rank, const Identity& identity,
           RankNodeEffects& effects, LinkTimes times = {});
  ~RankNode() override;

  // Ranks that this one needs a connection with, ascending: every rank with rank 0, and both ends
  // of every edge of any mode.
  static std::vector<int32_t> peers_of(const Plan& plan, int32_t rank);
  const std::vector<int32_t>& peers() const { return peers_; }

  // From here peers have LinkTimes::hello to join. A node without peers has joined at once.
  void start(LinkTime now);

  // --- the transport. Events of a peer that has been hung up on are ignored.
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
  size_t most_tasks() const { return router_.most_tasks(rank_); }  // jobs and copies under way

  // --- the owner
  // Rank 0, joined and idle: the next step. outgoing() of feed edges is answered from its inputs.
  Status begin(const StepDescriptor& step, LinkTime now);
  // When joined; type >= kFirstFreeType. Copied.
  void send_message(int32_t peer, uint32_t type, std::span<const std::byte> bytes, LinkTime now);
  // Of this rank; `during`: if the failure is one of what it does.
  void fail(Code code, const std::string& detail, LinkTime now, const Activity& during = {});
  void fail(const Origin& origin, LinkTime now);  // of another that has no link yet
  // Rank 0, idle: ends the run on every rank.
  void bye(LinkTime now);

  int32_t rank() const { return rank_; }
  // Not failed and no step runs here; on rank 0: nowhere.
  bool idle() const;
  bool has_failed() const { return failed_; }
  bool is_dead() const;  // every link has ended: nothing more will be said
  const Origin& origin() const { return origin_; }
  uint64_t next_sequence() const { return next_sequence_; }
  const Engine& engine() const { return router_.engine(); }
  const StepDescriptor& step() const { return router_.step(); }  // the last that began here
  // What this rank does and, on rank 0, what every other rank was last seen doing.
  std::string describe(LinkTime now) const;

 private:
  struct Peer;  // a link and its effects
  struct Event;

  Peer* find(int32_t rank);
  void push(const Event& event);
  void note(const Status& status);
  void drain(LinkTime now);
  Status handle(const Event& event);
  Status joined_here();
  Status heard_joined(int32_t from);
  Status heard_control(int32_t from, Control message);
  Status heard_message(int32_t from, uint32_t type, std::span<const std::byte> bytes);
  Status arrived(const Event& event);
  Status take(const Event& event);
  Status granted(const Event& event);
  Status left();
  void copied_here(int32_t edge, int32_t micro_batch);
  Origin of_this(Code code, const std::string& detail, const Activity& during = {}) const;
  void complete(Origin& origin);
  void fail_with(const Origin& origin);
  // --- arbitration.cc: who is lost when one rank says so of another
  bool ask_first(const Peer& peer) const;
  void accuse(Peer& peer);
  Status heard_accusation(int32_t from, std::span<const std::byte> bytes);
  void acquit(int32_t heard);
  void judge_in_time();
  void hang_up_dead();
  MessageAt at(int32_t edge, int32_t micro_batch) const;
  const Edge& edge_at(const MessageAt& at) const;
  Result<Route*> route_of(const MessageAt& at);
  void enter(Mode mode, Route& route, uint64_t sequence) const;
  Result<std::span<std::byte>> landing(Peer& from, const Tag& tag, uint64_t bytes);

  // RankLinks
  void run(int32_t job, bool deliver) override;
  void post(const Route& route, int32_t micro_batch, bool delivered) override;
  void grant(Route& route, int32_t micro_batch) override;
  void control(int32_t to, const Control& message) override;
  void micro_batch(int32_t micro_batch) override { effects_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { effects_.step_done(result); }

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;
  const bool controller_;  // it is here: rank 0
  RankNodeEffects& effects_;
  const Process process_;  // this one
  const std::vector<int32_t> peers_;
  std::vector<std::unique_ptr<Peer>> links_;  // in the order of peers_
  EffectRouter router_;
  std::vector<Event> queue_, early_;  // early_: landed before their step began here
  size_t head_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<double> numbers_;       // of the control message that came last
  std::vector<double> denominators_;  // of the step that runs
  Status fault_;                      // of an effect, until drain() sees it
  LinkTime now_ = 0;
  LinkTime begun_at_ = 0;       // rank 0: the step was begun; others: was heard of
  uint64_t next_sequence_ = 0;  // of the next one
  int32_t open_links_ = 0, closed_links_ = 0;
  int32_t joined_ranks_ = 0;  // rank 0: that have said so
  struct Accusation {
    int32_t by = -1, of = -1;  // ranks; -1: there is none
    Origin origin;             // what is to be said if nothing contradicts it
    LinkTime until = kNever;
  };
  Accusation accusation_;  // rank 0: heard; others: made
  bool joined_ = false, failed_ = false, leaving_ = false, closed_ = false;
  Origin origin_;
};

}  // namespace weft
