// Who may connect to the listeners of a transport that encrypts: by public key, in ZeroMQ's
// authentication protocol (ZAP 1.0). A peer whose key is not admitted ends in the handshake, before
// any of its bytes can be a frame.
#pragma once

#include <memory>
#include <vector>

#include "net/channel.h"
#include "net/curve.h"
#include "net/poll_group.h"
#include "net/socket.h"

namespace weft {

constexpr const char* kZapDomain = "weft";

// Status codes of ZAP, which monitors of both ends tell.
constexpr int kZapTryAgain = 300, kZapRefused = 400;

class Zap final : public PollGroup::Member {
 public:
  // Before anybody listens: ZeroMQ lets everyone in where nobody answers.
  static Result<std::shared_ptr<Zap>> make(PollGroup& group);

  // Replaces those admitted so far. `more`: other keys follow, and a peer with another key is told
  // to try again.
  void admit(std::vector<PublicKey> keys, bool more);

  void send_waiting() override {}
  bool ready() override;
  void after_wake() override;
  void end() override { socket_.reset(); }

 private:
  bool answer();
  int judge(const PublicKey& key) const;

  std::unique_ptr<Socket> socket_;
  std::vector<PublicKey> admitted_;
  bool more_ = true;
};

}  // namespace weft
