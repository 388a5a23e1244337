// What every transport promises while a connection lasts. This program is also the other process of
// some tests.
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "child.h"
#include "conformance.h"

namespace weft::test {

int child_main(const std::string& role, const std::string& endpoint) {
  Net net(endpoint);
  std::unique_ptr<End> end;
  if (role == "dial") {
    end = net.dial(endpoint);
    end->send(0, 1);
  } else {
    if (!net.listen(endpoint).ok()) return 1;
    const std::string line = net.listener->endpoint() + "\n";
    if (write(1, line.data(), line.size()) < 0) return 1;
  }
  if (role == "answer") {
    net.until([&] { return net.accepted.size() == 1 && net.accepted[0]->frames.size() == 1; });
    net.accepted.at(0)->send(1, 5);
    net.accepted[0]->connection->close_after(5000);
    return 0;
  }
  net.until([] { return false; }, 60000);  // to be killed long before
  return 0;
}

namespace {

constexpr Row kRows[] = {
    {"tcp", "tcp://", nullptr},
    {"tcp_without_encryption", "tcp://", kInsecure},
    {"ipc", "ipc://", nullptr},
    {"ipc_without_shared_memory", "ipc://", kSocketsOnly},
};
std::string row_name(const testing::TestParamInfo<Row>& row) { return row.param.name; }
INSTANTIATE_TEST_SUITE_P(, Conformance, testing::ValuesIn(kRows), row_name);

TEST_P(Conformance, ExchangesOnBothLanes) {
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  const auto payload = bytes_of(1000, 7);
  for (End* end : {dialed.get(), accepted}) {
    end->send(0, 10, payload);
    end->send(1, 11);
  }
  for (End* end : {dialed.get(), accepted}) {
    ASSERT_TRUE(net.until([e = end] { return e->frames.size() == 2; }));
    const bool control_first = end->frames[0].lane == 0;
    EXPECT_EQ(end->frames[control_first ? 0 : 1].payload, payload);
    EXPECT_EQ(end->frames[control_first ? 1 : 0].number, 11u);
    EXPECT_EQ(end->frames[control_first ? 1 : 0].lane, 1);
  }
  EXPECT_EQ(accepted->times_connected, 0);
}

TEST_P(Conformance, FramesSentBeforeTheConnectionWaitForIt) {
  Net net(scheme());
  ASSERT_TRUE(net.listen(place()).ok());
  auto dialed = net.dial(net.listener->endpoint());
  for (uint32_t i = 0; i < 40; ++i) dialed->send(1, i);
  ASSERT_TRUE(
      net.until([&] { return net.accepted.size() == 1 && net.accepted[0]->frames.size() == 40; }));
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(net.accepted[0]->frames[i].number, i);
}

TEST_P(Conformance, ADialerWaitsForAListener) {
  Net net(scheme());
  std::string endpoint;
  {
    Net other(scheme());  // a place where somebody listened
    ASSERT_TRUE(other.listen(place()).ok());
    endpoint = other.listener->endpoint();
  }
  if (is_ipc()) endpoint = "ipc://" + directory_ / "late";
  auto dialed = net.dial(endpoint);
  EXPECT_FALSE(
      net.until([&] { return dialed->times_connected + dialed->times_disconnected > 0; }, 120));
  ASSERT_TRUE(net.listen(endpoint).ok());
  EXPECT_TRUE(net.until([&] { return dialed->times_connected == 1; }));
  EXPECT_EQ(dialed->times_disconnected, 0);
}

TEST_P(Conformance, TenThousandSmallFramesBothWaysInOrder) {
  constexpr uint32_t kFrames = 10000;
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  for (uint32_t i = 0; i < kFrames; ++i)
    for (End* end : {dialed.get(), accepted})
      end->send(static_cast<int>(i % 2), i, {}, i % 1000 == 0 ? i + 1 : 0);
  for (End* end : {dialed.get(), accepted}) {
    ASSERT_TRUE(net.until(
        [e = end] { return e->frames.size() == kFrames && e->tokens.size() == kFrames / 1000; }));
    uint32_t next[kLanes] = {0, 1};
    for (const End::Frame& frame : end->frames) {
      EXPECT_EQ(frame.number, next[frame.lane]);
      next[frame.lane] += 2;
    }
  }
}

TEST_P(Conformance, LargestFramesBothWays) {
  constexpr uint32_t kFrames = 64;
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  const auto payload = bytes_of(kMaxPayload, 3);
  for (uint32_t i = 0; i < kFrames; ++i)
    for (End* end : {dialed.get(), accepted}) end->send(1, i, payload, i + 1);
  EXPECT_TRUE(dialed->tokens.empty()) << "told from inside send";
  for (End* end : {dialed.get(), accepted}) {
    ASSERT_TRUE(net.until(
        [e = end] { return e->frames.size() == kFrames && e->tokens.size() == kFrames; }));
    for (uint32_t i = 0; i < kFrames; ++i) {
      EXPECT_EQ(end->frames[i].number, i);
      EXPECT_TRUE(same(end->frames[i].payload, payload)) << i;
      EXPECT_EQ(end->tokens[i], i + 1);
    }
  }
}

TEST_P(Conformance, PayloadsWithoutATokenAreCopiedAtOnce) {
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  auto payload = bytes_of(5000, 1);
  dialed->send(1, 1, payload);
  std::fill(payload.begin(), payload.end(), std::byte{0});
  ASSERT_TRUE(net.until([a = accepted] { return a->frames.size() == 1; }));
  EXPECT_TRUE(accepted->frames[0].payload == bytes_of(5000, 1));
}

TEST_P(Conformance, WhatIsForgottenIsNotReadAnyMore) {
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  constexpr uint32_t kFrames = 400;
  {
    const auto borrowed = bytes_of(kMaxPayload, 1);  // gone when the rest leaves
    for (uint32_t i = 0; i < kFrames; ++i) dialed->send(1, i, borrowed, i + 1);
    ASSERT_TRUE(net.until([&d = *dialed] { return !d.tokens.empty(); }));
    dialed->connection->forget();
  }
  dialed->send(0, kFrames);  // the connection is as good as before
  dialed->send(1, kFrames);
  const auto is_later = [](const End::Frame& frame) { return frame.number == kFrames; };
  ASSERT_TRUE(net.until([a = accepted, is_later] {
    return std::count_if(a->frames.begin(), a->frames.end(), is_later) == 2;
  }));
  EXPECT_LT(accepted->frames.size(), kFrames);
  const auto sent = bytes_of(kMaxPayload, 1);
  for (const End::Frame& frame : accepted->frames)
    EXPECT_TRUE(is_later(frame) || frame.payload == sent);
}

// Its requests would fill the memory of the end that answers them.
TEST_P(Conformance, APeerThatDoesNotReadIsLost) {
  Net net(scheme());
  Net dials(scheme());
  ASSERT_TRUE(net.listen(place()).ok());
  const auto dialed = dials.dial(net.listener->endpoint());
  for (int turn = 0; turn < 20000 && dialed->times_connected == 0; ++turn)
    if (!dials.until([&] { return dialed->times_connected == 1; }, 1))
      net.until([&] { return !net.accepted.empty(); }, 1);
  ASSERT_EQ(dialed->times_connected, 1);
  const auto payload = bytes_of(kMaxPayload, 3);
  for (uint32_t i = 0; i < 100; ++i) dialed->send(0, i, payload);
  EXPECT_FALSE(dials.until([&] { return dialed->times_disconnected == 1; }, 20))
      << "a long message is too much";
  for (uint32_t i = 100; i < 400; ++i) dialed->send(0, i, payload);
  ASSERT_TRUE(dials.until([&] { return dialed->times_disconnected == 1; }));
  EXPECT_EQ(dialed->why, "the peer does not read");
}

TEST_P(Conformance, ManyPeersAtOneListener) {
  Net net(scheme());
  std::vector<Pair> pairs;
  for (int i = 0; i < 5; ++i) pairs.push_back(connect(net));
  for (uint32_t i = 0; i < 5; ++i) pairs[i].accepted->send(0, 100 + i);
  pairs[2].dialed.reset();
  ASSERT_TRUE(net.until([&] { return pairs[2].accepted->times_disconnected == 1; }));
  for (uint32_t i = 0; i < 5; ++i) {
    if (i == 2) continue;
    EXPECT_TRUE(net.until([&] { return pairs[i].dialed->frames.size() == 1; }));
    EXPECT_EQ(pairs[i].dialed->frames.at(0).number, 100 + i);
    EXPECT_EQ(pairs[i].accepted->times_disconnected, 0);
  }
}

TEST_P(Conformance, WhatCameBeforeALossIsDeliveredAlthoughTheLoopWasBusy) {
  Child child("answer", place());
  Net net(scheme());
  auto dialed = net.dial(child.read_line());
  ASSERT_TRUE(net.until([&] { return dialed->times_connected == 1; }));
  const int descriptors = open_descriptors();
  dialed->send(0, 1, {}, 1);
  ASSERT_TRUE(net.until([&] { return dialed->tokens.size() == 1; }));
  // The loop does not turn while the child answers and goes, and ZeroMQ closes the connections of
  // both lanes.
  while (open_descriptors() > descriptors - kLanes) std::this_thread::yield();
  ASSERT_TRUE(net.until([&] { return dialed->times_disconnected == 1; }));
  ASSERT_EQ(dialed->frames.size(), 1u);
  EXPECT_EQ(dialed->frames[0].number, 5u);
  EXPECT_EQ(dialed->why, "the peer closed the connection");
  // It removes its address after its connections.
  EXPECT_EQ(child.wait(), 0);
}

TEST_P(Conformance, AConnectionMayBeDestroyedByItsOwnEvents) {
  Net net(scheme());
  auto first = connect(net);
  first.accepted->on_frame = [&](const End::Frame&) { first.accepted->connection.reset(); };
  for (uint32_t i = 0; i < 5; ++i) first.dialed->send(1, i);
  first.dialed->on_loss = [&] { first.dialed->connection.reset(); };
  ASSERT_TRUE(net.until([&] { return first.dialed->times_disconnected == 1; }));
  EXPECT_EQ(first.accepted->frames.size(), 1u);
  auto second = connect(net);
  second.dialed->on_frame = [&](const End::Frame&) { second.dialed->connection.reset(); };
  for (uint32_t i = 0; i < 5; ++i) second.accepted->send(1, i);
  ASSERT_TRUE(net.until([&] { return second.accepted->times_disconnected == 1; }));
  EXPECT_EQ(second.dialed->frames.size(), 1u);
}

TEST_P(Conformance, ASecondListenerIsRefused) {
  Net net(scheme()), other(scheme());
  ASSERT_TRUE(net.listen(is_ipc() ? "ipc://" + directory_ / "one" : place()).ok());
  const Status status = other.listen(net.listener->endpoint());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.text().find(net.listener->endpoint()), std::string::npos) << status.text();
  EXPECT_NE(status.text().find(is_ipc() ? "another listener holds this path" : "the port is taken"),
            std::string::npos)
      << status.text();
  auto dialed = net.dial(net.listener->endpoint());
  EXPECT_TRUE(net.until([&] { return dialed->times_connected == 1; }))
      << "the first one was disturbed";
  // Free again as soon as the listener is gone.
  const std::string endpoint = net.listener->endpoint();
  dialed.reset();
  net.accepted.clear();
  net.listener.reset();
  const Status later = other.listen(endpoint);
  EXPECT_TRUE(is_ipc() ? later.ok() : later.ok() || later.text().find("taken") != std::string::npos)
      << later.text();
}

TEST_P(Conformance, AnEndedListenerAcceptsNoMoreAndKeepsItsPeers) {
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  const std::string endpoint = net.listener->endpoint();
  net.listener.reset();
  dialed->send(1, 4);
  ASSERT_TRUE(net.until([a = accepted] { return a->frames.size() == 1; }));
  auto late = net.dial(endpoint);
  ASSERT_TRUE(net.until([&] {
    return late->times_disconnected == 1 ||
           late->connection->trouble() == "no process listens there";
  }));
  EXPECT_EQ(late->times_connected, 0);
  EXPECT_EQ(net.accepted.size(), 1u);
}

// The other loop echoes; this one blocks now and then for 1.5 ms before it sends, which swallows
// wake-ups.
TEST_P(Conformance, NeverStallsWhenTheLoopWasBusy) {
  std::string endpoint;
  std::unique_ptr<Loop> echo_loop = Loop::make().take();
  std::unique_ptr<Transport> echo =
      make_transport(*echo_loop, scheme(),
                     {.insecure = std::getenv(kInsecure) != nullptr, .own = test_keys()})
          .take();
  echo->admit({test_keys().public_key});
  std::vector<std::unique_ptr<End>> ends;
  auto listener = echo->listen(
      place(),
      [&](std::unique_ptr<Connection> c) {
        ends.push_back(std::make_unique<End>(std::move(c)));
        ends.back()->on_frame = [end = ends.back().get()](const End::Frame& frame) {
          end->send(frame.lane, frame.number);
        };
      },
      [](const std::string& peer, const std::string& why) {
        ADD_FAILURE() << peer << ": " << why;
      });
  ASSERT_TRUE(listener.ok());
  std::thread thread([&] { echo_loop->run(); });
  {
    Net net(scheme());
    auto dialed = net.dial(listener.value()->endpoint());
    ASSERT_TRUE(net.until([&] { return dialed->times_connected == 1; }));
    uint32_t sent = 0;
    Loop::Timer* again = nullptr;
    Loop::Timer busy(*net.loop, [&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(1500);
      while (std::chrono::steady_clock::now() < end) {}
      dialed->send(static_cast<int>(sent % 2), sent);
      ++sent;
      again->start(1);
    });
    again = &busy;
    for (uint32_t burst = 0; burst < 200; ++burst) {
      for (uint32_t i = 0; i <= burst % 4; ++i, ++sent) dialed->send(static_cast<int>(i % 2), sent);
      busy.start(burst % 2);
      const uint32_t wanted = sent;
      ASSERT_TRUE(net.until([&] { return dialed->frames.size() >= wanted; }, 2000))
          << "stalled in burst " << burst;
    }
    busy.stop();
  }
  EXPECT_TRUE(echo_loop->post([&] { ends.clear(); }));
  echo_loop->stop();
  thread.join();
  listener.value().reset();
  echo.reset();
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--child")
    return weft::test::child_main(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
