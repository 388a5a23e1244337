#include "support/sim_mesh.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"

namespace weft::test {

// A process of the mesh: the counterpart of src/runtime, with a simulated network instead of
// sockets and digests instead of floats.
struct SimMesh::Rank final : RankNodeEffects {
  Rank(SimMesh& owner, int32_t self, const Identity& identity)
      : mesh(owner),
        rank(self),
        worker(owner.plan_, self),
        node(owner.plan_, self, identity, *this, owner.settings_.times) {}

  using Key = std::tuple<uint64_t, int32_t, int32_t>;  // step, edge, micro-batch
  static Key key_of(const MessageAt& at) { return {at.sequence, at.edge, at.micro_batch}; }
  static std::span<std::byte> bytes_of(Digest& digest) {
    return std::as_writable_bytes(std::span(&digest, 1));
  }
  const Edge& edge(const MessageAt& at) const {
    return mesh.plan_->mode(at.mode).edges[static_cast<size_t>(at.edge)];
  }

  void run(const StepDescriptor& step, double scale, int32_t job, bool) override {
    start({.rank = rank, .job = job, .step = step, .scale = scale});
  }
  void copy(const MessageAt& at) override { start({.rank = rank, .job = -1, .at = at}); }
  void start(Job job) {
    const LinkTime longest = mesh.settings_.longest_job;
    worker_free = std::max(worker_free, mesh.now_) +
                  (longest > 0 ? static_cast<LinkTime>(mesh.rng_() % (longest + 1)) : 0);
    job.end = worker_free;
    job.order = mesh.order_++;
    mesh.jobs_.push_back(job);
  }
  Result<std::span<const std::byte>> outgoing(const MessageAt& at) override {
    Digest& value = out[key_of(at)];
    WEFT_TRY_ASSIGN(value, worker.outgoing(mesh.step(at.sequence), at.edge, at.micro_batch));
    return std::span<const std::byte>(bytes_of(value));
  }
  Result<std::span<std::byte>> landing(const MessageAt& at) override {
    return bytes_of(in[key_of(at)]);
  }
  Status landed(const MessageAt& at) override {
    Digest& value = in[key_of(at)];
    if (edge(at).from_rank == rank) {
      WEFT_TRY_ASSIGN(value, worker.outgoing(mesh.step(at.sequence), at.edge, at.micro_batch));
    }
    return worker.land(mesh.step(at.sequence), at.edge, at.micro_batch, value);
  }
  double loss(const MessageAt& at) override { return as_number(in[key_of(at)]); }
  void send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    mesh.network_.send(rank, peer, lane, header, payload, token, mesh.now_);
  }
  void hang_up(int32_t peer) override { mesh.network_.close(rank, peer, mesh.now_); }

  void joined() override { mesh.joined_ = mesh.joined_ || rank == 0; }
  void message(int32_t, uint32_t, std::span<const std::byte>) override {}
  void micro_batch(int32_t mb) override {
    (void)worker.read_sinks(mesh.step(mesh.outcomes_.size()), mb, deliveries);
  }
  void step_done(const StepResult& result) override {
    DigestStep& outcome = mesh.outcomes_.emplace_back();
    outcome.result = result;
    outcome.deliveries = std::exchange(deliveries, {});
  }
  void failed(const Origin&) override { failed_at = mesh.now_; }
  void closed() override { is_closed = true; }

  SimMesh& mesh;
  const int32_t rank;
  DigestWorker worker;
  RankNode node;
  LinkTime worker_free = 0, failed_at = kNever;
  bool is_closed = false, broken = false;
  std::map<Key, Digest> out, in;
  std::vector<std::vector<Digest>> deliveries;  // rank 0: of the oldest step
};

SimMesh::SimMesh(std::shared_ptr<const Plan> plan, SimMeshSettings settings)
    : plan_(std::move(plan)),
      settings_(std::move(settings)),
      rng_(settings_.seed),
      network_(settings_.seed + 1, settings_.faults) {
  for (int32_t r = 0; r < plan_->config.ranks; ++r)
    ranks_.push_back(
        std::make_unique<Rank>(*this, r, settings_.identity ? settings_.identity(r) : Identity{}));
}

SimMesh::~SimMesh() = default;

RankNode& SimMesh::node(int32_t rank) { return ranks_[static_cast<size_t>(rank)]->node; }
const DigestWorker& SimMesh::worker(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)]->worker;
}
LinkTime SimMesh::failed_at(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)]->failed_at;
}
bool SimMesh::closed(int32_t rank) const { return ranks_[static_cast<size_t>(rank)]->is_closed; }

void SimMesh::start() {
  for (auto& rank : ranks_) {
    rank->node.start(now_);
    for (int32_t peer : rank->node.peers())
      if (peer < rank->rank) network_.connect(rank->rank, peer, now_);
  }
}

void SimMesh::kill(int32_t rank) {
  gone_.insert(rank);
  network_.kill(rank, now_);
}

void SimMesh::stall(int32_t rank) {
  gone_.insert(rank);
  network_.stall(rank);
}

void SimMesh::break_worker(int32_t rank) { ranks_[static_cast<size_t>(rank)]->broken = true; }

Status SimMesh::begin(const StepDescriptor& step) {
  steps_.push_back(step);
  steps_.back().sequence = steps_.size() - 1;
  return node(0).begin(step, now_);
}

LinkTime SimMesh::next_tick(int32_t* rank) const {
  LinkTime next = kNever;
  for (const auto& r : ranks_) {
    const LinkTime tick = gone_.contains(r->rank) ? kNever : r->node.next_tick();
    if (tick >= next) continue;
    next = tick;
    *rank = r->rank;
  }
  return next;
}

void SimMesh::finish(const Job& job) {
  if (gone_.contains(job.rank)) return;
  Rank& rank = *ranks_[static_cast<size_t>(job.rank)];
  if (rank.node.has_failed()) return;
  if (job.job < 0) return rank.node.copied(job.at.edge, job.at.micro_batch, now_);
  const Status status = rank.broken ? Status(Code::user, "a job returned an error")
                                    : rank.worker.run(job.step, job.scale, job.job);
  rank.node.ran(job.job, rank.worker.squares(), status, now_);
}

void SimMesh::step_event(const SimNetwork::Event& event) {
  RankNode& node = ranks_[static_cast<size_t>(event.rank)]->node;
  switch (event.kind) {
    case SimNetwork::Event::Kind::connected: return node.connected(event.peer, now_);
    case SimNetwork::Event::Kind::frame:
      return node.received(event.peer, event.lane, event.frame, now_);
    case SimNetwork::Event::Kind::sent: return node.sent(event.peer, event.token, now_);
    case SimNetwork::Event::Kind::disconnected:
      return node.disconnected(event.peer, "connection closed", now_);
  }
}

void SimMesh::run(LinkTime end, const std::function<bool()>& until) {
  while (!until || !until()) {
    int32_t ticking = 0;
    const LinkTime tick = next_tick(&ticking);
    const auto job = std::min_element(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) {
      return a.end != b.end ? a.end < b.end : a.order < b.order;
    });
    const LinkTime work = job == jobs_.end() ? kNever : job->end;
    const LinkTime next = std::min({tick, work, network_.next_time()});
    if (next == kNever || next > end) break;
    now_ = std::max(now_, next);
    if (network_.next_time() == next) {
      SimNetwork::Event event;
      if (network_.take(event)) step_event(event);
    } else if (work == next) {
      const Job done = *job;
      jobs_.erase(job);
      finish(done);
    } else {
      node(ticking).tick(now_);
    }
  }
  if (!until && end != kNever) now_ = std::max(now_, end);
}

}  // namespace weft::test
