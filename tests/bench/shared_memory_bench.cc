// What shared memory saves: tensors of 64 KiB to 64 MiB between two processes of this machine, in
// frames as links send them, over ipc with shared memory and through the socket only.
//
//   build/tests/bench/bench_shared_memory [GIB]
//
// One line per size: MiB/s and processor seconds per GiB (both ends together) of each, and the
// ratio of the speeds. The rounds alternate, and the fastest of three counts.
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "net/peers.h"

namespace weft {
namespace {

constexpr uint32_t kUnderWay = 4;  // frames, as the window of a link

struct Cost {
  double seconds = 1e9, cpu = 0;
};

double cpu_seconds(int who) {
  rusage used{};
  getrusage(who, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One end. The receiver copies what comes to its place, as a link does, and answers each frame.
class Side final : public Connection::Events {
 public:
  void start(std::unique_ptr<Connection> c) {
    connection = std::move(c);
    connection->start(*this);
  }
  void connected() override { is_connected = true; }
  void received(int, std::span<const std::byte> frame) override {
    ++frames;
    if (landing.empty()) return;
    const auto payload = frame.subspan(kHeaderBytes);
    if (at + payload.size() > landing.size()) at = 0;
    std::copy(payload.begin(), payload.end(), landing.begin() + static_cast<std::ptrdiff_t>(at));
    at += payload.size();
    connection->send(0, kHeader, {}, 0);
  }
  void sent(uint64_t) override {}
  void disconnected(const std::string&) override { is_lost = true; }

  static constexpr std::array<std::byte, kHeaderBytes> kHeader{};
  std::unique_ptr<Connection> connection;
  std::vector<std::byte> landing;
  size_t at = 0;
  bool is_connected = false, is_lost = false;
  uint32_t frames = 0;
};

// Receives until the sender goes; writes where it listens.
void receive(bool shared, size_t bytes, int endpoint) {
  test::Net net("ipc://", false, test::test_keys(), shared);
  Side side;
  side.landing.resize(bytes);
  auto listener = net.transport->listen(
      "ipc://", [&](std::unique_ptr<Connection> connection) { side.start(std::move(connection)); },
      [](const std::string&, const std::string&) {});
  const std::string text = listener.value()->endpoint();
  if (write(endpoint, text.data(), text.size()) < 0) return;
  close(endpoint);
  net.until([&] { return side.is_lost; }, 600000);
  side.connection.reset();
  listener.value().reset();
}

Cost measure(bool shared, size_t bytes, double gib) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  const double children = cpu_seconds(RUSAGE_CHILDREN);
  const pid_t receiver = fork();
  if (receiver == 0) {
    receive(shared, bytes, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  char endpoint[128] = "";
  if (read(ends[0], endpoint, sizeof endpoint - 1) <= 0) std::exit(1);
  close(ends[0]);
  Cost cost;
  {
    test::Net net("ipc://", false, test::test_keys(), shared);
    Side side;
    side.start(net.transport->dial(endpoint, nullptr).take());
    net.until([&] { return side.is_connected; });
    const std::vector<std::byte> tensor = test::bytes_of(bytes, 1);
    const size_t piece = std::min(bytes, kMaxPayload), pieces = bytes / piece;
    const auto frames = static_cast<uint32_t>(gib * (1 << 30) / static_cast<double>(piece));
    const double begin = now(), cpu = cpu_seconds(RUSAGE_SELF);
    uint32_t sent = 0;
    net.until(
        [&] {
          for (; sent < frames && sent < side.frames + kUnderWay; ++sent)
            side.connection->send(1, Side::kHeader,
                                  std::span(tensor).subspan(sent % pieces * piece, piece),
                                  sent + 1);
          return side.frames == frames;
        },
        600000);
    cost = {now() - begin, cpu_seconds(RUSAGE_SELF) - cpu};
    side.connection.reset();
    net.until([] { return false; }, 50);  // its last words leave
  }
  waitpid(receiver, nullptr, 0);
  cost.cpu += cpu_seconds(RUSAGE_CHILDREN) - children;
  return cost;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const double gib = argc > 1 ? std::atof(argv[1]) : 1;
  for (size_t kib = 64; kib <= 65536; kib *= 4) {
    weft::Cost best[2];
    for (int round = 0; round < 3; ++round)
      for (const bool shared : {false, true}) {
        const weft::Cost cost = weft::measure(shared, kib << 10, gib);
        if (cost.seconds < best[shared].seconds) best[shared] = cost;
      }
    std::printf("%6zu KiB", kib);
    for (const bool shared : {false, true})
      std::printf("   %s %6.0f MiB/s %5.2f processor s/GiB", shared ? "shared" : "socket",
                  1024 * gib / best[shared].seconds, best[shared].cpu / gib);
    std::printf("   %.2f\n", best[0].seconds / best[1].seconds);
    std::fflush(stdout);
  }
}
