// Authentication over tcp: unknown clients, wrong keys and peers without encryption are refused on
// both ends with a reason, within seconds, and healthy peers are not affected.
#include "runtime/keys.h"

#include <algorithm>

#include "zmq_peer.h"

namespace weft::test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HAS(text, part) EXPECT_PRED2(has, text, part)

// A listener with a healthy peer.
class Keys : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(net_.listen("tcp://127.0.0.1:0").ok());
    healthy_ = net_.dial(endpoint());
    ASSERT_TRUE(
        net_.until([&] { return healthy_->times_connected == 1 && net_.accepted.size() == 1; }));
  }
  std::string endpoint() const { return net_.listener->endpoint(); }
  // The error of the dialer within seconds, and the reason that the listener records.
  void expect_refused(End& end, Net& net, const std::string& why,
                      std::initializer_list<std::string> refusals) {
    EXPECT_TRUE(net_.until(
        [&] { return net.until([&] { return end.times_disconnected == 1; }, 1); }, 8000));
    EXPECT_EQ(end.times_connected, 0);
    EXPECT_HAS(end.why, why);
    expect_recorded(refusals);
  }
  // Only these reasons, and no effect on another peer.
  void expect_recorded(std::initializer_list<std::string> refusals) {
    EXPECT_TRUE(net_.until([&] { return !net_.refused.empty(); }));
    for (const auto& [peer, said] : net_.refused)
      EXPECT_NE(std::find(refusals.begin(), refusals.end(), said), refusals.end()) << said;
    expect_healthy();
  }
  void expect_healthy() {
    const size_t before = net_.accepted[0]->frames.size();
    healthy_->send(0, 1);
    healthy_->send(1, 2, bytes_of(100000, 5));
    EXPECT_TRUE(net_.until([&] { return net_.accepted[0]->frames.size() == before + 2; }));
    EXPECT_EQ(net_.accepted[0]->times_disconnected + healthy_->times_disconnected, 0);
    EXPECT_EQ(net_.accepted.size(), 1u);
  }

  Net net_{"tcp://"};
  std::unique_ptr<End> healthy_;
  const KeyPair stranger_ = KeyPair::make().take();
};

TEST_F(Keys, AKeyThatIsNotAdmittedIsRefused) {
  auto end = net_.dial(endpoint(), test_keys().public_key, stranger_);
  expect_refused(*end, net_, "the listener does not admit this key", {"its key is not admitted"});
}

TEST_F(Keys, AListenerWithAnotherKeyThanExpectedIsAnErrorWithinSeconds) {
  auto end = net_.dial(endpoint(), stranger_.public_key);
  expect_refused(*end, net_, "it has another key than the join line",
                 {"it expects another key here, as in an old join line"});
}

TEST_F(Keys, AListenerWithAnotherKeyThanExpectedIsTriedLessAndLess) {
  auto end = net_.dial(endpoint(), stranger_.public_key);
  EXPECT_TRUE(net_.until([&] { return end->times_disconnected == 1; }, 8000));
  // Of two lanes in 5 s. With a constant interval of 50 to 100 ms, they are more than 100.
  EXPECT_GE(net_.refused.size(), 10u);
  EXPECT_LE(net_.refused.size(), 40u);
}

TEST_F(Keys, AListenerThatIsTriedSlowlyIsConnectedWhenItIsTheRightOne) {
  const auto until = [this](Net& other, const auto& condition) {
    for (int ms = 0; ms < 10000 && !condition(); ms += 2) {
      net_.until(condition, 1);
      other.until(condition, 1);
    }
    return condition();
  };
  std::string place;
  std::unique_ptr<End> end;
  {
    Net wrong("tcp://", false, stranger_);
    ASSERT_TRUE(wrong.listen("tcp://127.0.0.1:0").ok());
    place = wrong.listener->endpoint();
    end = net_.dial(place);
    ASSERT_TRUE(until(wrong, [&] { return wrong.refused.size() >= 12; }));
  }
  Net right("tcp://");
  ASSERT_TRUE(right.listen(place).ok());
  ASSERT_TRUE(until(right, [&] { return end->times_connected == 1; })) << end->why;
  ASSERT_EQ(right.accepted.size(), 1u);
  end->send(0, 7);
  EXPECT_TRUE(until(right, [&] { return !right.accepted[0]->frames.empty(); }));
}

TEST_F(Keys, APeerWithoutEncryptionIsRefusedAndTold) {
  Net open("tcp://", true);
  auto end = open.dial(endpoint());
  // Who detects the difference first closes the connection; the other one may get no answer.
  const auto is_reported = [&] {
    return end->times_disconnected == 1
               ? has(end->why, "the listener encrypts")
               : has(end->connection->trouble(), "as if it encrypts: expected its join line");
  };
  EXPECT_TRUE(net_.until([&] { return open.until(is_reported, 1); }, 8000)) << end->why;
  EXPECT_EQ(end->times_connected, 0);
  expect_recorded(
      {"it does not encrypt: expected the join line, and no --insecure",
       "not a weft connection: expected ZeroMQ's handshake, which did not arrive within 2 "
       "s or before the end"});
}

TEST(KeysWithoutEncryption, APeerThatEncryptsIsRefusedAndTold) {
  Net net("tcp://", true), other("tcp://");
  ASSERT_TRUE(net.listen("tcp://127.0.0.1:0").ok());
  auto end = other.dial(net.listener->endpoint());
  EXPECT_TRUE(net.until(
      [&] { return other.until([&] { return end->times_disconnected == 1; }, 1); }, 8000));
  EXPECT_HAS(end->why, "runs with --insecure, or is not weft");
  EXPECT_TRUE(net.until([&] { return !net.refused.empty(); }));
}

// Another rank may dial a rank before that rank knows the admitted keys.
// The listener keeps the request, so that no handshake fails.
TEST(KeysThatAreNotKnownYet, AreWaitedFor) {
  for (int i = 0; i < 20; ++i) {
    Net net("tcp://", false, test_keys(), true, false);
    ASSERT_TRUE(net.listen("tcp://127.0.0.1:0").ok());
    auto early = net.dial(net.listener->endpoint());
    net.until([] { return false; }, 10);  // also without, or with a part of this wait
    net.transport->admit({test_keys().public_key});
    ASSERT_TRUE(net.until([&] { return early->times_connected == 1 && net.accepted.size() == 1; }));
    EXPECT_EQ(early->connection->trouble(), "");
    EXPECT_TRUE(net.refused.empty());
  }
}

TEST(KeysThatAreNotKnownYet, AreTriedAgainIfTheyTakeLong) {
  const KeyPair stranger = KeyPair::make().take();
  Net net("tcp://", false, test_keys(), true, false);
  ASSERT_TRUE(net.listen("tcp://127.0.0.1:0").ok());
  auto early = net.dial(net.listener->endpoint(), test_keys().public_key, stranger);
  ASSERT_TRUE(net.until([&] {
    return early->connection->trouble().starts_with("the listener closes connections before");
  }));
  EXPECT_EQ(early->times_disconnected, 0);
  net.transport->admit({stranger.public_key});
  ASSERT_TRUE(net.until([&] { return early->times_connected == 1 && net.accepted.size() == 1; }));
  ASSERT_NE(net.accepted[0]->connection->key(), nullptr);
  EXPECT_EQ(*net.accepted[0]->connection->key(), stranger.public_key);
  ASSERT_NE(early->connection->key(), nullptr);
  EXPECT_EQ(*early->connection->key(), test_keys().public_key);
  EXPECT_TRUE(net.refused.empty()) << net.refused[0].second;
}

TEST(KeysThatAreNotKnownYet, AreAnsweredInTimeAlthoughOthersCome) {
  Net net("tcp://", false, test_keys(), true, false);
  ASSERT_TRUE(net.listen("tcp://127.0.0.1:0").ok());
  std::vector<std::unique_ptr<End>> early;
  for (int i = 0; i < 7; ++i) {
    early.push_back(net.dial(net.listener->endpoint()));
    net.until([] { return false; }, 400);  // less than a request is held
  }
  EXPECT_TRUE(net.refused.empty()) << net.refused[0].second;  // after 2 s without an answer
}

TEST_F(Keys, NobodyIsAdmittedAnyMoreWhenOthersAre) {
  net_.transport->admit({stranger_.public_key});
  auto late = net_.dial(endpoint());
  expect_refused(*late, net_, "the listener does not admit this key", {"its key is not admitted"});
}

TEST_F(Keys, BothLanesOfAPeerProveTheSameKey) {
  net_.transport->admit({test_keys().public_key, stranger_.public_key});
  ZmqPeer peer(endpoint(), 18, {&test_keys(), &stranger_});
  peer.hello();
  EXPECT_TRUE(net_.until([&] { return !net_.refused.empty(); }));
  EXPECT_EQ(net_.refused.at(0).second, "its key was not proved");
  expect_healthy();
}

// Without an authenticator ZeroMQ admits all clients.
TEST(KeysOfATransport, NobodyIsAdmittedBeforeItIsSaidWhoIs) {
  auto loop = Loop::make().take();
  Net net("tcp://");
  net.transport->admit({});
  ASSERT_TRUE(net.listen("tcp://127.0.0.1:0").ok());
  auto end = net.dial(net.listener->endpoint());
  ASSERT_TRUE(net.until([&] { return end->times_disconnected == 1; }));
  EXPECT_TRUE(net.accepted.empty());
}

// Two meshes of one process with different keys, and a host that encrypts with ZeroMQ and
// authenticates its own connections.
TEST(KeysOfATransport, AreItsOwn) {
  void* const context = zmq_ctx_new();
  void* const zap = zmq_socket(context, ZMQ_REP);
  ASSERT_EQ(zmq_bind(zap, "inproc://zeromq.zap.01"), 0);
  const KeyPair other = KeyPair::make().take();
  {
    Net one("tcp://"), two("tcp://", false, other);
    two.transport->admit({other.public_key});
    ASSERT_TRUE(one.listen("tcp://127.0.0.1:0").ok());
    ASSERT_TRUE(two.listen("tcp://127.0.0.1:0").ok());
    auto first = one.dial(one.listener->endpoint()),
         second = two.dial(two.listener->endpoint(), other.public_key, other);
    auto wrong = two.dial(one.listener->endpoint(), test_keys().public_key, other);
    const auto done = [&] {
      return first->times_connected == 1 && second->times_connected == 1 &&
             wrong->times_disconnected == 1;
    };
    ASSERT_TRUE(one.until([&] { return two.until(done, 1); }, 8000));
  }
  zmq_msg_t message;
  zmq_msg_init(&message);
  EXPECT_EQ(zmq_msg_recv(&message, zap, ZMQ_DONTWAIT), -1)
      << "the host was asked who may connect to weft";
  zmq_msg_close(&message);
  zmq_close(zap);
  zmq_ctx_term(context);
}

TEST(KeyTexts, AreReadAsTheyAreWritten) {
  const KeyPair server = KeyPair::make().take(), candidate = KeyPair::make().take();
  const std::string text = join_text("tcp://h:1", server.public_key, candidate.secret);
  const auto read = parse_join(text);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read.value().endpoint, "tcp://h:1");
  EXPECT_EQ(*read.value().server, server.public_key);
  EXPECT_EQ(read.value().candidate->public_key, candidate.public_key);
  const auto known = parse_join("tcp://h:1?key=" + key_text(server.public_key));
  ASSERT_TRUE(known.ok()) << known.status().text();
  EXPECT_FALSE(known.value().candidate.has_value());
  EXPECT_EQ(parse_join("ipc:///a?key=b").value().endpoint, "ipc:///a?key=b");
  EXPECT_EQ(parse_join("h:1" + text.substr(text.find('?'))).value().endpoint, "h:1");
  for (const std::string& wrong :
       {text + "0", text.substr(0, text.size() - 1), text.substr(0, text.size() - 1) + "G",
        text + "&x=1", std::string("tcp://h:1?"),
        std::string("tcp://h:1?kex=") + key_text(server.public_key)}) {
    const auto refused = parse_join(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_HAS(refused.status().text(), "'tcp://h:1?key=...'");
    EXPECT_FALSE(has(refused.status().text(), key_text(candidate.secret.bytes()).substr(0, 8)))
        << refused.status().text();
  }
}

TEST(KeyTexts, OfThoseWhoMayJoinAreOnePerLine) {
  const KeyPair one = KeyPair::make().take(), two = KeyPair::make().take();
  const auto read = parse_allowed("# mine\n" + key_text(one.public_key) + " machine b\r\n\n  " +
                                  key_text(two.public_key));
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read.value(), (std::vector<PublicKey>{one.public_key, two.public_key}));
  const auto wrong = parse_allowed("\n" + key_text(one.public_key) + "0\n");
  ASSERT_FALSE(wrong.ok());
  EXPECT_HAS(wrong.status().text(), "line 2 of the allowed keys");
}

}  // namespace
}  // namespace weft::test
