// The door of a process: candidates and ranks of the run dial its address. At rank 0 candidates say
// what they are, and are given their ranks once all have come; elsewhere only ranks are let in.
// Lives on the loop thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/peer_connection.h"
#include "runtime/refusals.h"
#include "runtime/welcome.h"

namespace weft {

class Admission final : private PeerConnection::Reader {
 public:
  // A connection whose first frame comes from a rank of the run, not from a candidate. False, and
  // `wire` is untouched: that rank is not awaited.
  using Member = std::function<bool(int32_t rank, std::unique_ptr<PeerConnection>& wire, int lane,
                                    std::span<const std::byte> first)>;

  // A rank that was given its place and went before it had joined the run, and why.
  using Left = std::function<void(const Origin& origin)>;

  // `refusals` outlives it. `times`: of the links of candidates; `hello` is how long a connection
  // may say nothing. `most_early`: how many ranks are kept until they are wanted.
  Admission(Loop& loop, Transport& transport, Refusals& refusals, LinkTimes times = {},
            size_t most_early = 1024);
  ~Admission() override;

  Status listen(const std::string& endpoint);
  const std::string& endpoint() const { return endpoint_; }
  // The address takes no more connections; those that are there stay.
  void stop_listening() { listener_.reset(); }

  // Over a transport that encrypts. First come those who may ask to join, by their keys; others may
  // come only once the ranks are known.
  void admit_guests(std::vector<PublicKey> keys);
  // From then on the ranks of the run, by theirs, and nobody else. None can speak for another one.
  void admit_ranks(std::vector<PublicKey> keys);

  // From here candidates are expected until `ranks` - 1 are there, or the time is over. Then `done`
  // is told, once: with the candidates' requests by rank (index 0 is this process), or with why
  // not, naming who is missing; those who came are told, and others may be expected after that.
  void expect(const Plan& plan, int64_t timeout_ms, std::function<void(const Status&)> done);
  const std::vector<JoinRequest>& joined() const { return joined_; }
  // This is rank `self` of the run with that identity. Ranks of it may come before they are wanted;
  // they are kept until now. Who does not know the run's name was not welcomed by rank 0, and is
  // turned away.
  void take_members(int32_t self, const Identity& run, Member member);
  // Candidates are not waited for any more, and who comes is told so.
  void stop(const Status& why);
  // Rank 0: gives each candidate its welcome.
  void welcome(const Welcome& welcome, Left left);
  // Rank 0: the run has failed. Those who were welcomed and have not joined it yet are told why,
  // here or when they come.
  void dismiss(const Origin& origin);
  // The run is over: nobody is told of anyone any more, and ranks that come are turned away.
  void end_run();

 private:
  struct Candidate;
  void accepted(std::unique_ptr<Connection> connection);
  void connected(PeerConnection&) override {}
  void received(PeerConnection& wire, int lane, std::span<const std::byte> frame) override;
  void sent(PeerConnection& wire, uint64_t token) override;
  void disconnected(PeerConnection& wire, const std::string& why) override;
  void met_rank(Candidate& candidate, const FrameHeader& header, int lane,
                std::span<const std::byte> frame);
  void asked(Candidate& candidate, std::span<const std::byte> request);
  Status seat(Candidate& candidate, const JoinRequest& request);
  void place(Candidate& candidate, int32_t rank, const JoinRequest& request);
  void refuse(Candidate& candidate, const Status& why);
  void tell_left(const Candidate& candidate);
  Status check_member(const Candidate& candidate) const;
  bool may_ask(const Candidate& candidate) const;
  bool is_own_key(const PublicKey& key) const;
  void tell_failure(Candidate& candidate, const Origin& origin);
  void turn_away(PeerConnection& wire, const std::string& why);
  void drop(PeerConnection& wire);
  void hand_over(PeerConnection& wire);
  void tick();
  void tick_soon();
  void finish_if_full();
  void finish(const Status& status);
  void send_away(const Status& status);

  Loop& loop_;
  Transport& transport_;
  Refusals& refusals_;
  const LinkTimes times_;
  const size_t most_early_;
  std::unique_ptr<Listener> listener_;
  std::string endpoint_;
  std::vector<PublicKey> candidate_keys_, rank_keys_;
  std::map<PeerConnection*, std::unique_ptr<Candidate>> candidates_;
  std::vector<Candidate*>
      seats_;  // per rank; index 0 stays empty. A candidate has a rank if and only if it sits there
  std::vector<JoinRequest> joined_;
  std::vector<bool>
      came_;  // per rank: its connection of the run is there, so that its candidate may leave
  const Plan* plan_ = nullptr;
  int64_t deadline_ = 0;
  std::function<void(const Status&)> done_;
  Status stopped_;  // ok: it goes on
  Member member_;
  int32_t self_ = 0;  // what member_ is told of: this rank, and the run
  Identity run_;
  Left left_;
  bool over_ = false;
  std::optional<Origin> failure_;  // of the run
  std::unique_ptr<Loop::Timer> timer_;
  bool ticks_ = false;  // the timer runs: while somebody is here, or is expected
};

}  // namespace weft
