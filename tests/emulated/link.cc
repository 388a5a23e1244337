// Two network namespaces joined by an emulated link: delay, rate, loss, reordering and
// interruptions, drawn from a seed. Every namespace has a TUN device; this program moves the
// packets from one device to the other. It needs no queueing discipline of the kernel (tc netem)
// and leaves nothing behind: the namespaces end with the last process in them.
//
//   emulated_link DELAY_MS RATE_MBIT LOSS_PERCENT REORDER_PERCENT SEED
//
// TCP uses reno, which every kernel has and which suffers most from loss. Prints the paths of the
// two namespaces, for nsenter --net; their addresses are 10.9.0.1 and 10.9.0.2. The line "cut MS"
// on standard input drops every packet for that time; the end of standard input ends the program.
// Exit status 77: namespaces or devices are not allowed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kSkipped = 77;
constexpr size_t kQueue = 1000;  // packets that wait for the link, per direction

using Time = int64_t;  // microseconds

Time now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * Time{1'000'000} + t.tv_nsec / 1000;
}

int check(int result, const char* what) {
  if (result >= 0) return result;
  std::perror(what);
  std::exit(kSkipped);
}

void set_up(const char* name, const char* address) {
  const int control = check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  ifreq request = {};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  const auto set_address = [&](unsigned long what, const char* text) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    inet_pton(AF_INET, text, &in.sin_addr);
    std::memcpy(&request.ifr_addr, &in, sizeof in);
    check(ioctl(control, what, &request), "setting an address");
  };
  if (address) {
    set_address(SIOCSIFADDR, address);
    set_address(SIOCSIFNETMASK, "255.255.255.0");
  }
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  check(ioctl(control, SIOCSIFFLAGS, &request), "setting a device up");
  close(control);
}

// Moves this process into a new namespace, prints its path, and returns the descriptor of its
// device.
int make_side(const char* address) {
  check(unshare(CLONE_NEWNET), "a network namespace");
  const int space = check(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), "/proc/self/ns/net");
  const int tun = check(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq request = {};
  std::strncpy(request.ifr_name, "weft", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  check(ioctl(tun, TUNSETIFF, &request), "a TUN device");
  set_up("lo", nullptr);
  set_up("weft", address);
  const int control = check(open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC),
                            "tcp_congestion_control");
  check(static_cast<int>(write(control, "reno", 4)), "tcp_congestion_control");
  close(control);
  std::printf("/proc/%d/fd/%d\n", getpid(), space);
  return tun;
}

struct Conditions {
  Time delay;
  double bytes_per_us;
  double loss, reorder;  // of 1
};

class Direction {
 public:
  Direction(int from, int to, const Conditions& conditions, uint64_t seed)
      : from_(from), to_(to), conditions_(conditions), rng_(seed) {}

  void take(bool cut) {
    std::array<char, 65536> packet;
    for (ssize_t n; (n = read(from_, packet.data(), packet.size())) > 0;) {
      if (cut || waiting_.size() >= kQueue || draw(conditions_.loss)) continue;
      const Time at = now();
      free_ = std::max(free_, at) +
              static_cast<Time>(static_cast<double>(n) / conditions_.bytes_per_us);
      // As in tc netem: a packet that is reordered skips the delay.
      const Time due = free_ + (draw(conditions_.reorder) ? 0 : conditions_.delay);
      waiting_.emplace(due, std::vector<char>(packet.data(), packet.data() + n));
    }
  }
  void deliver() {
    for (; !waiting_.empty() && next() <= now(); waiting_.erase(waiting_.begin())) {
      const std::vector<char>& packet = waiting_.begin()->second;
      if (write(to_, packet.data(), packet.size()) < 0)
        continue;  // no room in the device: one more that is lost
    }
  }
  Time next() const { return waiting_.empty() ? INT64_MAX : waiting_.begin()->first; }
  int from() const { return from_; }

 private:
  bool draw(double chance) { return std::uniform_real_distribution<>()(rng_) < chance; }

  const int from_, to_;
  const Conditions conditions_;
  std::mt19937_64 rng_;
  std::multimap<Time, std::vector<char>> waiting_;  // by when they come out
  Time free_ = 0;                                   // the link has sent all that it took
};

// False: standard input has ended.
bool read_command(Time* cut_until) {
  char line[64];
  const ssize_t n = read(0, line, sizeof line - 1);
  if (n <= 0) return false;
  line[n] = 0;
  long ms = 0;
  if (std::sscanf(line, "cut %ld", &ms) == 1) *cut_until = now() + ms * 1000;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: emulated_link DELAY_MS RATE_MBIT LOSS_PERCENT REORDER_PERCENT SEED\n");
    return 2;
  }
  const Conditions conditions = {.delay = std::atol(argv[1]) * 1000,
                                 .bytes_per_us = std::atof(argv[2]) / 8,
                                 .loss = std::atof(argv[3]) / 100,
                                 .reorder = std::atof(argv[4]) / 100};
  const uint64_t seed = std::strtoull(argv[5], nullptr, 10);
  const int a = make_side("10.9.0.1"), b = make_side("10.9.0.2");
  std::fflush(stdout);
  Direction there(a, b, conditions, 2 * seed), back(b, a, conditions, 2 * seed + 1);
  for (Time cut_until = 0;;) {
    const Time wait = std::max<Time>(std::min(there.next(), back.next()) - now(), 0);
    const timespec timeout = {wait / 1'000'000, wait % 1'000'000 * 1000};
    std::array<pollfd, 3> ready = {pollfd{a, POLLIN, 0}, pollfd{b, POLLIN, 0},
                                   pollfd{0, POLLIN, 0}};
    ppoll(ready.data(), ready.size(), wait > Time{60'000'000} ? nullptr : &timeout, nullptr);
    if (ready[2].revents && !read_command(&cut_until)) return 0;
    for (Direction* direction : {&there, &back}) {
      direction->take(now() < cut_until);
      direction->deliver();
    }
  }
}
