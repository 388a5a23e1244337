// What every transport promises about the end of a connection.
#include <sys/stat.h>

#include <algorithm>

#include "child.h"
#include "conformance.h"

namespace weft::test {
namespace {

// Turns the loops of both ends until they are connected.
bool connects(Net& dials, const End& dialed, Net& listens) {
  const auto connected = [&] {
    return dialed.times_connected == 1 && listens.accepted.size() == 1;
  };
  for (int turn = 0; turn < 20000 && !connected(); ++turn)
    if (!dials.until(connected, 1)) listens.until(connected, 1);
  return connected();
}

TEST_P(Conformance, TheOtherEndHearsOfADestroyedConnection) {
  Net net(scheme());
  auto [dialed, accepted] = connect(net);
  dialed.reset();
  ASSERT_TRUE(net.until([a = accepted] { return a->times_disconnected == 1; }, 1000));
  EXPECT_FALSE(accepted->why.empty());
  accepted->send(0, 1);  // into the void

  auto again = connect(net);
  again.accepted->connection.reset();
  ASSERT_TRUE(net.until([&] { return again.dialed->times_disconnected == 1; }, 1000));
  EXPECT_EQ(again.dialed->why, "the peer closed the connection");
  EXPECT_FALSE(net.until(
      [&] { return again.dialed->times_connected > 1 || again.dialed->times_disconnected > 1; },
      150))
      << "retried in hiding";
}

TEST_P(Conformance, AKilledPeerIsReportedWithinASecond) {
  {
    Net net(scheme());
    ASSERT_TRUE(net.listen(place()).ok());
    Child child("dial", net.listener->endpoint());
    ASSERT_TRUE(
        net.until([&] { return net.accepted.size() == 1 && net.accepted[0]->frames.size() == 1; }));
    child.kill_now();
    EXPECT_TRUE(net.until([&] { return net.accepted[0]->times_disconnected == 1; }, 1000));
  }
  Net net(scheme());
  // What a killed listener leaves is not the test's concern: it gets a directory of its own.
  const std::string own = directory_ / "child";
  mkdir(own.c_str(), 0700);
  {
    Child child("listen", is_ipc() ? "ipc://" + own + "/socket" : place());
    auto dialed = net.dial(child.read_line());
    ASSERT_TRUE(net.until([&] { return dialed->times_connected == 1; }));
    child.kill_now();
    EXPECT_TRUE(net.until([&] { return dialed->times_disconnected == 1; }, 1000));
  }
  if (is_ipc()) {  // and what it left does not keep the next one from listening
    const Status status = net.listen("ipc://" + own + "/socket");
    EXPECT_TRUE(status.ok()) << status.text();
    net.listener.reset();
  }
  std::filesystem::remove(own);
}

TEST_P(Conformance, CloseAfterDeliversWhatWasSent) {
  for (const bool dialer_closes : {true, false}) {
    Net net(scheme());
    auto [dialed, accepted] = connect(net);
    End& from = dialer_closes ? *dialed : *accepted;
    End& to = dialer_closes ? *accepted : *dialed;
    const auto sent = bytes_of(kMaxPayload, 9);
    auto payload = sent;
    for (uint32_t i = 0; i < 40; ++i) from.send(1, i, payload, i + 1);
    from.send(0, 77);
    from.connection->close_after(5000);
    std::fill(payload.begin(), payload.end(), std::byte{0});  // copied
    from.connection.reset();
    ASSERT_TRUE(net.until([&] { return to.times_disconnected == 1; }));
    EXPECT_EQ(to.frames.size(), 41u);
    for (const End::Frame& frame : to.frames)
      EXPECT_TRUE(frame.lane == 0 || same(frame.payload, sent));
    EXPECT_EQ(from.times_disconnected, 0);
    EXPECT_TRUE(from.tokens.empty());
  }
}

TEST_P(Conformance, CloseAfterReportsTheEnd) {
  constexpr int64_t kLong = 600'000;
  for (const bool dialer_closes : {true, false}) {
    for (const bool other_closes : {true, false}) {
      Net net(scheme());
      auto [dialed, accepted] = connect(net);
      End& from = dialer_closes ? *dialed : *accepted;
      End& to = dialer_closes ? *accepted : *dialed;
      from.send(1, 5);
      from.connection->close_after(kLong);
      if (other_closes) to.connection->close_after(kLong);
      EXPECT_EQ(from.times_closed + to.times_closed, 0);  // not from within the call
      ASSERT_TRUE(net.until([&] { return from.times_closed == 1; }));
      ASSERT_TRUE(net.until([&] { return to.times_closed + to.times_disconnected == 1; }));
      EXPECT_EQ(to.times_closed, other_closes);
      if (!other_closes) {
        EXPECT_EQ(to.frames.size(), 1u);
      }
      EXPECT_EQ(from.times_disconnected, 0);
    }
  }
}

// The listener's queues are full when it reads the end.
TEST_P(Conformance, CloseAfterReportsTheEndAlthoughThePeerIsSending) {
  Net listens(scheme()), dials(scheme());
  ASSERT_TRUE(listens.listen(place()).ok());
  auto dialed = dials.dial(listens.listener->endpoint());
  ASSERT_TRUE(connects(dials, *dialed, listens));
  End& accepted = *listens.accepted[0];
  const auto payload = bytes_of(kMaxPayload, 3);
  for (uint32_t i = 1; i <= 64; ++i) accepted.send(1, i, payload, i);
  listens.until([&] { return accepted.tokens.size() == 64; }, 200);
  EXPECT_LT(accepted.tokens.size(), 64u);
  dialed->connection->close_after(600'000);
  for (int turn = 0; turn < 20000 && dialed->times_closed == 0; ++turn)
    if (!dials.until([&] { return dialed->times_closed == 1; }, 1))
      listens.until([] { return false; }, 1);
  EXPECT_EQ(dialed->times_closed, 1);
  EXPECT_EQ(accepted.times_disconnected, 1);
}

TEST_P(Conformance, CloseAfterReportsTheEndWithoutAnAnswer) {
  const std::string own = directory_ / "child";  // a killed listener leaves its files
  std::filesystem::create_directory(own);
  Child child("listen", is_ipc() ? "ipc://" + own : place());
  const std::string endpoint = child.read_line();
  Net net(scheme());
  const auto one = net.dial(endpoint), other = net.dial(endpoint);
  ASSERT_TRUE(net.until([&] { return one->times_connected + other->times_connected == 2; }));
  child.stop_now();
  one->connection->close_after(1);
  EXPECT_TRUE(net.until([&] { return one->times_closed == 1; }));
  other->connection->close_after(600'000);
  child.kill_now();
  EXPECT_TRUE(net.until([&] { return other->times_closed == 1; }));
  const auto nobody = net.dial(endpoint);
  nobody->connection->close_after(600'000);
  EXPECT_TRUE(net.until([&] { return nobody->times_closed == 1; }));
  std::filesystem::remove_all(own);
}

TEST_P(Conformance, CloseAfterDeliversAlthoughTheTransportEnds) {
  for (const bool dialer_closes : {true, false}) {
    Net stays(scheme()), goes(scheme());
    Net& listens = dialer_closes ? stays : goes;
    ASSERT_TRUE(listens.listen(place()).ok());
    auto dialed = (dialer_closes ? goes : stays).dial(listens.listener->endpoint());
    ASSERT_TRUE(connects(dialer_closes ? goes : stays, *dialed, listens));
    End& from = dialer_closes ? *dialed : *listens.accepted[0];
    End& to = dialer_closes ? *listens.accepted[0] : *dialed;
    from.send(0, 5);
    from.connection->close_after(2000);
    from.connection.reset();
    goes.listener.reset();
    goes.transport.reset();
    ASSERT_TRUE(stays.until([&] { return to.times_disconnected == 1; }));
    ASSERT_EQ(to.frames.size(), 1u);
    EXPECT_EQ(to.frames[0].number, 5u);
    dialed.reset();
  }
}

}  // namespace
}  // namespace weft::test
