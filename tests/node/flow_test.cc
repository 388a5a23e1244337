// Rank 1 of two, and rank 0 by hand: its frames, their order, and what rank 1 does when they
// arrive.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "graph/presets.h"
#include "node/adapters.h"
#include "node/control_codec.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

// Two micro-batches, the last of which may be short; what goes from rank 0 to rank 1 has 1.5 MiB,
// which is two pieces.
std::shared_ptr<const Plan> plan_of_two() {
  PlanConfig config;
  config.ranks = 2;
  config.micro_batches = 2;
  config.micro_batch_size = 768;
  config.short_size = 700;
  return make_plan(make_preset("mlp:layers=2,width=512", {}).take().model, config).take();
}

class Scene final : private RankNodeEffects, private LinkEffects {
 public:
  Scene() {
    node_.start(0);
    zero_.start(0);
    node_.connected(0, 0);
    zero_.connected(0, *this);
    deliver();
  }

  // Of training, to rank 1.
  int32_t edge(EdgeKind kind) const {
    const auto& edges = plan_->mode(Mode::train).edges;
    const auto at = std::find_if(edges.begin(), edges.end(), [kind](const Edge& e) {
      return e.kind == kind && e.to_rank == 1;
    });
    return static_cast<int32_t>(at - edges.begin());
  }
  // From rank 0. They wait for deliver().
  void tensor(EdgeKind kind, int32_t micro_batch, int64_t samples) {
    bytes_.emplace_back(static_cast<size_t>(samples) * 512 * sizeof(float));
    zero_.send_tensor(tag_of({.edge = edge(kind), .micro_batch = micro_batch}), bytes_.back(),
                      *this);
  }
  void begin(Mode mode, int32_t micro_batches, bool short_last) {
    Control control{.kind = ControlKind::begin,
                    .step = {.mode = mode, .micro_batches = micro_batches},
                    .squares = {}};
    control.step.short_last = short_last;
    std::vector<std::byte> bytes;
    encode_control(control, bytes);
    zero_.send_message(kControlMessage, bytes, now_, *this);
  }
  // So many frames of a lane of rank 0, in their order, or all there are; and all that rank 1
  // answers.
  void deliver(Lane lane, size_t most = SIZE_MAX) {
    for (auto& frames = from_zero_[static_cast<size_t>(lane)]; most > 0 && !frames.empty();
         --most) {
      const Frame frame = std::move(frames.front());
      frames.pop_front();
      node_.received(0, lane, frame.bytes, now_);
      if (frame.token != 0) zero_.sent(frame.token, now_, *this);
    }
    while (!from_one_.empty()) {
      const auto [to, frame] = std::move(from_one_.front());
      from_one_.pop_front();
      zero_.received(to, frame.bytes, now_, *this);
      if (frame.token != 0) node_.sent(0, frame.token, now_);
    }
  }
  void deliver() {
    while (!from_zero_[0].empty() || !from_zero_[1].empty())
      for (const Lane lane : {Lane::control, Lane::data}) deliver(lane);
  }
  bool has_joined() const { return joined_; }
  // Without the stages, which the hands do not know.
  std::string failure() const {
    Origin origin = node_.origin();
    origin.stages.clear();
    return node_.has_failed() ? origin_text(origin) : std::string();
  }
  int jobs() const { return jobs_; }

 private:
  struct Frame {
    std::vector<std::byte> bytes;
    uint64_t token;
  };
  static Frame join(std::span<const std::byte> header, std::span<const std::byte> payload,
                    uint64_t token) {
    Frame out{{header.begin(), header.end()}, token};
    out.bytes.insert(out.bytes.end(), payload.begin(), payload.end());
    return out;
  }

  // Rank 1's
  void run(const StepDescriptor&, double, int32_t, bool) override { ++jobs_; }
  void copy(const MessageAt&) override {}
  Result<std::span<const std::byte>> outgoing(const MessageAt&) override {
    return std::span<const std::byte>();
  }
  Result<std::span<std::byte>> landing(const MessageAt& at) override {
    const Edge& edge = plan_->mode(at.mode).edges[static_cast<size_t>(at.edge)];
    std::vector<std::byte>& place = places_[{at.edge, at.micro_batch}];
    place.resize(edge.desc[0].bytes());
    return std::span(place).first(edge.desc[static_cast<size_t>(at.variant)].bytes());
  }
  Status landed(const MessageAt&) override { return {}; }
  double loss(const MessageAt&) override { return 0; }
  void send(int32_t, Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    from_one_.emplace_back(lane, join(header, payload, token));
  }
  void hang_up(int32_t) override {}
  void joined() override { joined_ = true; }
  void message(int32_t, uint32_t, std::span<const std::byte>) override {}
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  void failed(const Origin&) override {}
  void closed() override {}

  // Rank 0's
  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    from_zero_[static_cast<size_t>(lane)].push_back(join(header, payload, token));
  }
  void open() override {}
  Result<std::span<std::byte>> landing(const Tag&, uint64_t) override {
    return Status(Code::internal, "rank 1 sends none here");
  }
  void arrived(const Tag&) override {}
  void released(const Tag&) override {}
  void granted(const Tag&) override {}
  void message(uint32_t, std::span<const std::byte>) override {}
  void leaving() override {}
  void failed(const Origin&, bool) override {}

  const std::shared_ptr<const Plan> plan_ = plan_of_two();
  RankNode node_{plan_, 1, Identity(), static_cast<RankNodeEffects&>(*this)};
  Link zero_{0, 1, Identity()};
  std::deque<Frame> from_zero_[2];
  std::deque<std::pair<Lane, Frame>> from_one_;
  std::deque<std::vector<std::byte>> bytes_;
  std::map<std::pair<int32_t, int32_t>, std::vector<std::byte>> places_;
  int jobs_ = 0;
  bool joined_ = false;
  LinkTime now_ = 0;
};

TEST(ATensor, ThatLandsWhileItsStepBeginsIsTaken) {
  Scene scene;
  ASSERT_TRUE(scene.has_joined());
  scene.tensor(EdgeKind::feed, 0, 768);
  scene.tensor(EdgeKind::forward, 0, 768);
  scene.deliver(Lane::data, 3);
  scene.begin(Mode::train, 2, false);
  scene.deliver(Lane::control);
  const int before = scene.jobs();
  scene.deliver(Lane::data);
  EXPECT_EQ(scene.failure(), "");
  EXPECT_GT(scene.jobs(), before);
}

struct Other {
  const char* what;
  Mode mode;
  int32_t micro_batches;
  bool short_last;
  int32_t micro_batch;  // that lands while the step begins
};

class OtherStep : public testing::TestWithParam<Other> {};

// Whether its last piece comes before the step begins or after.
TEST_P(OtherStep, ATensorThatIsNotOfItIsRefused) {
  const Other& other = GetParam();
  for (const size_t early : {1, 2}) {
    Scene scene;
    for (int32_t mb = 0; mb <= other.micro_batch; ++mb) scene.tensor(EdgeKind::forward, mb, 768);
    scene.deliver(Lane::data, static_cast<size_t>(other.micro_batch) * 2 + early);
    EXPECT_EQ(scene.failure(), "");
    scene.begin(other.mode, other.micro_batches, other.short_last);
    scene.deliver(Lane::control);
    scene.deliver(Lane::data);
    EXPECT_EQ(scene.failure(), "rank 0: edge " + std::to_string(scene.edge(EdgeKind::forward)) +
                                   ", micro-batch " + std::to_string(other.micro_batch) +
                                   " does not belong to step 0");
  }
}

INSTANTIATE_TEST_SUITE_P(Differs, OtherStep,
                         testing::Values(Other{"mode", Mode::eval, 2, false, 0},
                                         Other{"size", Mode::train, 1, true, 0},
                                         Other{"count", Mode::train, 1, false, 1}),
                         [](const auto& of) { return of.param.what; });

}  // namespace
}  // namespace weft
