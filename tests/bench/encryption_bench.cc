// What encryption costs: frames of 1 MiB over tcp on this machine, as links send tensors, with
// CURVE and without.
//
//   build/tests/bench/bench_encryption [GIB]
//
// One line per kind: seconds, MiB/s and processor seconds per GiB (both ends together); then the
// ratios.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include "net/peers.h"

namespace weft {
namespace {

constexpr uint32_t kUnderWay = 4;  // frames, as the window of a link

struct Cost {
  double seconds = 0, cpu = 0;
};

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One end. Takes what comes and keeps nothing of it; answers each frame if it is the receiver.
class Side final : public Connection::Events {
 public:
  void start(std::unique_ptr<Connection> c) {
    connection = std::move(c);
    connection->start(*this);
  }
  void connected() override { is_connected = true; }
  void received(int, std::span<const std::byte>) override {
    ++frames;
    if (answers) connection->send(0, kHeader, {}, 0);
  }
  void sent(uint64_t) override {}
  void disconnected(const std::string&) override { is_lost = true; }

  static constexpr std::array<std::byte, kHeaderBytes> kHeader{};
  std::unique_ptr<Connection> connection;
  bool answers = false, is_connected = false, is_lost = false;
  uint32_t frames = 0;
};

// Receives until the sender goes; tells where it listens.
void receive(bool insecure, std::promise<std::string> endpoint) {
  test::Net net("tcp://", insecure);
  Side side;
  side.answers = true;
  auto listener = net.transport->listen(
      "tcp://127.0.0.1:0",
      [&](std::unique_ptr<Connection> connection) { side.start(std::move(connection)); },
      [](const std::string&, const std::string&) {});
  endpoint.set_value(listener.value()->endpoint());
  net.until([&] { return side.is_lost; }, 600000);
  side.connection.reset();
  listener.value().reset();
}

Cost measure(bool insecure, uint32_t frames) {
  std::promise<std::string> endpoint;
  auto listens = endpoint.get_future();
  std::thread receiver(receive, insecure, std::move(endpoint));
  test::Net net("tcp://", insecure);
  Side side;
  const DialKeys keys{test::test_keys().public_key, test::test_keys()};
  side.start(net.transport->dial(listens.get(), &keys).take());
  net.until([&] { return side.is_connected; });
  const std::vector<std::byte> payload = test::bytes_of(kMaxPayload, 1);
  Cost cost{now(), cpu_seconds()};
  uint32_t sent = 0;
  net.until(
      [&] {
        for (; sent < frames && sent < side.frames + kUnderWay; ++sent)
          side.connection->send(1, Side::kHeader, payload, sent + 1);
        return side.frames == frames;
      },
      600000);
  cost = {now() - cost.seconds, cpu_seconds() - cost.cpu};
  side.connection.reset();
  net.until([] { return false; }, 50);  // its last words leave
  receiver.join();
  return cost;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const double gib = argc > 1 ? std::atof(argv[1]) : 1;
  const auto frames = static_cast<uint32_t>(1024 * gib);
  weft::measure(true, 64);  // warms up
  const weft::Cost plain = weft::measure(true, frames), curve = weft::measure(false, frames);
  for (const auto& [name, cost] : {std::pair("--insecure", plain), std::pair("encrypted", curve)})
    std::printf("%-12s %6.2f s %8.0f MiB/s %6.2f processor s/GiB\n", name, cost.seconds,
                1024 * gib / cost.seconds, cost.cpu / gib);
  std::printf("encryption takes %.1f times as long, and %.1f times the processor\n",
              curve.seconds / plain.seconds, curve.cpu / plain.cpu);
}
