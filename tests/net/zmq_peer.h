// A peer made of plain ZeroMQ sockets, which says what it likes.
#pragma once

#include <zmq.h>

#include <utility>

#include "peers.h"

namespace weft::test {

class ZmqPeer {
 public:
  // A key pair for each lane; none: it does not encrypt.
  using Lanes = std::array<const KeyPair*, kLanes>;
  explicit ZmqPeer(const std::string& endpoint, size_t id_bytes = 18,
                   Lanes keys = {&test_keys(), &test_keys()},
                   const PublicKey& server = test_keys().public_key)
      : context_(zmq_ctx_new()) {
    char id[18] = {'w', '0', 'n', 'o', 'n', 'c', 'e'};
    for (int lane = 0; lane < kLanes; ++lane) {
      sockets_[lane] = zmq_socket(context_, ZMQ_DEALER);
      const int linger = 0;
      zmq_setsockopt(sockets_[lane], ZMQ_LINGER, &linger, sizeof linger);
      id[1] = static_cast<char>('0' + lane);
      zmq_setsockopt(sockets_[lane], ZMQ_ROUTING_ID, id, id_bytes);
      if (const KeyPair* const own = keys[static_cast<size_t>(lane)]) {
        zmq_setsockopt(sockets_[lane], ZMQ_CURVE_SERVERKEY, server.data(), server.size());
        zmq_setsockopt(sockets_[lane], ZMQ_CURVE_PUBLICKEY, own->public_key.data(),
                       own->public_key.size());
        zmq_setsockopt(sockets_[lane], ZMQ_CURVE_SECRETKEY, own->secret.bytes().data(),
                       own->secret.bytes().size());
      }
      EXPECT_EQ(zmq_connect(sockets_[lane], endpoint.c_str()), 0);
    }
  }
  ~ZmqPeer() {
    for (int lane = 0; lane < kLanes; ++lane) close(lane);
    zmq_ctx_term(context_);
  }
  // Without a bye.
  void close(int lane) {
    if (void* const socket = std::exchange(sockets_[lane], nullptr)) zmq_close(socket);
  }
  void say(int lane, const std::string& text, bool more = false) {
    EXPECT_EQ(zmq_send(sockets_[lane], text.data(), text.size(), more ? ZMQ_SNDMORE : 0),
              static_cast<int>(text.size()));
  }
  void hello() {
    for (int lane = 0; lane < kLanes; ++lane) say(lane, "weft-hello-1");
  }

 private:
  void* context_;
  void* sockets_[kLanes] = {};
};

}  // namespace weft::test
