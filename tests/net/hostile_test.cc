// Invalid endpoints, and peers that are not weft: each is refused with a readable error, or does
// not affect healthy peers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "net/address.h"
#include "support/directory.h"
#include "zmq_peer.h"

static bool chmod_fails = false;

extern "C" int chmod(const char* path, mode_t mode) noexcept {
  if (!chmod_fails) return fchmodat(AT_FDCWD, path, mode, 0);
  errno = EPERM;
  return -1;
}

namespace weft::test {
namespace {

std::string listen_error(const std::string& endpoint) {
  Net net(endpoint.substr(0, 6));
  const Status status = net.listen(endpoint);
  return status.ok() ? "listens" : status.text();
}

std::string dial_error(const std::string& endpoint) {
  Net net(endpoint.substr(0, 6));
  const DialKeys keys{test_keys().public_key, test_keys()};
  auto connection = net.transport->dial(endpoint, &keys);
  return connection.ok() ? "dials" : connection.status().text();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HAS(text, part) EXPECT_PRED2(has, text, part)

TEST(Endpoint, SchemesAreNamed) {
  auto loop = Loop::make().take();
  const auto transport = make_transport(*loop, "udp://", {});
  ASSERT_FALSE(transport.ok());
  EXPECT_EQ(transport.status().code(), Code::invalid);
  EXPECT_EQ(transport.status().text(), "'udp://': unknown scheme, expected tcp:// or ipc://");
  EXPECT_TRUE(make_transport(*loop, "tcp://10.0.0.1:4000", {}).ok());
}

TEST(Endpoint, TcpFormsThatCannotBe) {
  EXPECT_HAS(listen_error("tcp://127.0.0.1"), "expected tcp://HOST:PORT");
  EXPECT_HAS(listen_error("tcp://127.0.0.1:port"), "got 'port'");
  EXPECT_HAS(listen_error("tcp://127.0.0.1:65536"), "expected a port of 0 to 65535");
  EXPECT_HAS(listen_error("tcp://::1:4000"), "in brackets");
  EXPECT_HAS(dial_error("tcp://127.0.0.1:0"), "expected a port of 1 to 65535");
  EXPECT_HAS(dial_error("tcp://*:4000"), "expected a host to dial");
  EXPECT_HAS(dial_error("tcp://no-such-host.invalid:4000"),
             "host 'no-such-host.invalid' cannot be resolved");
  EXPECT_HAS(listen_error("tcp://192.0.2.1:4000"), "this machine does not have this address");
}

TEST(Endpoint, TheNetworkIsListenedAtByName) {
  Net net("tcp://");
  ASSERT_TRUE(net.listen("tcp://0.0.0.0:0").ok());
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  EXPECT_EQ(net.listener->endpoint().rfind(std::string("tcp://") + name + ":", 0), 0u)
      << net.listener->endpoint();
  EXPECT_EQ(listen_error("tcp://*:0"), "listens");
  EXPECT_EQ(listen_error("tcp://localhost:0"), "listens");
}

TEST(Endpoint, ALinkLocalAddressKeepsItsInterface) {
  EXPECT_EQ(resolve("tcp://[fe80::1%lo]:4000").take(), "tcp://[fe80::1%lo]:4000");
  EXPECT_EQ(resolve("tcp://[fe80:0::1%1]:4000").take(), "tcp://[fe80::1%lo]:4000");
}

TEST(Endpoint, ALinkLocalAddressIsListenedAtAndDialed) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::string host;
  for (const ifaddrs* at = list; at && host.empty(); at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET6) continue;
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*at->ifa_addr);
    char text[INET6_ADDRSTRLEN] = "";
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
      host = cat(inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text), "%", at->ifa_name);
  }
  if (host.empty()) GTEST_SKIP() << "no interface has a link-local address";
  Net net("tcp://");
  ASSERT_EQ(net.listen(cat("tcp://[", host, "]:0")).text(), "");
  const auto end = net.dial(net.listener->endpoint());
  ASSERT_TRUE(net.until([&] { return end->times_connected == 1 && net.accepted.size() == 1; }));
  EXPECT_HAS(net.accepted[0]->connection->peer(), host);
  EXPECT_EQ(net.transport->listening_endpoint(net.listener->endpoint()).take(),
            cat("tcp://[", host, "]:0"));
}

TEST(Endpoint, IpcIsNotListenedAtIfOthersCouldDialIt) {
  const test::Directory directory;
  const std::string endpoint = "ipc://" + directory / "socket";
  Net net("ipc://");
  chmod_fails = true;
  EXPECT_HAS(net.listen(endpoint).text(), "cannot be closed to other users");
  chmod_fails = false;
  EXPECT_EQ(net.listen(endpoint).text(), "");  // the first listener is gone
  net.listener.reset();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Endpoint, IpcFormsThatCannotBe) {
  EXPECT_HAS(listen_error("ipc:///nowhere/at/all"), "directory '/nowhere/at/' does not exist");
  EXPECT_HAS(listen_error("ipc://relative"), "expected an absolute path");
  EXPECT_HAS(listen_error("ipc:///tmp/" + std::string(120, 'x')), "may have 107 bytes");
  EXPECT_HAS(dial_error("ipc:///tmp/" + std::string(120, 'x')), "may have 107 bytes");
  EXPECT_HAS(dial_error("ipc://"), "expected an absolute path");
}

TEST(Endpoint, TheFormOfAPeerIsCheckedWithoutItsName) {
  const auto error = [](const std::string& endpoint) {
    return check_peer_endpoint(endpoint, "tcp://127.0.0.1:4000").text();
  };
  for (const char* fine : {"tcp://no-such-host.invalid:4000", "tcp://[::1]:1", "tcp://10.0.0.1:9"})
    EXPECT_EQ(error(fine), "");
  EXPECT_HAS(error("foo"), "expected one that begins with tcp://");
  EXPECT_HAS(error("ipc:///x"), "expected one that begins with tcp://");
  EXPECT_HAS(error("tcp://1.2.3.4:99999"), "got '99999'");
  EXPECT_HAS(error("tcp://1.2.3.4"), "expected tcp://HOST:PORT");
  EXPECT_HAS(error("tcp://" + std::string(300, 'x') + ":1"), "has 308 bytes");
}

TEST(Endpoint, IpcKeepsWhatOthersHavePutThere) {
  const test::Directory directory;
  const std::string path = directory / "socket", link = directory / "link";
  std::ofstream(path) << "precious";
  EXPECT_HAS(listen_error("ipc://" + path), "'" + path + "' exists and is not a socket");
  std::filesystem::create_symlink(path, link);
  EXPECT_HAS(listen_error("ipc://" + link), "'" + link + "' exists and is not a socket");
  std::ofstream(directory / "other.lock") << "precious";
  EXPECT_HAS(listen_error("ipc://" + directory / "other"),
             "other.lock' exists and is not a lock of weft");
  for (const std::string& kept : {path, directory / "other.lock"}) {
    std::string content;
    std::ifstream(kept) >> content;
    EXPECT_EQ(content, "precious") << kept;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string served = directory / "served";
  served.copy(address.sun_path, sizeof address.sun_path - 1);
  for (const int kind : {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM}) {
    const int server = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_TRUE(kind == SOCK_DGRAM || listen(server, 1) == 0);
    EXPECT_HAS(listen_error("ipc://" + served), "another program listens at this path");
    EXPECT_TRUE(std::filesystem::exists(served)) << kind;
    close(server);
    EXPECT_EQ(listen_error("ipc://" + served), "listens");
    std::filesystem::remove(served);
  }
}

// The file mode keeps other users away; it may have been changed.
TEST(Endpoint, IpcRefusesOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kNobody = 65534;
  const test::Directory directory;
  chmod(directory.path().c_str(), 0755);
  {
    Net net("ipc://");
    ASSERT_EQ(seteuid(kNobody), 0);
    const Status denied = net.listen("ipc://" + directory / "socket");
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_FALSE(denied.ok());
    ASSERT_TRUE(net.listen("ipc://" + directory / "socket").ok());
    chmod((directory / "socket").c_str(), 0666);
    ASSERT_EQ(seteuid(kNobody), 0);  // of all threads
    const auto dialed = net.dial(net.listener->endpoint());
    EXPECT_TRUE(net.until([&] { return !net.refused.empty(); }));
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_FALSE(net.refused.empty());
    EXPECT_HAS(net.refused[0].second, "it belongs to user 65534, expected user 0");
    EXPECT_EQ(dialed->times_connected, 0);
    const auto own = net.dial(net.listener->endpoint());
    EXPECT_TRUE(net.until([&] { return own->times_connected == 1; }));
  }
}

TEST(Endpoint, IpcChoosesADirectoryForTheUserAlone) {
  std::string path;
  {
    Net net("ipc://");
    ASSERT_TRUE(net.listen("ipc://").ok());
    path = net.listener->endpoint().substr(6);
    struct stat socket {
    }, directory{};
    ASSERT_EQ(stat(path.c_str(), &socket), 0);
    ASSERT_EQ(stat(path.substr(0, path.rfind('/')).c_str(), &directory), 0);
    EXPECT_EQ(directory.st_mode & 0777, 0700u);
    EXPECT_EQ(socket.st_mode & 0777, 0600u);
    Net other("ipc://");
    ASSERT_TRUE(other.listen("ipc://").ok());
    EXPECT_NE(other.listener->endpoint(), net.listener->endpoint());
  }
  EXPECT_NE(access(path.substr(0, path.rfind('/')).c_str(), F_OK), 0) << "the directory is left";
}

// A listener with a healthy peer.
class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(net_.listen("tcp://127.0.0.1:0").ok());
    healthy_ = net_.dial(endpoint());
    ASSERT_TRUE(
        net_.until([&] { return healthy_->times_connected == 1 && net_.accepted.size() == 1; }));
  }
  std::string endpoint() const { return net_.listener->endpoint(); }
  int raw_client() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port =
        htons(static_cast<uint16_t>(std::stoi(endpoint().substr(endpoint().rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  // The address of that end, as the listener names it.
  static std::string address_of(int fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
    return "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  // The reason that an unknown client gets if it sends these bytes and stays connected.
  std::string refusal_of(const std::string& words) {
    const size_t before = net_.refused.size();
    const int fd = raw_client();
    // When a later one is connected the listener knows of this one, whose address the system tells
    // only while it is open.
    const auto later = net_.dial(endpoint());
    EXPECT_TRUE(net_.until([&] { return later->times_connected == 1; }));
    EXPECT_EQ(send(fd, words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
    EXPECT_TRUE(net_.until([&] { return net_.refused.size() > before; })) << words;
    if (net_.refused.size() == before) return "";
    EXPECT_EQ(net_.refused.back().first, address_of(fd));
    close(fd);
    return net_.refused.back().second;
  }
  void expect_healthy() {
    const size_t before = net_.accepted[0]->frames.size();
    healthy_->send(0, 1);
    healthy_->send(1, 2, bytes_of(100000, 5));
    EXPECT_TRUE(net_.until([&] { return net_.accepted[0]->frames.size() == before + 2; }));
    EXPECT_EQ(net_.accepted[0]->times_disconnected + healthy_->times_disconnected, 0);
  }

  Net net_{"tcp://"};
  std::unique_ptr<End> healthy_;
};

TEST_F(Hostile, GarbageAndSilenceLeaveOthersAlone) {
  const std::string garbage(5000, 'G');
  std::vector<int> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(raw_client());
    if (i % 2 == 0) {
      EXPECT_GT(send(clients.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    }
  }
  expect_healthy();
  auto another = net_.dial(endpoint());
  EXPECT_TRUE(net_.until([&] { return another->times_connected == 1; }))
      << "newcomers are kept out";
  for (const int fd : clients) close(fd);
  expect_healthy();
  EXPECT_EQ(net_.accepted.size(), 2u);
  EXPECT_TRUE(net_.until([&] { return net_.refused.size() >= clients.size(); }))
      << "each stranger is told of";
  EXPECT_EQ(net_.refused.size(), clients.size()) << "but once";
}

TEST_F(Hostile, StrangersAreToldOfByAddressAndWords) {
  EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nHost: " + std::string(200, 'x')),
            "not a weft connection: expected ZeroMQ's handshake, found something else");
  // A greeting of ZeroMQ with an unknown mechanism.
  EXPECT_EQ(
      refusal_of(std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01", 12) + std::string(52, 'Z')),
      "it does not encrypt: expected the join line, and no --insecure");
  expect_healthy();
}

// A server of plain sockets, and its address.
void serve(int& server, sockaddr_in& at) {
  server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;  // what it accepted may outlive it
  ASSERT_EQ(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(server, 8), 0);
  ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&at), &size), 0);
}

TEST_F(Hostile, AServerThatIsNoWeftIsTold) {
  int server = -1;
  sockaddr_in at{};
  ASSERT_NO_FATAL_FAILURE(serve(server, at));
  auto dialed = net_.dial("tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
  const std::string answer =
      "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + std::string(100, ' ');
  for (int i = 0; i < 2; ++i) {
    const int client = accept(server, nullptr, nullptr);
    EXPECT_GT(send(client, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    close(client);
  }
  EXPECT_TRUE(net_.until([&] { return dialed->times_disconnected == 1; }));
  EXPECT_FALSE(dialed->why.empty());
  close(server);
}

// Like a tunnel whose far end does not exist yet.
TEST_F(Hostile, WhoHangsUpWithoutAWordIsTriedAgain) {
  int server = -1;
  sockaddr_in at{};
  ASSERT_NO_FATAL_FAILURE(serve(server, at));
  const std::string there = "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  auto dialed = net_.dial(there);
  for (int i = 0; i < 2; ++i) close(accept(server, nullptr, nullptr));
  EXPECT_TRUE(net_.until([&] {
    return dialed->connection->trouble().starts_with("the listener closes connections before");
  }));
  close(server);
  EXPECT_TRUE(
      net_.until([&] { return dialed->connection->trouble() == "no process listens there"; }));
  const Status listening = net_.listen(there);
  ASSERT_TRUE(listening.ok()) << listening.text();
  EXPECT_TRUE(net_.until([&] { return dialed->times_connected == 1; }));
  EXPECT_EQ(dialed->times_disconnected, 0);
}

TEST_F(Hostile, AFrameOfSeveralPartsEndsTheConnection) {
  ZmqPeer peer(endpoint());
  peer.hello();
  ASSERT_TRUE(net_.until([&] { return net_.accepted.size() == 2; }));
  for (int i = 0; i < 5; ++i) peer.say(1, std::string(100, 'x'), true);
  peer.say(1, std::string(100, 'x'));
  ASSERT_TRUE(net_.until([&] { return net_.accepted[1]->times_disconnected == 1; }));
  EXPECT_EQ(net_.accepted[1]->why, "the peer sent a frame of several parts");
  EXPECT_TRUE(net_.accepted[1]->frames.empty());
  expect_healthy();
}

TEST_F(Hostile, AFrameWithoutAHeaderEndsTheConnection) {
  ZmqPeer peer(endpoint());
  peer.hello();
  ASSERT_TRUE(net_.until([&] { return net_.accepted.size() == 2; }));
  peer.say(0, "short");
  ASSERT_TRUE(net_.until([&] { return net_.accepted[1]->times_disconnected == 1; }));
  EXPECT_EQ(net_.accepted[1]->why, "the peer sent a frame without a header");
  expect_healthy();
}

TEST_F(Hostile, AFrameBeyondTheLimitEndsTheConnection) {
  ZmqPeer peer(endpoint());
  peer.hello();
  ASSERT_TRUE(net_.until([&] { return net_.accepted.size() == 2; }));
  peer.say(1, std::string(kMaxFrame, 'y'));
  ASSERT_TRUE(net_.until([&] { return net_.accepted[1]->frames.size() == 1; }))
      << "the limit itself is allowed";
  peer.say(1, std::string(kMaxFrame + 1, 'x'));
  ASSERT_TRUE(net_.until([&] { return net_.accepted[1]->times_disconnected == 1; }));
  EXPECT_EQ(net_.accepted[1]->frames.size(), 1u);
  expect_healthy();
}

// The other lane may bring the reason, but not forever.
TEST_F(Hostile, AFullLaneDoesNotHideTheLossOfTheOther) {
  ZmqPeer peer(endpoint());
  peer.hello();
  ASSERT_TRUE(net_.until([&] { return net_.accepted.size() == 2; }));
  peer.close(1);
  EXPECT_TRUE(net_.until(
      [&] {
        peer.say(0, std::string(kHeaderBytes, 'x'));
        return net_.accepted[1]->times_disconnected == 1;
      },
      10000));
  EXPECT_EQ(net_.accepted[1]->why, "connection closed");
  expect_healthy();
}

TEST_F(Hostile, APeerThatDoesNotSayHelloIsIgnored) {
  ZmqPeer peer(endpoint());
  for (int i = 0; i < 10; ++i) peer.say(i % 2, std::string(100, 'x'));
  expect_healthy();
  EXPECT_EQ(net_.accepted.size(), 1u);
  EXPECT_TRUE(net_.until([&] { return net_.refused.size() == 2; }));
  for (const auto& [who, why] : net_.refused) {
    EXPECT_EQ(who.rfind("tcp://127.0.0.1:", 0), 0u) << who;
    EXPECT_EQ(
        why,
        "not a weft connection: expected 'weft-hello-1', found 100 bytes: 'xxxxxxxxxxxxxxxx...'");
  }
}

TEST_F(Hostile, APeerWithAnotherNameIsIgnored) {
  ZmqPeer peer(endpoint(), 5);
  peer.hello();
  EXPECT_TRUE(net_.until([&] { return net_.refused.size() == 2; }));
  EXPECT_EQ(net_.accepted.size(), 1u);
  for (const auto& [who, why] : net_.refused) {
    EXPECT_EQ(who.rfind("tcp://127.0.0.1:", 0), 0u) << who;
    EXPECT_HAS(why, "not a weft connection: expected a name of 18 bytes, found 5: 'w");
  }
  expect_healthy();
}

}  // namespace
}  // namespace weft::test
