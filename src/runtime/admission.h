// Admits connections at the address of a process. At rank 0, candidates send requests to join and
// get their ranks when all have joined; other processes accept only ranks. Lives on the loop
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/events.h"
#include "runtime/peer_connection.h"
#include "runtime/rank_table.h"
#include "runtime/welcome.h"

namespace weft {

class Admission final : private PeerConnection::Reader {
 public:
  // A connection whose first frame comes from a rank of the run, not from a candidate. Returns
  // false and does not change `connection` if that rank is not expected.
  using Member = std::function<bool(int32_t rank, std::unique_ptr<PeerConnection>& connection,
                                    int lane, std::span<const std::byte> first)>;

  // A rank that was assigned and left before it joined the run, and why.
  using Left = std::function<void(const Origin& origin)>;

  // Called with joined, left or refused. It does not call the admission.
  using Watcher = std::function<void(RunEvent::Kind kind, MeshEvent event)>;

  // `times`: for the links of candidates; `hello` is how long a connection may send nothing.
  // `most_early`: how many ranks may connect before take_members().
  Admission(Loop& loop, Transport& transport, LinkTimes times = {}, size_t most_early = 1024);
  ~Admission() override;

  Status listen(const std::string& endpoint);
  const std::string& endpoint() const { return endpoint_; }
  // The address accepts no more connections; existing connections stay open.
  void stop_listening() { listener_.reset(); }

  // Reports connections that were refused before at once. Empty: no watcher.
  void watch(Watcher watcher);

  // For an encrypting transport. At first only candidates with these keys may connect; ranks may
  // connect when they are known.
  void admit_candidates(std::vector<PublicKey> keys);
  // From then on only the ranks with these keys may connect. No rank can impersonate another one.
  void admit_ranks(std::vector<PublicKey> keys);

  // Expects candidates until all ranks have joined or the timeout has passed. Then calls `done`
  // once. Ok: joined() has the requests by rank (index 0 is this process). An error names the
  // missing ranks; the candidates are then refused, and expect() may be called again.
  void expect(const Plan& plan, int64_t timeout_ms, std::function<void(const Status&)> done);
  const std::vector<JoinRequest>& joined() const { return table_->requests(); }
  // The addresses of the last processes that had a rank, also of those that left before the run.
  std::vector<std::string> take_endpoints() { return std::move(endpoints_); }
  // This process is rank `self` of the run with that identity. Ranks that connected earlier were
  // kept until now. A connection that does not know the name of the run was not welcomed by rank 0,
  // and is refused.
  void take_members(int32_t self, const Identity& run, Member member);
  // Ends expect() with this error, if it has not called `done`.
  void expect_no_more(const Status& why);
  // Candidates are no longer expected: later ones are refused with this reason.
  void stop(const Status& why);
  // Rank 0: gives each candidate its welcome.
  void welcome(const Welcome& welcome, Left left);
  // Rank 0: the run has failed. Welcomed candidates that have not yet joined the run get this
  // reason, now or when they connect.
  void fail_run(const Origin& origin);
  // The run is over: no callback is called any more, and ranks that connect are refused.
  void end_run();

 private:
  struct Candidate;
  void accepted(std::unique_ptr<Connection> connection);
  void connected(PeerConnection&) override {}
  void received(PeerConnection& connection, int lane, std::span<const std::byte> frame) override;
  void sent(PeerConnection& connection, uint64_t token) override;
  void disconnected(PeerConnection& connection, const std::string& why) override;
  void received_from_rank(Candidate& candidate, const FrameHeader& header, int lane,
                          std::span<const std::byte> frame);
  void join_requested(Candidate& candidate, std::span<const std::byte> request);
  Status choose_rank(Candidate& candidate, const JoinRequest& request);
  int32_t rank_of(const Candidate& candidate) const;  // -1: none
  Candidate* candidate_of(int32_t rank) const;        // null: none
  void refuse(Candidate& candidate, const Status& why);
  void count_refused(const std::string& peer, const std::string& why);
  Status can_connect(int32_t ranks) const;
  Status not_joined() const;
  void report_rank(RunEvent::Kind kind, int32_t rank, const Process& process) const;
  void report_left(const Candidate& candidate, int32_t rank);
  Status check_member(const Candidate& candidate) const;
  bool may_join(const Candidate& candidate) const;
  bool is_own_key(const PublicKey& key) const;
  void send_failure(Candidate& candidate, const Origin& origin);
  void reject(PeerConnection& connection, const std::string& why);
  void drop(PeerConnection& connection);
  void hand_over(PeerConnection& connection);
  void tick();
  void tick_soon();
  void finish_if_full();
  void finish(const Status& status);
  void refuse_all(const Status& status);

  Loop& loop_;
  Transport& transport_;
  const LinkTimes times_;
  const size_t most_early_;
  std::unique_ptr<Listener> listener_;
  std::string endpoint_;
  std::vector<PublicKey> candidate_keys_, rank_keys_;
  std::map<PeerConnection*, std::unique_ptr<Candidate>> candidates_;
  std::optional<RankTable> table_;  // of the run that expects candidates, or that they joined
  static constexpr size_t kEndpoints = 4096;
  std::vector<std::string> endpoints_;
  std::vector<bool> has_connection_;  // by rank: that of the run, so the candidate may leave
  int64_t deadline_ = 0;
  std::function<void(const Status&)> done_;
  Status stopped_;  // ok: not stopped
  Watcher watcher_;
  MeshEvent refused_;  // the last, and their number
  Member member_;
  int32_t self_ = 0;  // arguments of take_members(): this rank, and the run
  Identity run_;
  Left left_;
  bool over_ = false;
  std::optional<Origin> failure_;  // of the run
  std::unique_ptr<Loop::Timer> timer_;
  bool ticks_ = false;  // the timer runs: there are connections, or candidates are expected
};

}  // namespace weft
