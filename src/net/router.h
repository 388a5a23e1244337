// A listener: one ROUTER, to which every peer makes two connections, one per lane, that share a
// nonce. The routing id of a frame identifies its peer and lane. A loss only identifies a
// descriptor, so that the router keeps the descriptor of each lane.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/address.h"
#include "net/channel.h"
#include "net/socket.h"

namespace weft {

// The maximum time for one socket per iteration, so that timers and other sockets are served.
constexpr int kFramesPerTurn = 256;
constexpr size_t kBytesPerTurn = size_t{4} << 20;

struct RoutingId {
  char mark = 'w';  // ids that begin with 0 are reserved by ZeroMQ
  char lane = '0';
  unsigned char nonce[16] = {};
};
static_assert(sizeof(RoutingId) == 18);

class Accepted;

constexpr auto kAnyUser = static_cast<uid_t>(-1);

class Router final : public PollGroup::Member, public std::enable_shared_from_this<Router> {
 public:
  using Accept = std::function<void(std::unique_ptr<Connection>)>;
  using Refused = std::function<void(const std::string& peer, const std::string& why)>;
  using Nonce = std::array<unsigned char, 16>;

  // `endpoint` is in the form of ZeroMQ. Without a secret key connections are not encrypted; with
  // one, ZAP decides which peers may connect.
  static Result<std::shared_ptr<Router>> make(PollGroup& group, const std::string& endpoint,
                                              bool v6, const SecretKey* secret, IpcPlace place,
                                              Accept accept, Refused refused);
  Router(PollGroup& group, Accept accept, Refused refused)
      : group_(group),
        accept_(std::move(accept)),
        refused_(std::move(refused)),
        again_(group.loop(), [] {}) {}
  ~Router() override;

  const std::string& bound() const { return bound_; }  // as ZeroMQ reports it, with the port
  // Unix sockets: peers of other users are refused, and large payloads may use shared memory.
  void serve_own_user(bool shares_memory);
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
    std::shared_ptr<Accepted> channel;  // set when both lanes are connected
  };
  // A connection of the system, from the events of the monitor.
  struct Stream {
    int descriptor = -1;
    std::string peer;
    bool greeted = false;  // it is a lane of a peer
    bool refused = false;  // already reported
    bool closed = false;   // its messages may not have been read yet
    const char* how = "";  // it was closed
  };
  void read_events();
  void take_event(const SocketEvent& event);
  Stream* find_stream(int descriptor);
  void refuse(Stream& stream, std::string_view why);
  void refuse_frame(int descriptor);
  void close_stream(Stream& stream, SocketEvent handshake_error);
  void forget_closed_streams();
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
  uid_t only_user_ = kAnyUser;  // whose processes may connect, besides root
  int listening_ = -1;          // ZeroMQ's descriptor
  std::unique_ptr<Socket> socket_;
  std::string bound_;
  IpcPlace place_;
  std::map<Nonce, Peer> peers_;
  std::vector<Stream> streams_;
  SocketEvent handshake_error_;  // of the stream whose end is reported next
  std::vector<SocketEvent>
      not_admitted_;  // of streams whose ends are reported later, usually in this order
  bool all_read_ = true;
  int64_t linger_until_ = 0;
  // The queue of a peer is full: ZeroMQ wakes the loop when there is room, unless one of our calls
  // consumed this event; a ROUTER cannot be checked for one peer. So the loop checks again soon.
  Loop::Timer again_;
  Message id_, message_;
};

}  // namespace weft
