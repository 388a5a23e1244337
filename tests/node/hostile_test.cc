// A rank whose peers complete the handshake with the right identity and then violate the protocol,
// or are silent when frames are needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "base/bytes.h"
#include "graph/presets.h"
#include "node/adapters.h"
#include "node/control_codec.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

constexpr int32_t kRanks = 3, kMicroBatches = 8;

std::shared_ptr<const Plan> plan_of_three() {
  PlanConfig config;
  config.ranks = kRanks;
  config.micro_batches = kMicroBatches;
  config.micro_batch_size = 4;
  config.schedule = "1f1b";
  return make_plan(make_preset("mlp:layers=3,width=8", {}).take().model, config).take();
}

// Replicas that gather each other's parameters.
std::shared_ptr<const Plan> plan_of_replicas() {
  PlanConfig config;
  config.ranks = config.data = config.gradient_groups = kRanks;
  config.micro_batches = kMicroBatches;
  config.micro_batch_size = 4;
  config.shard = "parameters";
  return make_plan(make_preset("mlp:layers=3,width=8", {}).take().model, config).take();
}

// A frame in transit.
struct Frame {
  Lane lane;
  std::vector<std::byte> bytes;
  uint64_t token;
};
Frame join(Lane lane, std::span<const std::byte> header, std::span<const std::byte> payload,
           uint64_t token) {
  Frame out{lane, {header.begin(), header.end()}, token};
  out.bytes.insert(out.bytes.end(), payload.begin(), payload.end());
  return out;
}

// A peer: a link that sends what the test requests.
class Hand final : public LinkEffects {
 public:
  Hand(int32_t self, int32_t peer) : link(self, peer, Identity()) {}
  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    sent.push_back(join(lane, header, payload, token));
  }
  void open() override {}
  Result<std::span<std::byte>> landing(const Tag&, uint64_t bytes) override {
    landed.resize(bytes);
    return std::span(landed);
  }
  void arrived(const Tag&) override {}
  void released(const Tag&) override {}
  void granted(const Tag&) override {}
  void message(uint32_t type, std::span<const std::byte>) override { received.push_back(type); }
  void leaving() override {}
  void failed(const Origin& origin, bool) override { failure = origin_text(origin); }
  void closed() override {}

  Link link;
  std::deque<Frame> sent;
  std::vector<std::byte> landed;
  std::vector<uint32_t> received;  // types of messages
  std::string failure;             // why the run failed
  bool mute = false;               // sends nothing more, and does not close its connection
};

// The rank under test, and a simulated peer for every other rank.
class Scene final : private RankNodeEffects {
 public:
  explicit Scene(int32_t rank, bool joins = true,
                 std::shared_ptr<const Plan> plan = plan_of_three())
      : plan_(std::move(plan)),
        node_(plan_, rank, Identity(), static_cast<RankNodeEffects&>(*this)) {
    node_.start(0);
    for (const int32_t peer : node_.peers()) {
      hands_[peer] = std::make_unique<Hand>(peer, rank);
      hand(peer).link.start(0);
      if (!joins) continue;
      connect(peer);
      if (rank == 0) hand(peer).link.send_message(kJoinedMessage, {}, now_, hand(peer));
    }
    exchange();
  }

  Hand& hand(int32_t rank) { return *hands_.at(rank); }
  void connect(int32_t peer) {
    node_.connected(peer, now_);
    hand(peer).link.connected(now_, hand(peer));
    exchange();
  }
  void disconnect(int32_t peer) { node_.disconnected(peer, "connection closed", now_); }
  // From one rank to another in training, of that kind.
  int32_t edge(int32_t from, int32_t to, EdgeKind kind = EdgeKind::forward) const {
    const auto& edges = plan_->mode(Mode::train).edges;
    for (size_t e = 0; e < edges.size(); ++e)
      if (edges[e].from_rank == from && edges[e].to_rank == to && edges[e].kind == kind)
        return static_cast<int32_t>(e);
    ADD_FAILURE() << "the plan has no such edge";
    return -1;
  }
  const Edge& edge_at(int32_t edge) const {
    return plan_->mode(Mode::train).edges[static_cast<size_t>(edge)];
  }
  static Tag tag(int32_t edge, int32_t micro_batch, uint64_t step = 0) {
    return tag_of({.edge = edge, .micro_batch = micro_batch, .sequence = step});
  }

  void begin(int32_t from = 0) {
    Control control{.kind = ControlKind::begin,
                    .step = {.mode = Mode::train, .micro_batches = kMicroBatches},
                    .squares = {}};
    control_from(from, control);
  }
  void control_from(int32_t from, const Control& control) {
    std::vector<std::byte> bytes;
    encode_control(control, bytes);
    say(from, kControlMessage, bytes);
  }
  void say(int32_t from, uint32_t type, std::span<const std::byte> bytes = {}) {
    hand(from).link.send_message(type, bytes, now_, hand(from));
    exchange();
  }
  void post(int32_t from, const Tag& tag, size_t bytes) {
    memory_.emplace_back(bytes);
    hand(from).link.send_tensor(tag, memory_.back(), hand(from));
    exchange();
  }
  // A tensor of the right size.
  void post(int32_t from, int32_t edge, int32_t micro_batch) {
    post(from, tag(edge, micro_batch), edge_at(edge).desc[0].bytes());
  }
  void grant(int32_t from, const Tag& tag) {
    hand(from).link.send_grant(tag, hand(from));
    exchange();
  }
  void suspect(int32_t from, const Origin& of) { say(from, kLostMessage, encode_origin(of)); }
  void suspect(int32_t from, int32_t of) {
    suspect(from, {.rank = of, .cause = Cause::closed, .detail = "connection closed"});
  }
  void run_until(LinkTime end) {
    int turns = 0;  // of a rank that requests a tick again and again, and does nothing in it
    for (LinkTime next; (next = next_tick()) <= end && ++turns < 1000;) {
      now_ = std::max(now_, next);
      if (node_.next_tick() <= now_) node_.tick(now_);
      for (auto& [rank, hand] : hands_)
        if (!hand->mute && hand->link.next_tick() <= now_) hand->link.tick(now_, *hand);
      exchange();
    }
    now_ = end;
  }
  // Without the stages, which the hands do not know.
  std::string failure() const {
    Origin origin = node_.origin();
    origin.stages.clear();
    return node_.has_failed() ? origin_text(origin) : std::string();
  }
  LinkTime failed_at() const { return failed_at_; }
  LinkTime now() const { return now_; }

 private:
  LinkTime next_tick() const {
    LinkTime next = node_.next_tick();
    for (const auto& [rank, hand] : hands_)
      if (!hand->mute) next = std::min(next, hand->link.next_tick());
    return next;
  }
  // Until no frame is in transit.
  void exchange() {
    for (bool more = true; more;) {
      more = false;
      for (auto& [rank, hand] : hands_) {
        while (!hand->sent.empty() && !hand->mute) {
          const Frame frame = std::move(hand->sent.front());
          hand->sent.pop_front();
          node_.received(rank, frame.lane, frame.bytes, now_);
          if (frame.token != 0) hand->link.sent(frame.token, now_, *hand);
          more = true;
        }
        for (auto& frames = from_node_[rank]; !frames.empty(); more = true) {
          const Frame frame = std::move(frames.front());
          frames.pop_front();
          hand->link.received(frame.lane, frame.bytes, now_, *hand);
          if (frame.token != 0) node_.sent(rank, frame.token, now_);
        }
      }
    }
  }

  void run(const StepDescriptor&, double, int32_t, bool) override {}
  void copy(const MessageAt&) override {}
  Result<std::span<const std::byte>> outgoing(const MessageAt& at) override {
    return std::span<const std::byte>(place(at));
  }
  Result<std::span<std::byte>> landing(const MessageAt& at) override {
    return std::span(place(at));
  }
  std::vector<std::byte>& place(const MessageAt& at) {
    std::vector<std::byte>& place = places_[{at.edge, at.micro_batch}];
    place.resize(plan_->mode(at.mode)
                     .edges[static_cast<size_t>(at.edge)]
                     .desc[static_cast<size_t>(at.variant)]
                     .bytes());
    return place;
  }
  Status landed(const MessageAt&) override { return {}; }
  double loss(const MessageAt&) override { return 0; }
  void send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    from_node_[peer].push_back(join(lane, header, payload, token));
  }
  void hang_up(int32_t) override {}
  void joined() override {}
  void message(int32_t, uint32_t, std::span<const std::byte>) override {}
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  void failed(const Origin&) override { failed_at_ = now_; }
  void closed() override {}

  const std::shared_ptr<const Plan> plan_;
  RankNode node_;
  std::map<int32_t, std::unique_ptr<Hand>> hands_;
  std::map<int32_t, std::deque<Frame>> from_node_;
  std::deque<std::vector<std::byte>> memory_;
  std::map<std::pair<int32_t, int32_t>, std::vector<std::byte>> places_;
  LinkTime now_ = 0, failed_at_ = kNever;
};

std::string text(const char* before, int32_t edge, const std::string& after) {
  return before + std::to_string(edge) + after;
}

// --- tensors and grants

TEST(HostilePeer, APostBeforeItsGrantIsRefused) {
  Scene scene(1);
  scene.begin();
  const int32_t edge = scene.edge(0, 1), slots = scene.edge_at(edge).landing_slots;
  ASSERT_LT(slots, kMicroBatches);
  for (int32_t mb = 0; mb < slots; ++mb) scene.post(0, edge, mb);
  EXPECT_EQ(scene.failure(), "");
  scene.post(0, edge, slots);
  EXPECT_EQ(scene.failure(),
            text("rank 0: edge ", edge,
                 " brings micro-batch " + std::to_string(slots) + " without a grant"));
  EXPECT_EQ(scene.hand(0).failure, scene.failure());
  EXPECT_EQ(scene.hand(2).failure, scene.failure());
}

TEST(HostilePeer, AValueIsSentOnceForEachGrantAlsoOfOneBeforeTheStepBegins) {
  Scene scene(1, true, plan_of_replicas());
  const int32_t edge = scene.edge(1, 2, EdgeKind::gather),
                first = scene.edge_at(edge).micro_batches.first;
  scene.grant(2, scene.tag(edge, first));
  EXPECT_TRUE(scene.hand(2).landed.empty());
  scene.begin();
  EXPECT_EQ(scene.hand(2).landed.size(), scene.edge_at(edge).desc[0].bytes());
  EXPECT_EQ(scene.failure(), "");
  scene.grant(2, scene.tag(edge, first));
  EXPECT_EQ(scene.failure(), text("rank 2: edge ", edge,
                                  ", micro-batch " + std::to_string(first) + " was granted twice"));
}

TEST(HostilePeer, AGrantOfAnythingElseBeforeTheStepBeginsIsRefused) {
  Scene scene(1, true, plan_of_replicas());
  const int32_t edge = scene.edge(1, 0, EdgeKind::tie_grad);
  scene.grant(0, scene.tag(edge, 0));
  EXPECT_EQ(scene.failure(), text("rank 0: grant of edge ", edge,
                                  ", micro-batch 0 of a step that has not begun here"));
}

TEST(HostilePeer, APostBeforeItsGrantIsRefusedBeforeTheStepBegins) {
  Scene scene(1);
  const int32_t edge = scene.edge(0, 1), slots = scene.edge_at(edge).landing_slots;
  for (int32_t mb = 0; mb <= slots; ++mb) scene.post(0, edge, mb);
  EXPECT_EQ(scene.failure(),
            text("rank 0: edge ", edge,
                 " brings micro-batch " + std::to_string(slots) + " without a grant"));
}

TEST(HostilePeer, ATensorThatComesTwiceOrOutOfOrderIsRefused) {
  for (const int32_t second : {0, 2}) {
    Scene scene(1);
    scene.begin();
    const int32_t edge = scene.edge(0, 1);
    scene.post(0, edge, 0);
    scene.post(0, edge, second);
    EXPECT_EQ(scene.failure(),
              text("rank 0: edge ", edge,
                   " brings micro-batch " + std::to_string(second) + ", expected 1"));
  }
}

TEST(HostilePeer, ATensorThatDoesNotBelongThereIsRefused) {
  const auto refused = [](int32_t from, const auto& post) {
    Scene scene(1);
    scene.begin();
    post(scene);
    EXPECT_TRUE(scene.failure().starts_with("rank " + std::to_string(from) + ": "))
        << scene.failure();
    return scene.failure().substr(8);
  };
  Scene plan(1);
  const int32_t edge = plan.edge(0, 1);
  const size_t bytes = plan.edge_at(edge).desc[0].bytes();
  EXPECT_EQ(refused(2, [&](Scene& s) { s.post(2, edge, 0); }),
            text("edge ", edge, " goes from rank 0 to rank 1"));
  EXPECT_NE(refused(0, [&](Scene& s) { s.post(0, s.tag(999, 0), bytes); })
                .find("edge 999 is not one of the "),
            std::string::npos);
  EXPECT_EQ(refused(0, [&](Scene& s) { s.post(0, s.tag(edge, 99), bytes); }),
            text("edge ", edge, " has no micro-batch 99 (0 to 7)"));
  EXPECT_EQ(refused(0,
                    [&](Scene& s) {
                      s.post(0, {0, 7 << kModeShift | edge, 0}, bytes);
                    }),
            "tensor of mode 7, which is unknown");
  EXPECT_EQ(refused(0, [&](Scene& s) { s.post(0, s.tag(edge, 0, 5), bytes); }),
            "tensor of step 5, which neither runs nor is next");
  EXPECT_EQ(refused(0, [&](Scene& s) { s.post(0, s.tag(edge, 0), bytes - 4); }),
            text("edge ", edge,
                 ", micro-batch 0 has " + std::to_string(bytes - 4) + " bytes, expected " +
                     std::to_string(bytes)));
}

TEST(HostilePeer, AGrantThatComesTwiceOrCannotBeIsRefused) {
  const auto refused = [](const auto& grant) {
    Scene scene(1);
    scene.begin();
    grant(scene);
    EXPECT_TRUE(scene.failure().starts_with("rank 2: ")) << scene.failure();
    return scene.failure().substr(8);
  };
  Scene plan(1);
  const int32_t edge = plan.edge(1, 2), slots = plan.edge_at(edge).landing_slots,
                other = plan.edge(0, 1);
  const std::string twice = " was granted twice";
  EXPECT_EQ(refused([&](Scene& s) { s.grant(2, s.tag(edge, 0)); }),
            text("edge ", edge, ", micro-batch 0" + twice));  // another slot
  EXPECT_EQ(refused([&](Scene& s) {
              s.grant(2, s.tag(edge, slots));
              EXPECT_EQ(s.failure(), "");
              s.grant(2, s.tag(edge, slots));
            }),
            text("edge ", edge, ", micro-batch " + std::to_string(slots) + twice));
  EXPECT_EQ(refused([&](Scene& s) { s.grant(2, s.tag(other, 0)); }),
            text("grant of edge ", other, ", which goes from rank 0 to rank 1"));
  EXPECT_EQ(refused([&](Scene& s) { s.grant(2, s.tag(edge, 99)); }),
            text("edge ", edge, " has no micro-batch 99 (0 to 7)"));
  EXPECT_EQ(refused([&](Scene& s) { s.grant(2, s.tag(edge, slots, 3)); }),
            text("grant of edge ", edge,
                 ", micro-batch " + std::to_string(slots) + " of a step that has not begun here"));
}

// --- messages

TEST(HostilePeer, AMessageThatIsNotItsToSendIsRefused) {
  const auto refused = [](int32_t rank, int32_t from, const auto& act) {
    Scene scene(rank);
    act(scene);
    EXPECT_TRUE(scene.failure().starts_with("rank " + std::to_string(from) + ": "))
        << scene.failure();
    return scene.failure().substr(8);
  };
  EXPECT_EQ(refused(1, 2, [](Scene& s) { s.begin(2); }),
            "a message that only the controller sends");
  EXPECT_EQ(refused(1, 2,
                    [](Scene& s) {
                      s.control_from(2, {.kind = ControlKind::commit, .step = {}, .squares = {}});
                    }),
            "a message that only the controller sends");
  EXPECT_EQ(refused(1, 2,
                    [](Scene& s) {
                      s.control_from(2, {.kind = ControlKind::ready, .step = {}, .squares = {}});
                    }),
            "a message for the controller, which is on rank 0");
  EXPECT_EQ(refused(1, 2, [](Scene& s) { s.say(2, kJoinedMessage); }),
            "it sent joined to a rank other than 0");
  EXPECT_EQ(refused(1, 2, [](Scene& s) { s.suspect(2, 0); }),
            "it reports a lost rank to a rank other than 0");
  EXPECT_EQ(refused(0, 2, [](Scene& s) { s.say(2, kJoinedMessage); }), "it has joined twice");
  EXPECT_EQ(refused(0, 2, [](Scene& s) { s.say(2, 15); }),
            "message of type 15 and 0 bytes, which is unknown");
  for (const int32_t of : {2, 0, 7, -1})
    EXPECT_TRUE(refused(0, 2, [of](Scene& s) { s.suspect(2, of); })
                    .starts_with("it reports rank " + std::to_string(of) +
                                 " as lost, which rank 2 cannot know"));
  // A failure that is no loss, the loss of a connection, and bytes that are no failure.
  EXPECT_TRUE(refused(0, 2, [](Scene& s) {
                s.suspect(2, {.rank = 1, .cause = Cause::failed});
              }).starts_with("it reports rank 1 as lost"));
  EXPECT_TRUE(refused(0, 2, [](Scene& s) {
                s.suspect(2, {.rank = 1, .cause = Cause::closed, .other = 2});
              }).starts_with("it reports rank 1 as lost"));
  EXPECT_EQ(refused(0, 2, [](Scene& s) { s.say(2, kLostMessage, std::vector<std::byte>(5)); }),
            "a failure of 5 bytes, which its fields do not fill");
}

// --- suspects

TEST(Suspect, IsLostByTheDeadlineIfItSendsNothing) {
  Scene scene(0);
  scene.run_until(1000);
  scene.hand(2).mute = true;  // its connection with rank 0 stays
  scene.suspect(1, 2);
  scene.run_until(1699);
  EXPECT_EQ(scene.failure(), "");
  scene.run_until(5000);
  EXPECT_EQ(scene.failure(), "rank 2 lost: connection closed");
  EXPECT_EQ(scene.failed_at(), 1700);
  EXPECT_EQ(scene.hand(1).failure, scene.failure());
}

TEST(Suspect, IsNotLostIfItSendsAFrame) {
  Scene scene(0);
  scene.run_until(1000);
  scene.suspect(1, 2);
  scene.run_until(1250);  // a heartbeat
  EXPECT_EQ(scene.failure(),
            "the connection between rank 1 and rank 2 was lost: connection closed; rank 0 is "
            "connected to both");
}

TEST(Suspect, IsLostAfterTheDeadlineOfAReportThatIsNotAnswered) {
  Scene scene(1);
  scene.run_until(1000);
  scene.disconnect(2);
  scene.run_until(1300);
  EXPECT_EQ(scene.hand(0).received.back(), kLostMessage);
  scene.run_until(2499);
  EXPECT_EQ(scene.failure(), "");
  scene.run_until(6000);
  EXPECT_TRUE(scene.failure().starts_with("rank 2 lost: connection closed")) << scene.failure();
  EXPECT_EQ(scene.failed_at(), 2500);
}

// Rank 2 leaves because of rank 0, to which rank 1 is not yet connected: the watchdog of the start
// may still report it.
TEST(Suspect, WhileTheRanksMeetARankThatLeavesIsNotBlamedAtOnce) {
  Scene scene(1, false);
  scene.connect(2);
  scene.disconnect(2);
  scene.run_until(1499);
  EXPECT_EQ(scene.failure(), "");
  scene.run_until(1500);
  EXPECT_TRUE(scene.failure().starts_with("rank 2 lost: connection closed")) << scene.failure();
}

TEST(Start, ARankThatNeverJoinsIsNamed) {
  Scene scene(0, false);
  for (const int32_t peer : {1, 2}) scene.connect(peer);
  scene.say(1, kJoinedMessage);
  const LinkTime limit = 2 * LinkTimes().hello;
  scene.run_until(limit - 1);
  EXPECT_EQ(scene.failure(), "");
  scene.run_until(limit);
  EXPECT_EQ(scene.failure(), "rank 2 did not connect with the other ranks within 20 s");
}

}  // namespace
}  // namespace weft
