// The admission of a process while its clients are unknown: limits for unknown clients, and ranks
// that connect too early or too late.
#include "runtime/admission.h"
#include "base/text.h"

#include <algorithm>
#include <optional>

#include "peers.h"

namespace weft::test {
namespace {

class AdmissionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(admission_.listen("ipc://").ok());
    admission_.watch([this](RunEvent::Kind kind, const MeshEvent& event) {
      if (kind == RunEvent::Kind::refused)
        refused_ = event;
      else
        changes_.emplace_back(kind, event);
    });
  }

  std::unique_ptr<End> come() {
    auto end = net_.dial(admission_.endpoint());
    EXPECT_TRUE(net_.until([&] { return end->times_connected == 1; }));
    return end;
  }
  static void say(End& end, FrameHeader header, uint16_t rank, std::span<const std::byte> payload) {
    header.source = rank;
    header.length = static_cast<uint32_t>(payload.size());
    if (header.total == 0) header.total = payload.size();
    std::array<std::byte, kHeaderBytes> bytes;
    encode_header(header, payload, bytes);
    end.connection->send(header.kind == FrameKind::data ? 1 : 0, bytes, payload, 0);
  }
  static void say_hello(End& end, uint16_t rank, const Identity& identity = admission_identity()) {
    say(end, {.kind = FrameKind::hello, .incarnation = identity.incarnation}, rank,
        encode_hello(identity));
  }
  // Joins as that rank, or requests to; -1: any rank.
  std::unique_ptr<End> ask(int32_t rank, const std::string& endpoint = "ipc:///there") {
    auto end = come();
    say_hello(*end, kNobody);
    say(*end, {.kind = FrameKind::message, .edge = kJoinType, .sequence = 1}, kNobody,
        encode_join({.wanted_rank = rank, .endpoint = endpoint, .ops = {}, .plan = {}, .key = {}}));
    return end;
  }
  bool hears_abort(const End& end) {
    return net_.until([&] {
      return std::any_of(end.frames.begin(), end.frames.end(),
                         [](const End::Frame& f) { return decode_origin(f.payload).ok(); });
    });
  }
  // Turns the loop until the admission has no connections.
  bool rests() {
    bool expired = false;
    Loop::Timer limit(*net_.loop, [&] { expired = true; });
    limit.start(20000);
    // Does not sleep: the last timer may be due before the loop would sleep.
    while (!expired && uv_backend_timeout(net_.loop->uv()) < 5000)
      uv_run(net_.loop->uv(), UV_RUN_NOWAIT);
    return !expired;
  }
  // Expects candidates; the result is in `gathered` once it is known.
  void expect(const Plan& plan, int64_t timeout_ms) {
    gathered_.reset();
    admission_.expect(plan, timeout_ms, [this](const Status& status) { gathered_ = status; });
  }
  std::vector<std::string> changes() const {
    std::vector<std::string> out;
    for (const auto& [kind, event] : changes_)
      out.push_back(cat(kind == RunEvent::Kind::joined ? "joined " : "left ", event.rank, ", ",
                        event.missing, " missing"));
    return out;
  }
  // Candidates that leave after this call without having joined are in `left_`.
  void welcome(std::vector<std::string> endpoints) {
    admission_.welcome({.rank = 0,
                        .run = {},
                        .model = {},
                        .config = {},
                        .endpoints = endpoints,
                        .keys = std::vector<PublicKey>(endpoints.size())},
                       [this](const Origin& origin) { left_.push_back(origin); });
  }
  static Plan plan_of(int32_t ranks) {
    Plan plan;
    plan.model = std::make_shared<Model>();
    plan.whole = plan.model;
    plan.config.ranks = ranks;
    return plan;
  }
  // The reason of the last refusal, once `count` connections were refused.
  std::string refusal(uint64_t count) {
    EXPECT_TRUE(net_.until([&] { return refused_.count >= count; }));
    return refused_.text;
  }
  void expect_refusal(uint64_t count, const std::string& part) {
    EXPECT_NE(refusal(count).find(part), std::string::npos) << refusal(count);
  }

  Net net_{"ipc://"};
  std::vector<std::pair<RunEvent::Kind, MeshEvent>> changes_;  // joined and left, as they came
  MeshEvent refused_;                                          // the last
  Admission admission_{*net_.loop, *net_.transport, {.hello = 500}, 2};
  std::optional<Status> gathered_;
  std::vector<int32_t> members_;
  std::vector<Origin> left_;
  const Admission::Member member_ = [this](int32_t rank,
                                           std::unique_ptr<PeerConnection>& connection, int,
                                           std::span<const std::byte>) {
    if (std::count(members_.begin(), members_.end(), rank)) return false;
    members_.push_back(rank);
    const std::unique_ptr<PeerConnection> taken = std::move(connection);
    return true;
  };
};

TEST_F(AdmissionTest, ARankThatComesEarlyIsKeptUntilItIsWanted) {
  const auto early = come();
  say_hello(*early, 1);
  const auto later = come();  // refused, later than the rank would be
  expect_refusal(1, "it sent nothing for 0.5 s");
  EXPECT_EQ(early->times_disconnected, 0);
  admission_.take_members(0, admission_identity(), member_);
  EXPECT_EQ(members_, std::vector<int32_t>{1});
}

// Any process can claim to be rank 1; only a welcomed one knows the name of the run.
// The timer of a process does not run without connections.
TEST_F(AdmissionTest, LooksAtTheClockOnlyWhileSomebodyIsThere) {
  EXPECT_TRUE(rests());
  auto silent = come();
  expect_refusal(1, "it sent nothing for 0.5 s");
  silent.reset();
  EXPECT_TRUE(rests());
}

TEST_F(AdmissionTest, ARankOfAnotherRunIsTurnedAwayAndHearsWhy) {
  Identity run = admission_identity(), other = run;
  run.incarnation = 7;
  run.run = {1, 2};
  const auto early = come();
  say_hello(*early, 1);
  const auto later = come();
  expect_refusal(1, "it sent nothing for 0.5 s");
  admission_.take_members(0, run, member_);
  expect_refusal(2, "rank 1 refused: its run differs from that of rank 0");
  EXPECT_TRUE(hears_abort(*early));

  const auto stranger = come();
  other.profile = "x";
  say_hello(*stranger, 1, other);
  expect_refusal(3, "rank 1 refused: its numeric profile 'x' differs from that of rank 0");
  EXPECT_TRUE(hears_abort(*stranger));
  const auto no_hello = come();
  say(*no_hello, {.kind = FrameKind::hello}, 1, bytes_of(5, 1));
  expect_refusal(4, "hello of 5 bytes, which its fields do not fill");
  EXPECT_TRUE(members_.empty());

  // Any other difference is a failure of the run, and its link reports it.
  const auto welcomed = come();
  run.model = {3, 4};
  say_hello(*welcomed, 1, run);
  EXPECT_TRUE(net_.until([&] { return members_.size() == 1; }));
}

TEST_F(AdmissionTest, NoMoreRanksThanThatAreKeptBeforeTheyAreWanted) {
  const auto one = come(), two = come(), three = come();
  say_hello(*one, 1);
  say_hello(*two, 2);
  say_hello(*three, 3);
  expect_refusal(1, "connected before it was expected, as 2 others did");
}

TEST_F(AdmissionTest, ARankThatComesAfterTheRunIsTurnedAway) {
  admission_.take_members(0, admission_identity(), member_);
  admission_.end_run();
  const auto late = come();
  say_hello(*late, 1);
  expect_refusal(1, "rank 1 of a run that is over");
  EXPECT_TRUE(net_.until([&] { return late->times_disconnected == 1; }));
  EXPECT_TRUE(members_.empty());
}

TEST_F(AdmissionTest, ARankThatComesAfterAFailureHearsWhy) {
  admission_.fail_run({.rank = 2, .cause = Cause::closed, .detail = "it was a test"});
  admission_.end_run();
  const auto late = come();
  say_hello(*late, 1);
  ASSERT_TRUE(net_.until([&] { return late->times_disconnected == 1; }));
  ASSERT_EQ(late->frames.size(), 1u);
  const auto heard = decode_origin(late->frames[0].payload);
  ASSERT_TRUE(heard.ok()) << heard.status().text();
  EXPECT_EQ(heard.value().rank, 2);
  EXPECT_EQ(origin_text(heard.value()), "rank 2 lost: it was a test");
}

TEST_F(AdmissionTest, ARankBeginsWithAHello) {
  const auto end = come();
  const std::vector<std::byte> much = bytes_of(100000, 1);
  say(*end, {.kind = FrameKind::data}, 1, much);
  expect_refusal(1, "rank 1 begins with data of 100064 bytes, expected hello");
  const auto other = come();
  say(*other, {.kind = FrameKind::hello}, 1, much);
  expect_refusal(2, "rank 1 begins with hello of 100064 bytes");
}

TEST_F(AdmissionTest, AGuestSendsNoMoreThanARequest) {
  const auto candidate = come();
  say_hello(*candidate, kNobody);
  const std::vector<std::byte> piece = bytes_of(kMaxPayload, 1);
  say(*candidate,
      {.kind = FrameKind::message, .edge = kJoinType, .sequence = 1, .total = 32 * kMaxPayload},
      kNobody, piece);
  expect_refusal(1, "message of 33554432 bytes, at most 65536");
}

// The others could not dial it, and their runs would end.
TEST_F(AdmissionTest, AnAddressThatNobodyCanDialIsRefused) {
  const Plan plan = plan_of(3);
  expect(plan, 60000);
  std::vector<std::unique_ptr<End>> asked;
  for (const auto& [endpoint, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "its address: '': expected one that begins with ipc://"},
           {"tcp://127.0.0.1:4000", "expected one that begins with ipc://"},
           {"ipc://there", "expected an absolute path"},
           {"ipc:///" + std::string(200, 'x'), "may have 107 bytes"},
           {std::string(10000, 'x'), "its address: has 10000 bytes, expected at most 300"}}) {
    asked.push_back(ask(1, endpoint));
    expect_refusal(asked.size(), why);
  }
  EXPECT_TRUE(changes().empty());
}

TEST_F(AdmissionTest, WhoIsThereAndDoesNotAskIsRefused) {
  const auto idle = come();
  say_hello(*idle, kNobody);
  say(*idle, {.kind = FrameKind::heartbeat, .sequence = 1}, kNobody, {});
  expect_refusal(1, "it did not ask to join");
  EXPECT_TRUE(hears_abort(*idle));
  EXPECT_TRUE(net_.until([&] { return idle->times_disconnected == 1; }));
  EXPECT_EQ(refused_.count, 1u);
}

// After a failed wait candidates remain until the reason has been sent to them; the next wait has
// other ranks.
TEST_F(AdmissionTest, CandidatesOfAWaitThatFailedAreNoneOfTheNext) {
  const Plan large = plan_of(64), small = plan_of(3);
  const auto early = ask(1), late = ask(60);
  expect(large, 500);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  EXPECT_EQ(gathered_->code(), Code::timed_out) << gathered_->text();
  expect(small, 60000);
  const auto one = ask(1);
  for (const auto* old : {&early, &late}) {
    EXPECT_TRUE(hears_abort(**old));
    EXPECT_TRUE(net_.until([&] { return (*old)->times_disconnected == 1; }));
  }
  EXPECT_FALSE(gathered_.has_value());
  const auto two = ask(2);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  EXPECT_TRUE(gathered_->ok()) << gathered_->text();
  EXPECT_EQ(refused_.count, 0u) << refused_.text;
}

TEST_F(AdmissionTest, AProcessThatMayHaveAnyRankMakesRoomForOneThatAsksForIts) {
  const Plan plan = plan_of(3);
  expect(plan, 60000);
  const auto any = ask(-1);
  // Their order is that of the listener's reads, so the other one waits until the first has its
  // rank.
  const auto early = ask(7);
  expect_refusal(1, "it asks to be rank 7, the run has the ranks 0 to 2");
  const auto below = ask(-2);
  expect_refusal(2, "it asks to be rank -2, the run has the ranks 0 to 2");
  const auto one = ask(1);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  EXPECT_TRUE(gathered_->ok()) << gathered_->text();
  EXPECT_EQ(admission_.joined()[1].wanted_rank, 1);
  EXPECT_EQ(admission_.joined()[2].wanted_rank, -1);
  EXPECT_EQ(changes(), (std::vector<std::string>{"joined 1, 1 missing", "joined 2, 0 missing",
                                                 "joined 1, 0 missing"}));
}

TEST_F(AdmissionTest, ARankThatLeavesBeforeTheOthersComeIsReportedAtOnce) {
  const Plan plan = plan_of(3);
  expect(plan, 60000);
  auto one = ask(1);
  const auto another = ask(1);
  expect_refusal(1, "it asks to be rank 1, which has joined already");
  one->connection.reset();
  EXPECT_TRUE(net_.until([&] { return changes_.size() == 2; }));
  EXPECT_EQ(changes(), (std::vector<std::string>{"joined 1, 1 missing", "left 1, 2 missing"}));
  EXPECT_FALSE(gathered_.has_value());
  const auto again = ask(1), two = ask(2);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  EXPECT_TRUE(gathered_->ok()) << gathered_->text();
}

// A rank that has joined closes the connection of its request. Its last frame there may be lost in
// transit.
TEST_F(AdmissionTest, TheEndOfARequestIsNoLossOnceTheRankIsConnected) {
  const Plan plan = plan_of(3);
  expect(plan, 60000);
  auto one = ask(1), two = ask(2);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  admission_.take_members(0, admission_identity(), member_);
  welcome({"a", "b", "c"});
  const auto rank_1 = come(), rank_2 = come();
  say_hello(*rank_1, 1);
  say_hello(*rank_2, 2);
  ASSERT_TRUE(net_.until([&] { return members_.size() == 2; }));
  one->connection.reset();  // without a bye
  // The other one fails and reports why; it may have no other connection for that.
  say(*two, {.kind = FrameKind::abort, .sequence = 2}, kNobody,
      encode_origin({.rank = 1, .cause = Cause::silent, .limit_ms = 5000}));
  ASSERT_TRUE(rests());
  ASSERT_EQ(left_.size(), 1u);
  EXPECT_EQ(origin_text(left_[0]), "rank 1 lost: silent for 5 s");
}

TEST_F(AdmissionTest, WhoAsksToJoinTwiceEndsNobodysRun) {
  const Plan plan = plan_of(3);
  const auto again = [&](End& end, uint64_t sequence) {
    say(end, {.kind = FrameKind::message, .edge = kJoinType, .sequence = sequence}, kNobody,
        encode_join(
            {.wanted_rank = 2, .endpoint = "ipc:///there", .ops = {}, .plan = {}, .key = {}}));
  };
  expect(plan, 60000);
  const auto one = ask(1);
  again(*one, 2);
  expect_refusal(1, "it asked to join twice");
  const auto two = ask(2);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  EXPECT_TRUE(gathered_->ok()) << gathered_->text();
  welcome({"a", "b", "c"});
  again(*one, 3);
  expect_refusal(2, "it asked to join twice");
  EXPECT_TRUE(left_.empty());
  EXPECT_EQ(one->times_disconnected + two->times_disconnected, 0);
}

TEST_F(AdmissionTest, ASecondConnectionOfARankIsClosed) {
  admission_.take_members(0, admission_identity(), member_);
  const auto first = come();
  say_hello(*first, 1);
  ASSERT_TRUE(net_.until([&] { return members_.size() == 1; }));
  const auto second = come();
  say_hello(*second, 1);
  expect_refusal(1, "a second connection of rank 1");
  EXPECT_TRUE(net_.until([&] { return second->times_disconnected == 1; }));
  EXPECT_EQ(members_.size(), 1u);
}

// The rank of an old candidate may have been taken already when it goes.
TEST_F(AdmissionTest, AnOldCandidateDoesNotFreeTheRankOfANewOne) {
  const Plan plan = plan_of(3);
  const auto old = ask(1);
  expect(plan, 500);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  expect(plan, 60000);
  const auto one = ask(1);
  ASSERT_TRUE(net_.until([&] { return old->times_disconnected == 1; }));
  const auto again = ask(1);
  expect_refusal(1, "it asks to be rank 1, which has joined already");
}

TEST_F(AdmissionTest, WhoComesWhenAllIsCanceledIsTold) {
  const Plan plan = plan_of(3);
  const auto early = ask(1);
  expect(plan, 60000);
  admission_.stop(Status(Code::canceled, "canceled"));
  ASSERT_TRUE(gathered_.has_value());
  EXPECT_EQ(gathered_->code(), Code::canceled);
  const auto late = ask(2);
  EXPECT_TRUE(hears_abort(*early) && hears_abort(*late));
}

// Between two waits no candidate is expected, and none is refused because the run is complete.
TEST_F(AdmissionTest, WhoComesBetweenTwoWaitsIsKeptForTheNext) {
  const Plan plan = plan_of(2);
  expect(plan, 1);
  ASSERT_TRUE(net_.until([&] { return gathered_.has_value(); }));
  const auto candidate = ask(1);
  const auto silent = come();  // refused after the candidate's frame has been read
  expect_refusal(1, "it sent nothing");
  expect(plan, 60000);
  ASSERT_TRUE(gathered_.has_value());
  EXPECT_TRUE(gathered_->ok()) << gathered_->text();
}

}  // namespace
}  // namespace weft::test
