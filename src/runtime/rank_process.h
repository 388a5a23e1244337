// One rank in this process: its node, its worker and the thread of its jobs, its connections to the
// other ranks. Lives on the loop thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "loop/team.h"
#include "node/node.h"
#include "runtime/batch.h"
#include "runtime/job_thread.h"
#include "runtime/log.h"
#include "runtime/peer_connection.h"
#include "runtime/stall.h"

namespace weft {

// How long the end of all connections of a run may take.
constexpr int64_t kHangUpMs = 1000;
static_assert(kHangUpMs > kLingerMs);

class RankProcess final : private RankNodeEffects, private PeerConnection::Reader {
 public:
  // Callbacks for the owner of the process, on the loop thread.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void joined() = 0;  // rank 0: every rank has its links
    virtual void message(int32_t peer, uint32_t type, std::span<const std::byte> bytes) = 0;
    virtual void micro_batch(int32_t micro_batch) = 0;     // rank 0
    virtual void step_done(const StepResult& result) = 0;  // rank 0
    virtual void failed(const Origin& origin) = 0;         // once; passing it on allocates nothing
    virtual void closed() = 0;                             // once: an orderly end
    virtual void all_closed() = 0;  // the last connection has been closed; may occur more than once
  };

  // `worker`, `owner` and `log` must outlive it.
  RankProcess(Loop& loop, std::shared_ptr<const Plan> plan, Worker& worker,
              const Identity& identity, LinkTimes times, Owner& owner, Log& log);
  ~RankProcess() override;

  Status start();
  // The connection to a peer: dialed, or accepted by a listener with its first frame. Returns false
  // and does not change `connection` if that peer is not expected.
  Status dial(Transport& transport, int32_t peer, const std::string& endpoint,
              const DialKeys& keys);
  bool accept(int32_t peer, std::unique_ptr<PeerConnection>& connection, int lane,
              std::span<const std::byte> first);

  Status begin(const StepDescriptor& step, const Batch& batch);  // rank 0
  Status feed(int32_t micro_batches);                            // rank 0: see Run::feed()
  void open_sinks();  // rank 0: see Controller::open_sinks()
  void send_message(int32_t peer, uint32_t type, std::span<const std::byte> bytes) {
    node_->send_message(peer, type, bytes, now());
    act();
  }
  void fail(Code code, const std::string& text) {
    node_->fail(code, text, now());
    act();
  }
  void fail(const Origin& origin) {
    node_->fail(origin, now());
    act();
  }
  // May be called at any time, also after memory has run out.
  void stop(const Status& why);
  void bye() {
    node_->bye(now());
    act();
  }
  Worker& worker() { return worker_; }
  RankNode& node() { return *node_; }
  bool has_no_connection() const { return connections_.empty() && closing_.empty(); }

 private:
  int64_t now() const { return loop_.now_ms(); }
  void act();  // after every call of the node: sets the timer that the node needs
  void watch();
  void note_wait(int64_t quiet);

  // RankNodeEffects
  void run(const StepDescriptor& step, double scale, int32_t job, bool deliver) override;
  void copy(const MessageAt& at) override;
  Result<std::span<const std::byte>> outgoing(const MessageAt& at) override;
  Result<std::span<std::byte>> landing(const MessageAt& at) override;
  Status landed(const MessageAt&) override { return {}; }
  double loss(const MessageAt& at) override;
  void send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override;
  void hang_up(int32_t peer) override;
  std::string trouble(int32_t peer) override;
  void joined() override { owner_.joined(); }
  void message(int32_t peer, uint32_t type, std::span<const std::byte> bytes) override {
    owner_.message(peer, type, bytes);
  }
  void micro_batch(int32_t micro_batch) override { owner_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { owner_.step_done(result); }
  void failed(const Origin& origin) override;
  void closed() override { owner_.closed(); }

  // PeerConnection::Reader
  void connected(PeerConnection& connection) override;
  void received(PeerConnection& connection, int lane, std::span<const std::byte> frame) override;
  void sent(PeerConnection& connection, uint64_t token) override;
  void disconnected(PeerConnection& connection, const std::string& why) override;
  void hung_up(PeerConnection& connection) override;

  Loop& loop_;
  std::shared_ptr<const Plan> plan_;
  Worker& worker_;
  Owner& owner_;
  Log& log_;
  std::unique_ptr<RankNode> node_;
  std::unique_ptr<JobThread> thread_;
  std::map<int32_t, std::unique_ptr<PeerConnection>> connections_;  // by peer
  std::vector<std::unique_ptr<PeerConnection>> closing_;  // their last frames are being sent
  std::set<int32_t> accepted_;                            // accepted once, and not accepted again
  Loop::Timer timer_, watch_timer_;
  StallWatch stall_;
  int64_t finished_;       // when the last job ended, or the rank was last seen idle
  int64_t next_note_ = 0;  // a wait of this time, in nanoseconds, is logged
};

}  // namespace weft
