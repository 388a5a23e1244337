// The peers that may connect to the listeners of a transport that encrypts, by public key, in
// ZeroMQ's authentication protocol (ZAP 1.0). A peer whose key is not admitted ends in the
// handshake, before any of its bytes can be a frame.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "net/channel.h"
#include "net/curve.h"
#include "net/poll_group.h"
#include "net/socket.h"

namespace weft {

constexpr const char* kZapDomain = "weft";

// Status codes of ZAP, which the monitors of both ends report.
constexpr int kZapAdmitted = 200, kZapTryAgain = 300, kZapRefused = 400;

class Zap final : public PollGroup::Member {
 public:
  // Must be called before a listener exists: without an authenticator, ZeroMQ accepts every peer.
  static Result<std::shared_ptr<Zap>> make(PollGroup& group);
  explicit Zap(PollGroup& group) : loop_(group.loop()), timer_(loop_, [this] { answer_held(); }) {}

  // Replaces the admitted keys. Until the first call all peers wait for it. After some time they
  // are asked to try again, which takes ZeroMQ two seconds.
  void admit(std::vector<PublicKey> keys);

  void send_waiting() override {}
  bool ready() override;
  void after_wake() override;
  void end() override { socket_.reset(); }

 private:
  struct Request {
    Message session, id;
    PublicKey key;
    int64_t until;  // an answer is due
  };
  bool read_request();
  void answer(Request& request, int status);
  void answer_held();
  int judge(const PublicKey& key) const;

  Loop& loop_;
  Loop::Timer timer_;
  std::unique_ptr<Socket> socket_;
  std::vector<Request> held_;                       // the oldest first
  std::optional<std::vector<PublicKey>> admitted_;  // none: not known yet
};

}  // namespace weft
