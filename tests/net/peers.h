// Peers for tests of a transport: a loop that is turned until something is true, and ends of
// connections that keep what they hear.
#pragma once

#include <gtest/gtest.h>
#include <uv.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "link/frame.h"
#include "loop/loop.h"
#include "net/transport.h"

namespace weft::test {

inline std::vector<std::byte> bytes_of(size_t size, uint32_t seed) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i)
    out[i] = static_cast<std::byte>((seed * 2654435761u + static_cast<uint32_t>(i) * 40503u) >> 13);
  return out;
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// One end of a connection.
class End final : public Connection::Events {
 public:
  struct Frame {
    int lane;
    uint32_t number;
    std::vector<std::byte> payload;
  };

  End() = default;
  explicit End(std::unique_ptr<Connection> c) : connection(std::move(c)) {
    connection->start(*this);
  }

  // A frame whose header carries a number.
  void send(int lane, uint32_t number, std::span<const std::byte> payload = {},
            uint64_t token = 0) {
    std::array<std::byte, kHeaderBytes> header{};
    std::memcpy(header.data(), &number, sizeof number);
    connection->send(lane, header, payload, token);
  }

  void connected() override { ++times_connected; }
  void received(int lane, std::span<const std::byte> frame) override {
    Frame f{lane, 0, {}};
    ASSERT_GE(frame.size(), kHeaderBytes);
    std::memcpy(&f.number, frame.data(), sizeof f.number);
    f.payload.assign(frame.begin() + kHeaderBytes, frame.end());
    frames.push_back(std::move(f));
    if (on_frame) on_frame(frames.back());
  }
  void sent(uint64_t token) override { tokens.push_back(token); }
  void disconnected(const std::string& reason) override {
    ++times_disconnected;
    why = reason;
    if (on_loss) on_loss();
  }
  void closed() override { ++times_closed; }

  std::unique_ptr<Connection> connection;
  int times_connected = 0, times_disconnected = 0, times_closed = 0;
  std::string why;
  std::vector<Frame> frames;
  std::vector<uint64_t> tokens;
  std::function<void(const Frame&)> on_frame;
  std::function<void()> on_loss;
};

// The key pair of all transports of a test, in its child processes, too.
inline const KeyPair& test_keys() {
  static const KeyPair keys = [] {
    constexpr const char* kName = "WEFT_TEST_KEY";
    if (const char* const inherited = std::getenv(kName))
      return KeyPair::of(read_secret_key(inherited, kName).take()).take();
    const KeyPair made = KeyPair::make().take();
    setenv(kName, key_text(made.secret.bytes()).c_str(), 1);
    return made;
  }();
  return keys;
}

constexpr const char* kInsecure =
    "WEFT_TEST_INSECURE";  // in the environment: transports of the test do not encrypt

constexpr const char* kSocketsOnly = "WEFT_TEST_SOCKETS_ONLY";  // they share no memory

// A transport on a loop that the test turns itself. It admits the test's key, unless `admits` is
// false: then it does not know yet which keys it admits.
class Net {
 public:
  explicit Net(const std::string& scheme, bool insecure = std::getenv(kInsecure) != nullptr,
               const KeyPair& own = test_keys(),
               bool shared_memory = std::getenv(kSocketsOnly) == nullptr, bool admits = true)
      : loop(Loop::make().take()),
        transport(make_transport(*loop, scheme,
                                 {.insecure = insecure, .own = own, .shared_memory = shared_memory})
                      .take()) {
    if (admits) transport->admit({test_keys().public_key});
  }
  ~Net() {
    accepted.clear();
    listener.reset();
    transport.reset();
  }

  Status listen(const std::string& endpoint) {
    WEFT_TRY_ASSIGN(listener, transport->listen(
                                  endpoint,
                                  [this](std::unique_ptr<Connection> c) {
                                    accepted.push_back(std::make_unique<End>(std::move(c)));
                                  },
                                  [this](const std::string& peer, const std::string& why) {
                                    refused.emplace_back(peer, why);
                                  }));
    return {};
  }
  std::unique_ptr<End> dial(const std::string& endpoint,
                            const PublicKey& server = test_keys().public_key,
                            const KeyPair& own = test_keys()) {
    const DialKeys keys{server, own};
    return std::make_unique<End>(transport->dial(endpoint, &keys).take());
  }

  // Turns the loop; false when it did not become true within the time.
  template <typename Condition>
  bool until(Condition condition, int64_t ms = 20000) {
    bool expired = false;
    Loop::Timer timer(*loop, [&] {
      expired = true;
      uv_stop(loop->uv());  // a timer that is due before the loop waits would leave it nothing to
                            // wait for
    });
    timer.start(ms);
    while (!condition() && !expired) uv_run(loop->uv(), UV_RUN_ONCE);
    return condition();
  }

  std::unique_ptr<Loop> loop;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<End>> accepted;
  std::vector<std::pair<std::string, std::string>> refused;  // peer, why
};

}  // namespace weft::test
