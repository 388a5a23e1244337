// A connection and its current reader, which may change: a connection can be a candidate of the
// admission first and a peer of the run later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "loop/loop.h"
#include "net/transport.h"

namespace weft {

// How long the last frames of a connection may take.
constexpr int64_t kLingerMs = 300;

class PeerConnection final : public Loop::Disposable, private Connection::Events {
 public:
  class Reader {
   public:
    virtual ~Reader() = default;
    virtual void connected(PeerConnection& connection) = 0;
    virtual void received(PeerConnection& connection, int lane,
                          std::span<const std::byte> frame) = 0;
    virtual void sent(PeerConnection& connection, uint64_t token) = 0;
    virtual void disconnected(PeerConnection& connection, const std::string& why) = 0;
    virtual void hung_up(PeerConnection&) {}
  };

  explicit PeerConnection(std::unique_ptr<Connection> connection, int32_t rank = -1)
      : connection_(std::move(connection)), rank_(rank) {}

  void start(Reader& reader) {
    reader_ = &reader;
    connection_->start(*this);
  }
  void hand_to(Reader* reader) { reader_ = reader; }  // null: frames are dropped
  Connection& raw() { return *connection_; }
  // The rank at the other end; -1: not known.
  int32_t rank() const { return rank_; }
  void set_rank(int32_t rank) { rank_ = rank; }

 private:
  void connected() override {
    if (reader_) reader_->connected(*this);
  }
  void received(int lane, std::span<const std::byte> frame) override {
    if (reader_) reader_->received(*this, lane, frame);
  }
  void sent(uint64_t token) override {
    if (reader_) reader_->sent(*this, token);
  }
  void disconnected(const std::string& why) override {
    if (reader_) reader_->disconnected(*this, why);
  }
  void closed() override {
    if (reader_) reader_->hung_up(*this);
  }

  std::unique_ptr<Connection> connection_;
  Reader* reader_ = nullptr;
  int32_t rank_;
};

// Destroys a connection once the loop is out of its callbacks.
inline void retire(Loop& loop, std::unique_ptr<PeerConnection> connection) {
  connection->hand_to(nullptr);
  loop.dispose(std::move(connection));
}

}  // namespace weft
