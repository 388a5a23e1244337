// A listener: one ROUTER, to which every peer comes with two connections, one per lane, that share
// a nonce. A frame says which peer and lane it is of by its routing id; a loss says only which
// descriptor, so the router keeps the descriptor that each lane speaks from.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/channel.h"
#include "net/socket.h"

namespace weft {

// One look at a socket takes no longer than that, so that timers and other sockets have their turn.
constexpr int kFramesPerTurn = 256;
constexpr size_t kBytesPerTurn = size_t{4} << 20;

struct RoutingId {
  char mark = 'w';  // ZeroMQ keeps those that begin with 0 for itself
  char lane = '0';
  unsigned char nonce[16] = {};
};
static_assert(sizeof(RoutingId) == 18);

class Accepted;

class Router final : public PollGroup::Member, public std::enable_shared_from_this<Router> {
 public:
  using Accept = std::function<void(std::unique_ptr<Connection>)>;
  using Refused = std::function<void(const std::string& peer, const std::string& why)>;
  using Nonce = std::array<unsigned char, 16>;

  // `endpoint` as ZeroMQ wants it. Without a secret key nothing is encrypted; with one, who may
  // connect is asked by ZAP.
  static Result<std::shared_ptr<Router>> make(PollGroup& group, const std::string& endpoint,
                                              bool v6, const SecretKey* secret, IpcPlace place,
                                              Accept accept, Refused refused);
  Router(PollGroup& group, Accept accept, Refused refused)
      : group_(group),
        accept_(std::move(accept)),
        refused_(std::move(refused)),
        again_(group.loop(), [] {}) {}
  ~Router() override;

  const std::string& bound() const { return bound_; }  // as ZeroMQ says it, with the port
  void share_memory() { shares_memory_ = true; }       // with all peers
  void stop_accepting();

  void send_waiting() override {}
  bool ready() override;
  void after_wake() override;
  void end() override;

  // For Accepted:
  int transmit(const Nonce& nonce, int lane, Message& message);
  void forget(const Nonce& nonce, int64_t linger_ms);
  bool all_read() const { return all_read_; }

 private:
  struct Peer {
    std::array<int, kLanes> descriptor{-1, -1};
    std::optional<PublicKey> key;       // that both lanes have proved
    std::shared_ptr<Accepted> channel;  // once both lanes are there
  };
  // A connection of the system's, by what the monitor has told.
  struct Line {
    int descriptor = -1;
    std::string peer;
    bool greeted = false;  // it is a lane of a peer
    bool refused = false;  // told already
    bool closed = false;   // what it said may still be to read
    const char* how = "";  // it was closed
  };
  void read_events();
  Line* find_line(int descriptor);
  void refuse(Line& line, const std::string& why);
  void refuse_frame(int descriptor);
  void close_line(Line& line, SocketEvent handshake_error);
  void forget_closed_lines();
  bool read_frame(size_t* bytes);
  void greet(const Nonce& nonce, int lane, int descriptor, Message& hello);
  void lost(int descriptor);
  void close_if_idle();
  void close();

  PollGroup& group_;
  Accept accept_;
  Refused refused_;
  bool accepting_ = true;
  bool encrypts_ = false, shares_memory_ = false;
  int listening_ = -1;  // ZeroMQ's descriptor
  std::unique_ptr<Socket> socket_;
  std::string bound_;
  IpcPlace place_;
  std::map<Nonce, Peer> peers_;
  std::vector<Line> lines_;
  SocketEvent handshake_error_;  // of the line whose end is told next
  std::vector<SocketEvent>
      not_admitted_;  // of lines whose ends are told later, in that order as a rule
  bool all_read_ = true;
  int64_t linger_until_ = 0;
  // A peer without room: ZeroMQ wakes us when there is some, unless one of our own calls has
  // swallowed that; and of a ROUTER one cannot ask for a single peer. So the loop looks again soon.
  Loop::Timer again_;
  Message id_, message_;
};

}  // namespace weft
