#include "runtime/rank_process.h"

#include <algorithm>

#include "base/text.h"
#include "partition/schedule_costs.h"
#include "runtime/clock.h"

namespace weft {

namespace {

constexpr int64_t kLongWait = 5'000'000'000;  // nanoseconds; logged, and then at twice the time

// Weight gradients that run at once on any rank.
int32_t most_joined(const Plan& plan) {
  int32_t most = 1;
  for (const RankProgram& rank : plan.mode(plan.main_mode()).ranks)
    for (const Job& job : rank.jobs) most = std::max(most, job.together);
  return most;
}

// For any stage, forward and backward, as estimated by the ops.
double longest_action(const Plan& plan) {
  const double together = most_joined(plan);
  const ScheduleCosts costs = schedule_costs(*plan.model, plan.config, {}, plan.stage_of_node);
  double longest = 0;
  for (size_t s = 0; s < costs.forward.size(); ++s)
    longest = std::max(longest, costs.forward[s] + costs.input[s] + together * costs.weight[s]);
  return longest;
}

bool has_ops_of_program(const Plan& plan, int32_t rank) {
  const std::vector<uint32_t> stages = plan.stages_on(rank);
  const auto& nodes = plan.model->nodes();
  for (size_t id = 0; id < nodes.size(); ++id)
    if (!nodes[id].is_input() && nodes[id].op->of_caller() &&
        std::count(stages.begin(), stages.end(), static_cast<uint32_t>(plan.stage_of_node[id])))
      return true;
  return false;
}

}  // namespace

RankProcess::RankProcess(Loop& loop, std::shared_ptr<const Plan> plan, Worker& worker,
                         const Identity& identity, LinkTimes times, Owner& owner, Log& log)
    : loop_(loop),
      plan_(std::move(plan)),
      worker_(worker),
      owner_(owner),
      log_(log),
      timer_(loop,
             [this] {
               node_->tick(now());
               act();
             }),
      watch_timer_(loop, [this] { watch(); }),
      stall_(has_ops_of_program(*plan_, worker.rank()) ? StallWatch::kLeastWithOps
                                                       : StallWatch::kLeast,
             longest_action(*plan_), monotonic_ns()),
      finished_(monotonic_ns()) {
  node_ = std::make_unique<RankNode>(plan_, worker.rank(), identity,
                                     static_cast<RankNodeEffects&>(*this), times);
}

RankProcess::~RankProcess() {
  thread_.reset();  // waits for the running job
  for (auto& [peer, connection] : connections_) retire(loop_, std::move(connection));
  for (auto& connection : closing_) retire(loop_, std::move(connection));
}

Status RankProcess::start() {
  auto ran = [this](const WorkerTask& task, const Status& status, const JobTime& time) {
    if (task.job >= 0) {
      stall_.ran(time);
      finished_ = time.end;
    }
    if (task.job < 0 && status.ok())
      node_->copied(task.edge, task.micro_batch, now());
    else
      node_->ran(task.job, worker_.squares(), status, now(), time);
    act();
  };
  WEFT_TRY_ASSIGN(thread_, JobThread::make(loop_, worker_, node_->most_tasks(), 1, ran));
  watch_timer_.start(1000);
  node_->start(now());
  act();
  return {};
}

// Nothing reads the batch any more when the owner is called.
void RankProcess::failed(const Origin& origin) {
  for (auto& [peer, connection] : connections_) connection->raw().forget();
  worker_.drop_feeds();
  log_.warning([&] { return cat("the run has failed: ", origin_text(origin)); });
  owner_.failed(origin);
}

void RankProcess::stop(const Status& why) {
  if (attempt([&] { fail(why.code(), why.text()); }).ok()) return;
  // A longer text could need memory; a short one does not.
  (void)attempt(
      [&] { fail({.rank = worker_.rank(), .code = why.code(), .detail = "out of memory"}); });
}

void RankProcess::watch() {
  if (node_->has_failed()) return;
  const int64_t at = monotonic_ns();
  if (node_->idle() || node_->awaits_owner()) finished_ = at;
  if (!node_->must_progress()) {
    stall_.begin(at);
  } else if (const int64_t silent = stall_.stalled(at)) {
    node_->fail(
        Code::timed_out,
        cat("nothing has finished for ", silent / 1'000'000'000, " s: ", node_->describe(now())),
        now(), node_->engine().activity());
    act();
    return;
  }
  note_wait(at - finished_);
  watch_timer_.start(1000);
}

void RankProcess::note_wait(int64_t quiet) {
  if (quiet < kLongWait) next_note_ = kLongWait;
  if (quiet < next_note_) return;
  next_note_ = 2 * quiet;
  log_.warning([&] {
    return cat("nothing has finished here for ", quiet / 1'000'000'000,
               " s: ", node_->describe(now()));
  });
}

void RankProcess::act() {
  const LinkTime next = node_->next_tick();
  if (next == kNever)
    timer_.stop();
  else
    timer_.start(std::max<int64_t>(next - now(), 0));
  if (!node_->is_dead()) return;
  // The remaining connections were dialed and never connected.
  for (auto& [peer, connection] : connections_) retire(loop_, std::move(connection));
  connections_.clear();
  if (has_no_connection()) owner_.all_closed();
}

Status RankProcess::dial(Transport& transport, int32_t peer, const std::string& endpoint,
                         const DialKeys& keys) {
  WEFT_TRY_ASSIGN(auto raw, transport.dial(endpoint, &keys).within(cat("rank ", peer)));
  auto connection = std::make_unique<PeerConnection>(std::move(raw), peer);
  PeerConnection& started = *connection;
  connections_[peer] = std::move(connection);
  started.start(*this);
  return {};
}

bool RankProcess::accept(int32_t peer, std::unique_ptr<PeerConnection>& connection, int lane,
                         std::span<const std::byte> first) {
  const auto& peers = node_->peers();
  if (std::find(peers.begin(), peers.end(), peer) == peers.end() || peer < worker_.rank() ||
      accepted_.count(peer))
    return false;
  accepted_.insert(peer);
  PeerConnection& taken = *connection;
  taken.set_rank(peer);
  taken.hand_to(this);
  connections_[peer] = std::move(connection);
  connected(taken);
  received(taken, lane, first);
  return true;
}

Status RankProcess::begin(const StepDescriptor& step, const Batch& batch) {
  worker_.feed(node_->next_sequence(), &batch);
  Status status = node_->begin(step, now());
  act();
  return status;
}

Status RankProcess::feed(int32_t micro_batches) {
  Status status = node_->feed(micro_batches, now());
  act();
  return status;
}

void RankProcess::open_sinks() {
  node_->open_sinks(now());
  act();
}

// --- called by the node

void RankProcess::run(const StepDescriptor& step, double scale, int32_t job, bool deliver) {
  thread_->push({step, scale, job, deliver});
}

void RankProcess::copy(const MessageAt& at) {
  // The engine ends no step before its copies have been made.
  thread_->push({.step = node_->step(), .edge = at.edge, .micro_batch = at.micro_batch});
}

Result<std::span<const std::byte>> RankProcess::outgoing(const MessageAt& at) {
  if (const Edge& edge = plan_->mode(at.mode).edges[static_cast<size_t>(at.edge)];
      edge.kind == EdgeKind::feed)
    return worker_.input(*node_->find_step(edge.kind, at.sequence), at.edge, at.micro_batch);
  return worker_.outgoing(at.mode, at.edge, at.micro_batch, at.variant);
}

Result<std::span<std::byte>> RankProcess::landing(const MessageAt& at) {
  return worker_.landing(at.mode, at.edge, at.micro_batch, at.variant, at.sequence);
}

double RankProcess::loss(const MessageAt& at) {
  const auto bytes = worker_.landing(at.mode, at.edge, at.micro_batch, at.variant, at.sequence);
  return *reinterpret_cast<const double*>(bytes.data());
}

void RankProcess::send(int32_t peer, Lane lane, std::span<const std::byte, kHeaderBytes> header,
                       std::span<const std::byte> payload, uint64_t token) {
  if (auto connection = connections_.find(peer); connection != connections_.end())
    connection->second->raw().send(static_cast<int>(lane), header, payload, token);
}

void RankProcess::hang_up(int32_t peer) {
  auto taken = connections_.extract(peer);
  if (!taken) return;
  taken.mapped()->raw().close_after(kLingerMs);
  closing_.push_back(std::move(taken.mapped()));
}

std::string RankProcess::trouble(int32_t peer) {
  const auto at = connections_.find(peer);
  return at == connections_.end() ? std::string() : at->second->raw().trouble();
}

// --- called by the connections

// Not for a connection that was hung up: it is read no more.
void RankProcess::connected(PeerConnection& connection) {
  log_.debug([&] { return cat("connected with ", rank_name(connection.rank())); });
  node_->connected(connection.rank(), now());
  act();
}

void RankProcess::received(PeerConnection& connection, int lane, std::span<const std::byte> frame) {
  node_->received(connection.rank(), static_cast<Lane>(lane), frame, now());
  act();
}

void RankProcess::sent(PeerConnection& connection, uint64_t token) {
  node_->sent(connection.rank(), token, now());
  act();
}

void RankProcess::disconnected(PeerConnection& connection, const std::string& why) {
  const int32_t peer = connection.rank();
  log_.debug([&] { return cat("the connection with ", rank_name(peer), " ended: ", why); });
  retire(loop_, std::move(connections_.extract(peer).mapped()));
  node_->disconnected(peer, why, now());
  act();
  if (has_no_connection()) owner_.all_closed();
}

void RankProcess::hung_up(PeerConnection& connection) {
  const auto at = std::find_if(closing_.begin(), closing_.end(),
                               [&](const auto& one) { return one.get() == &connection; });
  retire(loop_, std::move(*at));
  closing_.erase(at);
  if (has_no_connection()) owner_.all_closed();
}

}  // namespace weft
