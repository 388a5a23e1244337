#include "api/step_rows.h"

#include <algorithm>

namespace weft::api {

namespace {

size_t rounded_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t replica_of(const Sequence& sequence) { return static_cast<size_t>(sequence.place.replica); }

}  // namespace

StepRows::StepRows(const Plan& plan, size_t context)
    : context_(context),
      full_(static_cast<size_t>(plan.config.micro_batch_size)),
      small_(static_cast<size_t>(plan.config.short_size)),
      micro_batches_(static_cast<size_t>(plan.first_micro_batch(Mode::infer, 1))),
      can_fill_(plan.mode(Mode::fill).present),
      chosen_(static_cast<size_t>(plan.config.data)) {
  for (std::vector<Row>& rows : chosen_) rows.reserve(full_ * micro_batches_);
  rows_.reserve(chosen_.size() * full_ * micro_batches_);
}

// Adds rows of the sequence, as far as its replica has fewer than `most`.
void StepRows::add_rows(Sequence& sequence, size_t count, size_t most) {
  std::vector<Row>& rows = chosen_[replica_of(sequence)];
  count = std::min(count, most - rows.size());
  for (size_t i = 0; i < count; ++i, ++sequence.cached)
    rows.push_back({.token = sequence.tokens[sequence.cached],
                    .position = static_cast<int32_t>(sequence.cached),
                    .place = sequence.place.number});
  if (count > 0 && sequence.waiting() == 0) rows.back().sequence = sequence.id;
}

// Adds rows of the sequences that wait for one token.
void StepRows::choose_next(const Sequences& sequences, size_t most) {
  for (const auto& sequence : sequences)
    if (sequence->waiting() == 1) add_rows(*sequence, 1, most);
}

// Adds parts of beginnings, without the last `left` tokens of each.
void StepRows::choose_beginnings(const Sequences& sequences, size_t most, size_t left) {
  for (const auto& sequence : sequences)
    if (sequence->waiting() > std::max<size_t>(left, 1))
      add_rows(*sequence, sequence->waiting() - left, most);
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
  if (!fill_) choose_next(sequences, full_ * micro_batches_);
  if (fill_ || !apart) choose_beginnings(sequences, full_ * micro_batches_, fill_ ? 1 : 0);
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
  while (rows_.size() < step_rows_) {
    std::vector<Row>& rows = chosen_.front();
    rows.clear();
    choose_next(sequences, small_);
    if (!can_fill_) choose_beginnings(sequences, small_, 0);
    if (rows.empty()) return;
    rows.resize(small_);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }
}

void StepRows::give_back(const Sequences& sequences) const {
  for (const auto& sequence : sequences)
    for (const Row& row : chosen_[replica_of(*sequence)])
      if (row.place == sequence->place.number)
        sequence->cached = std::min(sequence->cached, static_cast<size_t>(row.position));
}

}  // namespace weft::api
