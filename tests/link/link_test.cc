// The guarantees of a link, one per test, under a virtual clock.
#include <gtest/gtest.h>

#include "pair.h"

namespace weft::test {
namespace {

TEST(Link, OpensOnceHelloWentBothWays) {
  Pair pair(1, {.latency = 5});
  pair.run_until(9);
  EXPECT_FALSE(pair.a.link.is_open());
  pair.run_until(30);
  EXPECT_TRUE(pair.open());
  EXPECT_EQ(pair.a.opened, 1);
  EXPECT_EQ(pair.b.opened, 1);
}

// The other end may be an unknown client, to which the expected value is not sent.
TEST(Link, ADifferenceIsNamedOnBothEndsWithoutTheExpectedValue) {
  struct Case {
    const char* section;
    void (*change)(Identity&);
    const char *here, *there;  // `there` is empty if the text contains no value
  };
  const Case cases[] = {
      {"weft version", [](Identity& i) { i.version = "0.2.0"; }, "0.1.0", " '0.2.0'"},
      {"numeric profile", [](Identity& i) { i.profile = "neon"; }, "avx2+blis", " 'neon'"},
      {"run", [](Identity& i) { i.run.low = 3; }, "00000000000000010000000000000002", ""},
      {"model", [](Identity& i) { i.model.low = 5; }, "00000000000000030000000000000004", ""},
      {"partition", [](Identity& i) { i.partition.low = 7; }, "00000000000000050000000000000006",
       ""},
      {"schedule", [](Identity& i) { i.schedule.low = 9; }, "00000000000000070000000000000008", ""},
      {"settings", [](Identity& i) { i.settings.low = 11; }, "0000000000000009000000000000000a",
       ""},
      {"incarnation", [](Identity& i) { i.incarnation = 3; }, "4", ""},
  };
  for (const Case& c : cases) {
    Identity other = identity();
    c.change(other);
    Pair pair(1, {.latency = 5}, identity(), other);
    pair.run_until(400);
    const std::string text =
        std::string("rank 5 refused: its ") + c.section + c.there + " differs from that of rank 2";
    for (const Side* side : {&pair.a, &pair.b}) {
      EXPECT_EQ(side->failures, 1);
      EXPECT_EQ(side->opened, 0);
      EXPECT_EQ(origin_text(side->failure), text);
      EXPECT_EQ(origin_text(side->failure).find(c.here), std::string::npos);
      EXPECT_EQ(side->failure.code, Code::peer);
      EXPECT_EQ(side->failure.rank, 5);
      EXPECT_TRUE(side->link.is_dead());
    }
  }
}

TEST(Link, AnotherWireVersionIsRefusedOnBothEnds) {
  Pair pair;
  pair.a.link.connected(0, pair.a);
  FrameHeader h;
  h.kind = FrameKind::hello;
  std::array<std::byte, kHeaderBytes> header;
  encode_header(h, {}, header);
  header[4] = std::byte{3};
  pair.a.link.received(Lane::control, header, 0, pair.a);
  EXPECT_EQ(origin_text(pair.a.failure), "rank 5: wire version 3, this weft has 2");
  EXPECT_EQ(pair.a.failure.code, Code::protocol);
  EXPECT_EQ(pair.a.failure.rank, 5);
  pair.run_for(10);
  EXPECT_EQ(origin_text(pair.b.failure), origin_text(pair.a.failure));  // the abort reported it
}

TEST(Link, TheHelloHasADeadlineWhateverIsMissing) {
  SimNetwork network(1, {});
  Side alone(2, 5, identity(), network);
  alone.link.start(100);
  EXPECT_EQ(alone.link.next_tick(), 10100);
  alone.now = 10100;
  alone.link.tick(10100, alone);
  EXPECT_EQ(origin_text(alone.failure), "rank 5 did not connect within 10 s");
  alone.link.tick(10400, alone);
  EXPECT_TRUE(alone.link.is_dead());

  Pair pair;
  pair.b_deaf = true;
  pair.run_until(20000);
  EXPECT_EQ(origin_text(pair.a.failure), "rank 5 did not send hello within 10 s");
  EXPECT_EQ(pair.a.failed_at, 10000);
  EXPECT_TRUE(pair.a.link.is_dead());
}

TEST(Link, AConnectionThatCannotBeIsNotWaitedFor) {
  SimNetwork network(1, {});
  Side alone(2, 5, identity(), network);
  alone.link.start(100);
  alone.link.disconnected("the listener is not weft", 200, alone);
  EXPECT_EQ(alone.link.next_tick(), 500);  // until then another rank may report the cause
  alone.link.tick(500, alone);
  EXPECT_EQ(alone.failures, 1);
  EXPECT_EQ(alone.failure.code, Code::peer);
  EXPECT_EQ(origin_text(alone.failure), "rank 5 did not connect: the listener is not weft");
  alone.link.tick(800, alone);
  EXPECT_TRUE(alone.link.is_dead());
}

TEST(Link, TensorsOfAnySizeArriveIntact) {
  Pair pair(3, {.latency = 1, .jitter = 3});
  pair.run_until(50);
  ASSERT_TRUE(pair.open());
  const size_t sizes[] = {0, 1, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{5} << 20, 17};
  int32_t edge = 0;
  for (size_t size : sizes) {
    pair.a.send_tensor({9, edge, 1}, pattern(size, size));
    pair.b.send_tensor({9, edge, 2}, pattern(size, size + 1));
    ++edge;
  }
  pair.run_for(1000);
  ASSERT_EQ(pair.b.arrivals.size(), std::size(sizes));
  ASSERT_EQ(pair.a.arrivals.size(), std::size(sizes));
  for (int32_t e = 0; e < edge; ++e) {
    const size_t size = sizes[e];
    EXPECT_EQ(pair.b.arrivals[static_cast<size_t>(e)], (Tag{9, e, 1}));
    EXPECT_EQ((pair.b.landed[{e, 1}]), pattern(size, size));
    EXPECT_EQ((pair.a.landed[{e, 2}]), pattern(size, size + 1));
    EXPECT_EQ(pair.a.releases[static_cast<size_t>(e)], (Tag{9, e, 1}));
  }
}

// The transport never has more than the window; the rest follows as frames are sent.
TEST(Link, BytesWithTheTransportAreBounded) {
  struct Counting final : LinkEffects {
    void send(Lane lane, std::span<const std::byte, kHeaderBytes>,
              std::span<const std::byte> payload, uint64_t token) override {
      if (lane != Lane::data) return;
      bytes += payload.size();
      tokens.push_back({token, payload.size()});
    }
    void open() override {}
    Result<std::span<std::byte>> landing(const Tag&, uint64_t) override {
      return std::span<std::byte>();
    }
    void arrived(const Tag&) override {}
    void released(const Tag&) override { ++released_count; }
    void granted(const Tag&) override {}
    void message(uint32_t, std::span<const std::byte>) override {}
    void leaving() override {}
    void failed(const Origin&, bool) override { ADD_FAILURE(); }
    void closed() override {}
    size_t bytes = 0;
    int released_count = 0;
    std::deque<std::pair<uint64_t, size_t>> tokens;
  };
  Pair pair;
  pair.run_until(10);
  Counting counting;
  const auto big = pattern(size_t{10} << 20, 1), small = pattern(1, 1);
  pair.a.link.send_tensor({1, 1, 1}, big, counting);
  for (int32_t i = 0; i < 200; ++i) pair.a.link.send_tensor({1, 2, i}, small, counting);
  while (!counting.tokens.empty()) {
    EXPECT_LE(counting.bytes, Link::kWindowBytes);
    EXPECT_LE(counting.tokens.size(), Link::kWindowFrames);
    const auto [token, size] = counting.tokens.front();
    counting.tokens.pop_front();
    counting.bytes -= size;
    pair.a.link.sent(token, 10, counting);
  }
  EXPECT_EQ(counting.released_count, 201);
}

TEST(Link, GrantsAndMessagesArriveInOrder) {
  Pair pair(5, {.latency = 1, .jitter = 4});
  pair.run_until(50);
  for (int32_t i = 0; i < 50; ++i) pair.a.link.send_grant({7, i, i + 1}, pair.a);
  const size_t sizes[] = {0, 3, size_t{1} << 20, (size_t{3} << 20) + 5, 8};
  for (size_t size : sizes)
    pair.a.link.send_message(static_cast<uint32_t>(16 + size % 7), pattern(size, size), pair.now,
                             pair.a);
  pair.run_for(500);
  ASSERT_EQ(pair.b.grants.size(), 50u);
  for (int32_t i = 0; i < 50; ++i)
    EXPECT_EQ(pair.b.grants[static_cast<size_t>(i)], (Tag{7, i, i + 1}));
  ASSERT_EQ(pair.b.messages.size(), std::size(sizes));
  for (size_t i = 0; i < std::size(sizes); ++i) {
    EXPECT_EQ(pair.b.messages[i].first, 16 + sizes[i] % 7);
    EXPECT_EQ(pair.b.messages[i].second, pattern(sizes[i], sizes[i]));
  }
}

TEST(Link, AMessageTooLongFailsItsSender) {
  Pair pair;
  pair.run_until(10);
  pair.a.link.send_message(16, std::vector<std::byte>(Link::kMaxMessage + 1), pair.now, pair.a);
  EXPECT_EQ(pair.a.failure.rank, 2);
  EXPECT_EQ(origin_text(pair.a.failure),
            "rank 2 failed: message of 67108865 bytes, at most 67108864");
  pair.run_for(10);
  EXPECT_EQ(pair.b.failure, pair.a.failure);
}

TEST(Link, HeartbeatsKeepAnIdleLinkAliveAndTellWhatThePeerDoes) {
  Pair pair(1, {.latency = 20, .jitter = 30});
  pair.run_until(100);
  const Activity activity{
      .state = Activity::State::runs, .job = 'W', .stage = 3, .micro_batch = 4, .step = 11};
  pair.b.link.set_activity(activity);
  pair.run_until(3600 * 1000);
  EXPECT_TRUE(pair.open());
  EXPECT_EQ(pair.a.failures + pair.b.failures, 0);
  EXPECT_EQ(pair.a.link.peer_activity(), activity);
  EXPECT_GE(pair.a.link.last_heard(), pair.now - 400);
}

TEST(Link, ASilentPeerIsLostAfterThePeerTimeout) {
  Pair pair;
  pair.run_until(100);
  const Activity activity{
      .state = Activity::State::runs, .job = 'B', .stage = 2, .micro_batch = 5, .step = 11};
  pair.b.link.set_activity(activity);
  pair.run_until(1000);
  const LinkTime heard = pair.a.link.last_heard();
  pair.b_deaf = true;
  pair.run_until(10000);
  EXPECT_EQ(pair.a.failed_at, heard + 5000);
  EXPECT_EQ(
      origin_text(pair.a.failure),
      "rank 5 lost: silent for 5 s; last frame 5 s ago; last status 5 s ago: in 2B5 of step 12");
  EXPECT_EQ(pair.a.failure.rank, 5);
  EXPECT_EQ(pair.a.failure.code, Code::peer);
  EXPECT_EQ(pair.a.failure.cause, Cause::silent);
  EXPECT_EQ(pair.a.failure.limit_ms, 5000);
  EXPECT_EQ(pair.a.failure.heard_ms, 5000);
  EXPECT_EQ(pair.a.failure.activity, activity);
  EXPECT_TRUE(pair.a.link.is_dead());
}

// The process that the peer's hello names.
TEST(Link, TheProcessOfALostPeerIsNamed) {
  Identity other = identity();
  other.process = {.pid = 77, .host = "node3"};
  Pair pair(1, {}, identity(), other);
  pair.run_until(1000);
  pair.network.cut(2, 5, 1000);
  pair.run_until(1300);
  EXPECT_EQ(pair.a.failure.process, other.process);
  EXPECT_TRUE(
      origin_text(pair.a.failure).starts_with("rank 5 (pid 77 on node3) lost: connection closed; "))
      << origin_text(pair.a.failure);
}

// The activity of a peer is from its last heartbeat, which may be older than its last frame.
TEST(Link, TheStatusOfALostPeerComesWithItsAge) {
  Pair pair;
  pair.b.link.set_activity({.state = Activity::State::idle, .step = 25});
  pair.run_until(1000);
  const LinkTime reported = pair.a.link.peer_activity_at();
  pair.run_until(reported + 200);
  pair.b.link.send_grant({26, 1, 1}, pair.b);
  pair.run_for(10);
  pair.b_deaf = true;
  pair.network.cut(2, 5, pair.now);
  pair.run_for(310);
  EXPECT_EQ(origin_text(pair.a.failure),
            "rank 5 lost: connection closed; last frame 0.3 s ago; last status 0.5 s ago: between "
            "steps, 25 done");
}

// A process that was stopped receives before it declares others silent: their abort names the right
// rank.
TEST(Link, ARankThatWasStoppedBelievesTheOthers) {
  Pair pair;
  pair.run_until(1000);
  pair.b_deaf = true;
  std::vector<std::byte> words =
      encode_origin({.rank = 5, .cause = Cause::silent, .limit_ms = 3000});
  pair.run_until(1100);
  pair.b.now = 9000;
  pair.b.link.tick(9000, pair.b);
  EXPECT_EQ(pair.b.failures, 0);
  FrameHeader h;
  h.kind = FrameKind::abort;
  h.incarnation = 4;
  h.source = 2;
  h.destination = 5;
  h.total = h.length = static_cast<uint32_t>(words.size());
  std::vector<std::byte> frame(kHeaderBytes);
  encode_header(h, words, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  frame.insert(frame.end(), words.begin(), words.end());
  pair.b.link.received(Lane::control, frame, 9001, pair.b);
  EXPECT_EQ(pair.b.failure.rank, 5);
  EXPECT_EQ(origin_text(pair.b.failure), "rank 5 lost: silent for 3 s");
}

TEST(Link, WhatTheTransportSaysOfALossIsTold) {
  Pair pair;
  pair.why = "out of memory for a frame";
  pair.run_until(1000);
  pair.network.cut(2, 5, 1000);
  pair.run_until(1300);
  EXPECT_EQ(origin_text(pair.a.failure).substr(0, 40), "rank 5 lost: out of memory for a frame; ");

  SimNetwork network(1, {});
  Side alone(2, 5, identity(), network);
  alone.last_try = "no process listens there";
  alone.link.start(0);
  alone.link.tick(10000, alone);
  EXPECT_EQ(origin_text(alone.failure),
            "rank 5 did not connect within 10 s (no process listens there)");
}

TEST(Link, ADisconnectIsASuspicionFor300ms) {
  Pair pair;
  pair.run_until(1000);
  pair.network.cut(2, 5, 1000);
  pair.run_until(1299);
  EXPECT_EQ(pair.a.failures, 0);
  pair.run_until(1300);
  EXPECT_EQ(pair.a.failures, 1);
  EXPECT_EQ(pair.a.failure.rank, 5);
  EXPECT_EQ(origin_text(pair.a.failure).substr(0, 32), "rank 5 lost: connection closed; ");
  EXPECT_TRUE(pair.a.link.is_dead());
}

TEST(Link, AnAbortNamesItsOriginAndIsAcknowledged) {
  Pair pair(1, {.latency = 20});
  pair.run_until(1000);
  const Origin origin{.rank = 7, .code = Code::user, .detail = "op 'mine' returned -3"};
  pair.a.link.abort(origin, pair.now, pair.a);
  EXPECT_FALSE(pair.a.link.is_dead());
  pair.run_until(1041);
  EXPECT_EQ(pair.b.failure, origin);
  EXPECT_TRUE(pair.b.aborted);
  EXPECT_TRUE(pair.b.link.is_dead());
  EXPECT_TRUE(pair.a.link.is_dead());  // it was received
  EXPECT_EQ(pair.a.failures, 0);       // its owner knows
}

// A rank may fail before another one has connected to it.
TEST(Link, APeerThatConnectsAfterTheFailureIsTold) {
  Pair pair(1, {.latency = 100});
  const Origin origin{.rank = 7, .code = Code::user};
  pair.a.link.abort(origin, 0, pair.a);
  pair.run_until(1000);
  EXPECT_EQ(pair.b.failure, origin);
  EXPECT_TRUE(pair.a.link.is_dead());
  EXPECT_TRUE(pair.b.link.is_dead());
}

TEST(Link, AnAbortThatNobodyHearsLingers300ms) {
  Pair pair;
  pair.run_until(1000);
  pair.b_deaf = true;
  pair.a.link.abort({.rank = 2, .code = Code::user}, 1000, pair.a);
  pair.run_until(1299);
  EXPECT_FALSE(pair.a.link.is_dead());
  pair.run_until(1300);
  EXPECT_TRUE(pair.a.link.is_dead());
}

TEST(Link, TwoAbortsThatCrossEndBothSides) {
  Pair pair(1, {.latency = 20});
  pair.run_until(1000);
  pair.a.link.abort({.rank = 2, .code = Code::user}, 1000, pair.a);
  pair.b.link.abort({.rank = 5, .code = Code::user}, 1000, pair.b);
  pair.run_until(1041);
  EXPECT_TRUE(pair.a.link.is_dead());
  EXPECT_TRUE(pair.b.link.is_dead());
  EXPECT_EQ(pair.a.failures + pair.b.failures, 0);
}

TEST(Link, ByeBothWaysIsAnOrderlyEnd) {
  Pair pair(1, {.latency = 20});
  pair.run_until(1000);
  pair.a.link.bye(1000, pair.a);
  pair.run_until(1025);
  EXPECT_EQ(pair.b.leavings, 1);
  EXPECT_EQ(pair.b.closes, 0);
  pair.b.link.bye(pair.now, pair.b);
  EXPECT_EQ(pair.b.closes, 1);
  pair.run_until(2000);
  EXPECT_EQ(pair.a.closes, 1);
  EXPECT_EQ(pair.a.failures + pair.b.failures, 0);
  EXPECT_TRUE(pair.a.link.is_dead());
  EXPECT_TRUE(pair.b.link.is_dead());
}

// The peer's bye may be lost with its connection, if it received ours and left.
TEST(Link, AConnectionThatEndsAfterByeIsAnOrderlyEnd) {
  Pair pair;
  pair.run_until(1000);
  pair.a.link.bye(1000, pair.a);
  pair.a.link.disconnected("connection closed", 1000, pair.a);
  pair.run_until(10000);
  EXPECT_EQ(pair.a.closes, 1);
  EXPECT_EQ(pair.a.failures, 0);
}

TEST(Link, AByeWithoutAnswerHasADeadline) {
  Pair pair;
  pair.run_until(1000);
  pair.a.link.bye(1000, pair.a);
  pair.run_until(10000);
  EXPECT_EQ(pair.a.failed_at, 6000);
  EXPECT_EQ(origin_text(pair.a.failure), "rank 5 did not answer bye within 5 s");
}

TEST(Link, ARefusedTensorFailsBothEndsWithTheReason) {
  Pair pair;
  pair.run_until(1000);
  pair.b.refuse = true;
  pair.a.send_tensor({1, 2, 3}, pattern(100, 1));
  pair.run_for(100);
  EXPECT_EQ(origin_text(pair.b.failure), "rank 2: no grant for it");
  EXPECT_EQ(pair.b.failure.rank, 2);
  EXPECT_EQ(pair.a.failure, pair.b.failure);
}

// The data lane may lose its last frame and then be silent while heartbeats continue.
TEST(Link, ALostDataFrameIsNoticedWithoutAnother) {
  Pair pair;
  pair.run_until(1000);
  pair.network.set_faults({.lose = 1000000});
  pair.a.send_tensor({1, 2, 3}, pattern(100, 1));
  pair.run_until(1002);
  pair.network.set_faults({});
  pair.run_until(30000);
  EXPECT_EQ(pair.b.failures, 1);
  EXPECT_EQ(origin_text(pair.b.failure),
            "rank 2 lost: 1 data frames did not arrive within 20 s; last frame 0 s ago");
  EXPECT_EQ(pair.b.failure.cause, Cause::missing);
  EXPECT_EQ(pair.b.failure.count, 1);
  EXPECT_LE(pair.b.failed_at, 1000 + 250 + 20000);
  EXPECT_EQ(pair.a.failure, pair.b.failure);
}

TEST(Link, AMessageKeepsTheSizeThatItsFirstPieceSaid) {
  const auto end = [](uint64_t total) {
    Pair pair;
    pair.run_until(10);
    const std::vector<std::byte> bytes = pattern(3 * kMaxPayload, 1);
    for (uint32_t piece = 0; piece < 2; ++piece) {
      FrameHeader h{.kind = FrameKind::message, .incarnation = 4, .edge = 16, .piece = piece};
      h.source = 5;
      h.destination = 2;
      h.sequence = 2 + piece;
      h.length = kMaxPayload;
      h.total = piece == 0 ? bytes.size() : total;
      const auto payload = std::span(bytes).subspan(piece * kMaxPayload, kMaxPayload);
      std::vector<std::byte> frame(kHeaderBytes);
      encode_header(h, payload, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
      frame.insert(frame.end(), payload.begin(), payload.end());
      pair.a.link.received(Lane::control, frame, 10, pair.a);
    }
    EXPECT_EQ(pair.a.messages.size(), 0u);
    return pair.a.failures > 0 ? origin_text(pair.a.failure) : "";
  };
  EXPECT_EQ(end(3 * kMaxPayload), "");
  EXPECT_EQ(
      end(2 * kMaxPayload),
      "rank 5: piece 1 of a message of 2097152 bytes, expected 3145728 as in its first piece");
}

TEST(Link, AFrameOfAnotherIncarnationRankOrLaneIsRefused) {
  auto refusal = [](auto change, Lane lane) {
    Pair pair;
    pair.run_until(10);
    FrameHeader h;
    h.kind = FrameKind::grant;
    h.incarnation = 4;
    h.source = 5;
    h.destination = 2;
    h.sequence = 2;
    change(h);
    std::array<std::byte, kHeaderBytes> frame;
    encode_header(h, {}, frame);
    pair.a.link.received(lane, frame, 10, pair.a);
    EXPECT_EQ(pair.a.failures, 1);
    EXPECT_EQ(pair.a.failure.code, Code::protocol);
    return origin_text(pair.a.failure);
  };
  EXPECT_EQ(refusal([](FrameHeader& h) { h.incarnation = 3; }, Lane::control),
            "rank 5: frame of another incarnation, 3");
  EXPECT_EQ(refusal([](FrameHeader& h) { h.source = 1; }, Lane::control),
            "rank 5: frame from rank 1 to rank 2, expected 5 to 2");
  EXPECT_EQ(refusal([](FrameHeader&) {}, Lane::data), "rank 5: grant frame on the data lane");
  EXPECT_EQ(refusal([](FrameHeader& h) { h.sequence = 3; }, Lane::control),
            "rank 5: grant frame 3 of the control lane, expected 2: frames are lost");
  EXPECT_EQ(refusal([](FrameHeader& h) { h.sequence = 1; }, Lane::control),
            "rank 5: grant frame 1 of the control lane, expected 2: a frame is repeated");
  EXPECT_EQ(refusal([](FrameHeader& h) { h.kind = FrameKind::abort_ack; }, Lane::control),
            "rank 5: abort-ack frame, but nothing was aborted");
  EXPECT_EQ(refusal([](FrameHeader& h) { h.kind = FrameKind::hello; }, Lane::control),
            "rank 5: hello frame after a hello");
  EXPECT_EQ(refusal([](FrameHeader& h) { h.kind = FrameKind::abort; }, Lane::control),
            "rank 5: a failure of 0 bytes, which its fields do not fill");
}

}  // namespace
}  // namespace weft::test
