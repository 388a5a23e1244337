// The rows of the steps of a generator: which tokens of its sequences the run computes next.
//
// All tokens of a long beginning except the last one only fill the cache: their steps have no
// logits. While sequences have such tokens, these steps take turns with steps for next tokens.
//
// If the sequences are more than fit into a short micro-batch, they form groups, one in each, and a
// step has several rounds of them: the next tokens of a group are chosen when its logits have
// arrived, while other ranks compute those of other groups.
//
// If a step has fewer rows than sequences wait, the sequences get rows in turn, next tokens and
// beginnings alike, so that each of them advances.
//
// The beginning of a sequence may begin with a copy from another place of the cache, which takes a
// row. It can copy tokens of rows before it in the step, and rows after it can use them. A sequence
// gets no row in turn while an earlier one computes tokens that both begin with.
//
// Replicas have caches of their own. Each sequence belongs to one, and its rows are in
// micro-batches of that replica.
#pragma once

#include <span>
#include <vector>

#include "api/sequence.h"
#include "api/shared_beginning.h"
#include "plan/plan.h"

namespace weft::api {

// A token of a sequence, a copy (ops/cache_copy.h), or padding.
struct Row {
  int32_t token = 0, position = 0, place = -1;
  uint64_t sequence = 0;  // that gets the logits of the row; 0: none
};

class StepRows {
 public:
  // `context`: positions of a sequence in the cache. `places`: of the cache, all of which are free.
  StepRows(const Plan& plan, size_t context, const CachePlaces& places);

  // A turn that comes after all earlier ones. The sequence with the first turn gets the next row.
  uint64_t new_turn() { return ++turns_; }

  // The rows with which the next step begins, and their number at its end. Chosen tokens count as
  // cached.
  void choose(const Sequences& sequences);
  // More rows of the step, whole micro-batches of them, if sequences wait for them.
  void choose_more(const Sequences& sequences);
  // The rest of the step is padding.
  void pad() { rows_.resize(step_rows_); }
  // The cache does not have the tokens of a step that was not submitted.
  void give_back(const Sequences& sequences) const;

  std::span<const Row> chosen() const { return rows_; }
  size_t size() const { return step_rows_; }     // when all are chosen
  bool fills() const { return fill_; }           // the step has no logits
  bool is_short() const { return small_only_; }  // it has short micro-batches only
  size_t per_micro_batch() const { return small_only_ ? small_ : full_; }

 private:
  // Of sequences: all that wait, only those of sequences that wait for one, or all but the last
  // one.
  enum class Tokens { all, next, but_last };
  // What a sequence gets of the rows that are being chosen.
  struct Share {
    Sequence* sequence;
    size_t rows;
  };
  SharedBeginning shared(const Sequence& sequence, const Sequences& all) const {
    return shared_beginning(sequence, all, places_);
  }
  bool give(Share& share, size_t count);
  void add_rows(const Share& share, const SharedBeginning& shared);
  void choose_rows(const Sequences& sequences, size_t most, Tokens tokens);
  void join_replicas(const Sequences& sequences);
  size_t rounds(const Sequences& sequences, size_t groups) const;

  const size_t context_;
  const CachePlaces& places_;
  const size_t full_, small_, micro_batches_;  // rows of micro-batches, and those of a replica
  const bool can_fill_;                        // the run makes steps without logits
  uint64_t turns_ = 0;
  std::vector<size_t> cached_;  // tokens of each sequence in the cache, before the step
  std::vector<Share> shares_;
  std::vector<Share*> by_turn_;
  std::vector<size_t> left_;              // rows per replica that no share has
  std::vector<std::vector<Row>> chosen_;  // per replica
  std::vector<Row> rows_;                 // of the step, as far as they are chosen
  bool fill_ = false;                     // see fills(); until choose(): of the step before
  bool small_only_ = false;
  size_t step_rows_ = 0;
};

}  // namespace weft::api
