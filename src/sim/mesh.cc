#include "sim/mesh.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace weft {

// A process of the mesh: what src/runtime does with sockets and floats, done with a network and
// digests that are made up.
struct SimMesh::Rank final : RankNodeEffects {
  Rank(SimMesh& owner, int32_t self, const Identity& identity)
      : mesh(owner),
        rank(self),
        worker(owner.plan_, self),
        node(owner.plan_, self, identity, *this, owner.settings_.times) {}

  using Key = std::pair<int32_t, int32_t>;  // edge, micro-batch
  static std::span<std::byte> bytes_of(Digest& digest) {
    return std::as_writable_bytes(std::span(&digest, 1));
  }
  const Edge& edge(const MessageAt& at) const {
    return mesh.plan_->mode(at.mode).edges[static_cast<size_t>(at.edge)];
  }

  void run(const StepDescriptor& step, double scale, int32_t job) override {
    const LinkTime longest = mesh.settings_.longest_job;
    worker_free = std::max(worker_free, mesh.now_) +
                  (longest > 0 ? static_cast<LinkTime>(mesh.rng_() % (longest + 1)) : 0);
    mesh.jobs_.push_back({worker_free, mesh.order_++, rank, job, step, scale});
  }
  Result<std::span<const std::byte>> outgoing(const MessageAt& at) override {
    Digest& value = out[{at.edge, at.micro_batch}];
    const Edge& e = edge(at);
    if (e.kind == EdgeKind::feed) {
      const StepGraph& graph = mesh.plan_->mode(at.mode).graph;
      value = Provenance::fed(graph.tensors[static_cast<size_t>(e.tensor)].node, mesh.step_,
                              at.micro_batch);
    } else {
      WEFT_TRY_ASSIGN(value, worker.outgoing(mesh.step_, at.edge, at.micro_batch));
    }
    return std::span<const std::byte>(bytes_of(value));
  }
  Result<std::span<std::byte>> landing(const MessageAt& at) override {
    return bytes_of(in[{at.edge, at.micro_batch}]);
  }
  Status landed(const MessageAt& at) override {
    return worker.land(mesh.step_, at.edge, at.micro_batch, in[{at.edge, at.micro_batch}]);
  }
  double loss(const MessageAt& at) override { return as_number(in[{at.edge, at.micro_batch}]); }
  void send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    mesh.network_.send(rank, peer, lane, header, payload, token, mesh.now_);
  }
  void hang_up(int32_t peer) override { mesh.network_.close(rank, peer, mesh.now_); }

  void joined() override { mesh.joined_ = mesh.joined_ || rank == 0; }
  void message(int32_t, uint32_t, std::span<const std::byte>) override {}
  void micro_batch(int32_t mb) override {
    const auto& edges = mesh.plan_->mode(mesh.step_.mode).edges;
    size_t sink = 0;
    for (size_t e = 0; e < edges.size(); ++e) {
      if (edges[e].kind != EdgeKind::sink) continue;
      auto value = worker.landed(mesh.step_, static_cast<int32_t>(e), mb);
      if (value.ok()) mesh.outcome_.deliveries[sink][static_cast<size_t>(mb)] = value.value();
      ++sink;
    }
  }
  void step_done(const StepResult& result) override {
    mesh.outcome_.result = result;
    mesh.over_ = true;
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
  step_ = step;
  step_.sequence = node(0).next_sequence();
  outcome_ = {};
  const auto& edges = plan_->mode(step_.mode).edges;
  const auto sinks = std::count_if(edges.begin(), edges.end(),
                                   [](const Edge& e) { return e.kind == EdgeKind::sink; });
  outcome_.deliveries.assign(static_cast<size_t>(sinks),
                             std::vector<Digest>(static_cast<size_t>(step_.micro_batches)));
  over_ = false;
  return node(0).begin(step_, now_);
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

}  // namespace weft
