#include "partition/run_bytes.h"

#include <algorithm>
#include <set>

#include "partition/schedule_costs.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// If the schedule requires stages that are no chain, any order of them.
StageTimes times_of(const Schedule& schedule) {
  StageTimes chain = lock_step_of_chain(schedule);
  return chain.empty() ? lock_step(schedule, {}) : chain;
}

}  // namespace

Result<RunBytes> RunBytes::make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                                Schedule train, KnownRuns& known) {
  if (!config.schedule_text.empty())
    WEFT_TRY(check_schedule(train, {}).status().within("schedule of mode train"));
  RunBytes out(model, config, ops);
  if (train.updates > 0) {
    out.config_.packed.clear();
    out.config_.segment = train.updates;
  }
  WEFT_TRY_ASSIGN(out.terms_, known.of(model, out.config_, ops, train));
  out.model_ = out.terms_->pieces().get();
  out.known_param_bytes_.resize(out.model_->params().size());
  const auto stages = static_cast<size_t>(train.stages);
  out.versions_.resize(stages);
  if (train.updates > 0) {
    WEFT_TRY_ASSIGN(out.versions_, weight_versions(train, config.vertical_sync));
  }
  WEFT_TRY_ASSIGN(out.recompute_, parse_recompute(config.recompute));
  std::vector<std::set<Kind>> kinds(stages);
  for (const auto& row : train.rows)
    for (const Action& action : row) kinds[static_cast<size_t>(action.stage)].insert(action.kind);
  for (const auto& of_stage : kinds) out.kinds_.emplace_back(of_stage.begin(), of_stage.end());
  out.train_ = std::move(train);
  out.set_again();
  for (Mode mode : kEveryMode)
    if (makes(model, config, mode)) WEFT_TRY(out.add_mode(mode));
  out.set_times();
  return out;
}

bool RunBytes::recomputes_in_blocks(size_t s) const {
  return std::any_of(again_[s].begin(), again_[s].end(),
                     [](int32_t calls) { return calls > 0 && calls < Recompute::kWhole; });
}

int32_t RunBytes::replicas_of(size_t s) const {
  return train_.replicas.empty() ? config_.data : train_.replicas[s];
}

Status RunBytes::add_mode(Mode mode) {
  auto info = std::make_unique<ModeInfo>();
  info->mode = mode;
  info->schedule = train_;
  if (mode != Mode::train) {
    WEFT_TRY_ASSIGN(info->schedule,
                    make_forward(train_, forward_micro_batches(config_, mode, train_)));
    info->times = times_of(info->schedule);
  }
  const int32_t all = config_.data > 1 ? config_.micro_batches : info->schedule.micro_batches;
  for (const int64_t bytes : terms_->sinks(mode))
    info->sinks = sum_of_bytes(info->sinks, bytes_of_many(bytes, all));
  modes_.push_back(std::move(info));
  return {};
}

void RunBytes::set_order(Schedule train) {
  train_ = std::move(train);
  set_again();
  set_times();
}

void RunBytes::set_again() {
  again_.clear();
  for (const int32_t calls : calls_per_block(recompute_, train_)) again_.push_back({calls});
}

void RunBytes::set_recompute(Again again) {
  again_ = std::move(again);
  set_times();
}

void RunBytes::set_times() {
  Schedule order = train_;
  std::vector<bool> wanted;
  form_.clear();
  for (size_t s = 0; s < again_.size(); ++s) {
    wanted.push_back(*std::max_element(again_[s].begin(), again_[s].end()) > 0);
    form_.push_back(terms_->form({kinds_[s], again_[s]}));
  }
  add_recompute(order, std::move(wanted));
  turn_.assign(again_.size(), 0);
  for (const auto& row : order.rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (row[i].kind == Kind::B || row[i].kind == Kind::W)
        turn_[static_cast<size_t>(row[i].stage)] = i;
  for (auto& mode : modes_) {
    if (mode->mode == Mode::train) {
      mode->times = times_of(order);
      mode->schedule = order;
    }
    mode->slots.assign(again_.size(), {});
  }
  known_.assign(again_.size(), {});
  known_ranks_.clear();
}

// A tensor between two stages of a rank has one ring. The producing stage holds it until the last
// read of the other stages.
int32_t RunBytes::slots(ModeInfo& mode, std::span<const StageRun> stages, size_t s,
                        const Term& term, int32_t tensor_rank) {
  std::vector<Holding::Reader> readers;
  for (const Peer& peer : term.peers) {
    Holding::Reader reader{.stage = static_cast<int32_t>(s) + peer.stage, .phase = term.read};
    if (reader.stage < 0 || reader.stage >= train_.stages) return 0;
    const auto there = std::find_if(stages.begin(), stages.end(), [&](const StageRun& other) {
      return static_cast<int32_t>(other.at.stage) == reader.stage;
    });
    if (there != stages.end() && peer.tensor_rank == tensor_rank) {
      if (term.kind == Holding::Kind::landing) return 0;
      const auto& until = there->run->shares[static_cast<size_t>(tensor_rank)]
                              .until[static_cast<size_t>(mode.mode)];
      if (const auto at = until.find(term.tensor); at != until.end()) reader.phase = at->second;
    }
    if (term.kind != Holding::Kind::landing) readers.push_back(reader);
  }
  std::vector<int32_t> key = {static_cast<int32_t>(term.kind), term.first, term.last, slack_};
  for (const Holding::Reader& reader : readers) key.insert(key.end(), {reader.stage, reader.phase});
  const auto [known, fresh] = mode.slots[s].try_emplace(std::move(key), 0);
  if (!fresh) return known->second;
  const auto stage = static_cast<int32_t>(s);
  const Holding holding{
      .kind = term.kind, .first = term.first, .last = term.last, .tensors = {}, .readers = {}};
  return known->second = slots_of(holding, stage, readers, mode.times, slack_,
                                  mode.schedule.replicas_of(stage));
}

size_t RunBytes::position_of(size_t stage, int32_t tensor_rank) const {
  return static_cast<size_t>(train_.rank_of_stage[stage] * config_.shard_ranks + tensor_rank);
}

size_t RunBytes::rank_of(size_t stage, size_t own) const {
  const auto replicas = static_cast<size_t>(replicas_of(stage)), tensor_rank = own / replicas;
  const size_t positions = train_.rows.size() * static_cast<size_t>(config_.shard_ranks);
  return position_of(stage, static_cast<int32_t>(tensor_rank)) +
         own % replicas * (train_.replicas.empty() ? positions : 1);
}

int32_t RunBytes::own_micro_batches(const ModeInfo& mode, size_t s, int32_t replica) const {
  const int32_t all = mode.schedule.micro_batches, replicas = replicas_of(s);
  if (!train_.replicas.empty()) return (all - replica + replicas - 1) / replicas;
  if (replicas == 1) return all;
  const GradientGroups groups{config_.micro_batches, config_.gradient_groups};
  const int32_t own = config_.gradient_groups / replicas;
  return groups.begin((replica + 1) * own) - groups.begin(replica * own);
}

RankBytes RunBytes::sum_of(std::span<const StageRun> stages, ModeInfo& mode, size_t rank,
                           const Parameters& parameters) {
  const size_t first = stages.front().at.stage;
  const int32_t replicas = replicas_of(first);
  const auto tensor_rank = static_cast<int32_t>(rank) / replicas,
             d = static_cast<int32_t>(rank) % replicas;
  const auto m = static_cast<size_t>(mode.mode);
  const int64_t fixed = parameters.bytes[rank];
  const bool controls = rank == 0 && train_.rank_of_stage[first] == 0;
  int64_t all = sum_of_bytes(fixed, controls ? mode.sinks : 0), stays = 0, scratch = 0;
  for (const StageRun& stage : stages) {
    const size_t s = stage.at.stage;
    const Share& share = stage.run->shares[static_cast<size_t>(tensor_rank)];
    const bool in_blocks = recomputes_in_blocks(s);
    scratch = std::max(scratch, share.scratch[m]);
    const auto bytes_of = [&](const Term& term) {
      const int32_t count =
          slots_in(slots(mode, stages, s, term, tensor_rank), own_micro_batches(mode, s, d),
                   arrives_early(config_, mode.mode, term.kind));
      return bytes_of_many(term.bytes, count);
    };
    for (const Term& term : share.terms[m]) {
      all = sum_of_bytes(all, bytes_of(term));
      if (term.stays(in_blocks))
        stays =
            sum_of_bytes(stays, bytes_of({Holding::Kind::kept, term.first, term.last, term.bytes}));
    }
  }
  all = sum_of_bytes(all, gathered_bytes(stages, mode, static_cast<size_t>(tensor_rank),
                                         static_cast<int32_t>(rank), parameters));
  RankBytes out{.all = sum_of_bytes(all, scratch),
                .least = sum_of_bytes(parameters.least[rank], stays)};
  if (mode.mode != Mode::train) return out;
  out.train = out.all;
  out.scratch = scratch;
  return out;
}

const std::vector<RankBytes>& RunBytes::sum_of(std::span<const StageRun> stages) {
  std::vector<size_t> key = {static_cast<size_t>(slack_)};
  bool complete = true;
  for (const StageRun& stage : stages) {
    key.insert(key.end(), {stage.at.stage, reinterpret_cast<size_t>(stage.run)});
    complete = complete && stage.run->complete;
  }
  const auto [known, fresh] = known_ranks_.try_emplace(std::move(key));
  std::vector<RankBytes>& out = known->second;
  if (!fresh) return out;
  const Parameters& parameters = parameters_of(stages);
  out.resize(parameters.bytes.size());
  for (size_t rank = 0; rank < out.size(); ++rank) {
    RankBytes& most = out[rank];
    const size_t stage = stages.front().at.stage;
    most.position = position_of(stage, static_cast<int32_t>(rank) / replicas_of(stage));
    most.limit = limit_of(config_, rank_of(stage, rank));
    for (const auto& mode : modes_) {
      const RankBytes next = sum_of(stages, *mode, rank, parameters);
      most.train = std::max(most.train, next.train);
      most.scratch = std::max(most.scratch, next.scratch);
      most.all = complete ? std::max(most.all, next.all) : kEndless;
      most.least = std::max(most.least, next.least);
    }
  }
  return out;
}

BytesOfRun RunBytes::of(const RunOfNodes& at) {
  const auto [known, fresh] =
      known_[at.stage].try_emplace(at.begin * (ops_.ids.size() + 1) + at.end);
  if (!fresh) return known->second;
  BytesOfRun& out = known->second;
  const StageRun stage{at, &run(at, nullptr)};
  for (const RankBytes& rank : sum_of({&stage, 1})) {
    out.more = out.more && rank.least <= rank.limit;
    out.most = std::max(out.most, rank.all);
    out.least = std::max(out.least, rank.least);
    if (out.limit < INT64_MAX && rank.all - rank.limit <= out.all - out.limit) continue;
    out.all = rank.all;
    out.limit = rank.limit;
  }
  out.grows = !recomputes_in_blocks(at.stage);
  return out;
}

bool RunBytes::can_fit(const std::vector<RunOfNodes>& stages) {
  std::vector<StageRun> runs;
  for (const RunOfNodes& at : stages) runs.push_back({at, &run(at, nullptr)});
  const std::vector<RankBytes>& ranks = sum_of(runs);
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const RankBytes& rank) { return rank.least <= rank.limit; });
}

std::vector<RunOfNodes> RunBytes::runs_at(const std::vector<size_t>& first) const {
  std::vector<RunOfNodes> out;
  for (size_t s = 0; s < first.size(); ++s)
    out.push_back({s, first[s], s + 1 < first.size() ? first[s + 1] : ops_.ids.size()});
  return out;
}

std::vector<RankBytes> RunBytes::of_ranks(const std::vector<size_t>& first) {
  slack_ = slack_at(first);
  std::vector<std::vector<StageRun>> stages(train_.rows.size());
  for (const RunOfNodes& at : runs_at(first))
    stages[static_cast<size_t>(train_.rank_of_stage[at.stage])].push_back({at, &run(at, &first)});
  std::vector<RankBytes> out(static_cast<size_t>(config_.ranks));
  for (const auto& own : stages) {
    if (own.empty()) continue;
    const std::vector<RankBytes>& ranks = sum_of(own);
    for (size_t i = 0; i < ranks.size(); ++i) out[rank_of(own.front().at.stage, i)] = ranks[i];
  }
  slack_ = std::max(config_.slack, 1);
  return out;
}

// As the plan of these stages chooses it.
int32_t RunBytes::slack_at(const std::vector<size_t>& first) const {
  if (config_.slack > 0 || config_.machines.latency <= 0) return std::max(config_.slack, 1);
  std::vector<int32_t> stage_of_node(whole_->nodes().size(), 0);
  for (const RunOfNodes& at : runs_at(first))
    for (size_t i = at.begin; i < at.end; ++i)
      stage_of_node[static_cast<size_t>(ops_.ids[i])] = static_cast<int32_t>(at.stage);
  const PlanConfig pipeline = pipeline_config(config_);
  return slack_for(schedule_costs(*whole_, pipeline, config_.times, stage_of_node),
                   train_.rank_of_stage, pipeline);
}

void RunBytes::add_to(ScheduleCosts& costs, const std::vector<size_t>& first) {
  for (const RunOfNodes& at : runs_at(first)) {
    const StageRun stage{at, &run(at, &first)};
    double held = 0, parked = 0, kept = 0;
    for (const Share& share : stage.run->shares) {
      double held_here = 0, parked_here = 0, kept_here = 0;
      for (const Term& term : share.terms[static_cast<size_t>(Mode::train)]) {
        const auto bytes = static_cast<double>(term.bytes);
        const bool is_held = term.first == kPhaseF && term.last > kPhaseF,
                   is_parked = term.first < kPhaseW && term.last == kPhaseW;
        if (is_held) held_here += bytes;
        if (is_parked) parked_here += bytes;
        if (is_held && is_parked) kept_here += bytes;
      }
      held = std::max(held, held_here);
      parked = std::max(parked, parked_here);
      kept = std::max(kept, kept_here);
    }
    const Parameters& parameters = parameters_of({&stage, 1});
    const int64_t fixed = *std::max_element(parameters.bytes.begin(), parameters.bytes.end());
    costs.held[at.stage] += held;
    costs.parked[at.stage] += parked;
    costs.kept[at.stage] += kept;
    costs.fixed[at.stage] += static_cast<double>(fixed);
  }
}

std::vector<RemadeCalls> RunBytes::remade(size_t stage, const std::vector<size_t>& first,
                                          const std::vector<NodeTimes>& times) {
  std::vector<RemadeCalls> out = terms_->remade(runs_at(first)[stage], form_[stage], first, times);
  for (RemadeCalls& calls : out) calls.position = position_of(stage, calls.tensor_rank);
  return out;
}

const RunBytes::Run& RunBytes::run(const RunOfNodes& at, const std::vector<size_t>* first) {
  return terms_->run(at, form_[at.stage], first);
}

int64_t RunBytes::kept(size_t begin, size_t end) {
  int64_t sum = 0;
  for (const Share& share : run({0, begin, end}, nullptr).shares)
    for (const Term& term : share.terms[static_cast<size_t>(Mode::train)])
      if (term.first == kPhaseF && term.last > kPhaseF && term.kind != Holding::Kind::feed &&
          term.kind != Holding::Kind::landing)
        sum = sum_of_bytes(sum, term.bytes);
  return sum;
}

}  // namespace weft
