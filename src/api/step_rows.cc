#include "api/step_rows.h"

#include <algorithm>

#include "ops/cache_copy.h"

namespace weft::api {

namespace {

size_t rounded_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t replica_of(const Sequence& sequence) { return static_cast<size_t>(sequence.place.replica); }

}  // namespace

StepRows::StepRows(const Plan& plan, size_t context, const CachePlaces& places)
    : context_(context),
      places_(places),
      full_(static_cast<size_t>(plan.config.micro_batch_size)),
      small_(static_cast<size_t>(plan.config.short_size)),
      micro_batches_(static_cast<size_t>(plan.first_micro_batch(Mode::infer, 1))),
      can_fill_(plan.mode(Mode::fill).present),
      left_(static_cast<size_t>(plan.config.data)),
      chosen_(static_cast<size_t>(plan.config.data)) {
  cached_.reserve(places.size());
  shares_.reserve(places.size());
  by_turn_.reserve(places.size());
  for (std::vector<Row>& rows : chosen_) rows.reserve(full_ * micro_batches_);
  rows_.reserve(chosen_.size() * full_ * micro_batches_);
}

// As many rows as its replica has left. False: it has none.
bool StepRows::give(Share& share, size_t count) {
  size_t& left = left_[replica_of(*share.sequence)];
  count = std::min(count, left);
  left -= count;
  share.rows += count;
  return count > 0;
}

void StepRows::add_rows(const Share& share, const SharedBeginning& shared) {
  Sequence& sequence = *share.sequence;
  std::vector<Row>& rows = chosen_[replica_of(sequence)];
  const size_t copies = share.rows > 0 && shared.copied > 0 ? 1 : 0;
  if (copies > 0) {
    sequence.cached = shared.copied;
    rows.push_back({.token = 0,
                    .position = static_cast<int32_t>(shared.copied) - 1,
                    .place = number_of({shared.from, sequence.place.number}, places_.each())});
  }
  for (size_t i = copies; i < share.rows; ++i, ++sequence.cached)
    rows.push_back({.token = sequence.tokens[sequence.cached],
                    .position = static_cast<int32_t>(sequence.cached),
                    .place = sequence.place.number});
  if (share.rows > 0 && sequence.waiting() == 0) rows.back().sequence = sequence.id;
}

// Chooses at most `most` rows of each replica. Each sequence gets one in turn. Beginnings get the
// rows that are left, that of the oldest sequence first: what it computes in the step, a later one
// can copy in the same step.
void StepRows::choose_rows(const Sequences& sequences, size_t most, Tokens tokens) {
  shares_.clear();
  for (const bool next : {true, false})
    for (const auto& sequence : sequences)
      if (next ? sequence->waiting() == 1 && tokens != Tokens::but_last
               : sequence->waiting() > 1 && tokens != Tokens::next)
        shares_.push_back({sequence.get(), 0});
  by_turn_.clear();
  for (Share& share : shares_)
    if (!shared(*share.sequence, sequences).is_awaited) by_turn_.push_back(&share);
  std::sort(by_turn_.begin(), by_turn_.end(),
            [](const Share* a, const Share* b) { return a->sequence->turn < b->sequence->turn; });
  left_.assign(chosen_.size(), most);
  for (Share* share : by_turn_)
    if (give(*share, 1)) share->sequence->turn = new_turn();
  for (Share& share : shares_) {
    const SharedBeginning found = shared(*share.sequence, sequences);
    if (found.is_awaited) continue;
    give(share, found.rows - (tokens == Tokens::but_last) - share.rows);
    add_rows(share, found);
  }
}

// How often each group can have a micro-batch in the step that begins: until the last sequence
// ends, unless a token ends it before.
size_t StepRows::rounds(const Sequences& sequences, size_t groups) const {
  size_t left = 0;
  for (const auto& sequence : sequences) {
    const size_t room = context_ + 1 - sequence->tokens.size(),
                 added = sequence->tokens.size() - sequence->begun;
    left = std::max(left, sequence->config.limit ? sequence->config.limit - added : room);
  }
  return std::clamp<size_t>(left, 1, micro_batches_ / groups);
}

void StepRows::choose(const Sequences& sequences) {
  for (std::vector<Row>& rows : chosen_) rows.clear();
  cached_.clear();
  size_t next = 0;
  std::vector<size_t> waiting(chosen_.size());
  for (const auto& sequence : sequences) {
    cached_.push_back(sequence->cached);
    next += sequence->waiting() == 1;
    waiting[replica_of(*sequence)] += shared(*sequence, sequences).rows;
  }
  // A beginning of few tokens takes no longer with logits.
  const size_t few = small_ ? std::min(full_ - 1, small_ * micro_batches_) : full_;
  const bool apart =
      can_fill_ && next < sequences.size() &&
      rounded_up(*std::max_element(waiting.begin(), waiting.end()), small_ ? small_ : full_) > few;
  fill_ = apart && !(fill_ && next > 0);
  choose_rows(sequences, full_ * micro_batches_,
              fill_   ? Tokens::but_last
              : apart ? Tokens::next
                      : Tokens::all);
  join_replicas(sequences);
}

// The rows of a replica begin with its first micro-batch. All but the last replica have the rows of
// all their micro-batches, and only the last micro-batch of a single replica is shorter than
// others.
void StepRows::join_replicas(const Sequences& sequences) {
  size_t most = 0;
  bool one_each = true;
  for (const std::vector<Row>& rows : chosen_) {
    most = std::max(most, rows.size());
    one_each = one_each && std::all_of(rows.begin(), rows.end(),
                                       [](const Row& row) { return row.sequence != 0; });
  }
  const size_t in_small = small_ ? rounded_up(most, small_) : full_;
  small_only_ = in_small <= small_ * micro_batches_ && (one_each || in_small < full_);
  const size_t unit = small_only_ ? small_ : full_;
  rows_.clear();
  for (size_t r = 0; r < chosen_.size(); ++r) {
    rows_.resize(r * micro_batches_ * unit);
    rows_.insert(rows_.end(), chosen_[r].begin(), chosen_[r].end());
  }
  const size_t rest = rows_.size() % unit;
  if (chosen_.size() == 1 && rest > 0 && rest <= small_ && !small_only_)
    rows_.resize(rows_.size() - rest + small_);
  else
    rows_.resize(std::max(rounded_up(rows_.size(), unit),
                          ((chosen_.size() - 1) * micro_batches_ + 1) * unit));
  step_rows_ = rows_.size();
  if (chosen_.size() == 1 && small_only_ && one_each && most > small_)
    step_rows_ *= rounds(sequences, rows_.size() / small_);
}

void StepRows::choose_more(const Sequences& sequences) {
  if (rows_.size() == step_rows_) return;
  std::vector<Row>& rows = chosen_.front();
  rows.clear();
  choose_rows(sequences, step_rows_ - rows_.size(), can_fill_ ? Tokens::next : Tokens::all);
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  rows_.resize(rounded_up(rows_.size(), small_));
}

void StepRows::give_back(const Sequences& sequences) const {
  for (size_t i = 0; i < cached_.size(); ++i) sequences[i]->cached = cached_[i];
}

}  // namespace weft::api
