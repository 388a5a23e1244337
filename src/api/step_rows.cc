#include "api/step_rows.h"

#include <algorithm>

namespace weft::api {

namespace {

size_t rounded_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t replica_of(const Sequence& sequence) { return static_cast<size_t>(sequence.place.replica); }

}  // namespace

StepRows::StepRows(const Plan& plan, size_t context, size_t sequences)
    : context_(context),
      full_(static_cast<size_t>(plan.config.micro_batch_size)),
      small_(static_cast<size_t>(plan.config.short_size)),
      micro_batches_(static_cast<size_t>(plan.first_micro_batch(Mode::infer, 1))),
      can_fill_(plan.mode(Mode::fill).present),
      left_(static_cast<size_t>(plan.config.data)),
      chosen_(static_cast<size_t>(plan.config.data)) {
  shares_.reserve(sequences);
  by_turn_.reserve(sequences);
  for (std::vector<Row>& rows : chosen_) rows.reserve(full_ * micro_batches_);
  rows_.reserve(chosen_.size() * full_ * micro_batches_);
}

// How many tokens of the sequence the rows may have.
size_t StepRows::wanted(const Sequence& sequence, Tokens tokens) {
  const size_t waiting = sequence.waiting();
  if (tokens == Tokens::all) return waiting;
  if (tokens == Tokens::next) return waiting == 1 ? 1 : 0;
  return waiting > 0 ? waiting - 1 : 0;
}

// As many rows as its replica has left. False: it has none.
bool StepRows::give(Share& share, size_t count) {
  size_t& left = left_[replica_of(*share.sequence)];
  count = std::min(count, left);
  left -= count;
  share.rows += count;
  return count > 0;
}

void StepRows::add_rows(const Share& share) {
  Sequence& sequence = *share.sequence;
  std::vector<Row>& rows = chosen_[replica_of(sequence)];
  for (size_t i = 0; i < share.rows; ++i, ++sequence.cached)
    rows.push_back({.token = sequence.tokens[sequence.cached],
                    .position = static_cast<int32_t>(sequence.cached),
                    .place = sequence.place.number});
  if (share.rows > 0 && sequence.waiting() == 0) rows.back().sequence = sequence.id;
}

// Chooses at most `most` rows of each replica. Each sequence gets one in turn. Beginnings get the
// rows that are left, that of the oldest sequence first.
void StepRows::choose_rows(const Sequences& sequences, size_t most, Tokens tokens) {
  shares_.clear();
  for (const bool next : {true, false})
    for (const auto& sequence : sequences)
      if ((sequence->waiting() == 1) == next && wanted(*sequence, tokens) > 0)
        shares_.push_back({sequence.get(), wanted(*sequence, tokens), 0});
  by_turn_.clear();
  for (Share& share : shares_) by_turn_.push_back(&share);
  std::sort(by_turn_.begin(), by_turn_.end(),
            [](const Share* a, const Share* b) { return a->sequence->turn < b->sequence->turn; });
  left_.assign(chosen_.size(), most);
  for (Share* share : by_turn_)
    if (give(*share, 1)) share->sequence->turn = new_turn();
  for (Share& share : shares_) {
    give(share, share.wanted - share.rows);
    add_rows(share);
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
  size_t next = 0;
  std::vector<size_t> waiting(chosen_.size());
  for (const auto& sequence : sequences) {
    next += sequence->waiting() == 1;
    waiting[replica_of(*sequence)] += sequence->waiting();
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
  for (const auto& sequence : sequences)
    for (const Row& row : chosen_[replica_of(*sequence)])
      if (row.place == sequence->place.number)
        sequence->cached = std::min(sequence->cached, static_cast<size_t>(row.position));
}

}  // namespace weft::api
