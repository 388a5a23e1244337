#include "api/shared_beginning.h"

#include <algorithm>

#include "ops/cache_copy.h"

namespace weft::api {

namespace {

// A copy takes a row, and an estimate is that copying 64 tokens takes as long as another row. It
// has to save at least a few rows.
constexpr size_t kLeastSaved = 4, kTokensOfRow = 64;

// For a sequence that has `cached` of the tokens.
bool is_worth_row(size_t tokens, size_t cached) {
  return tokens >= cached + kLeastSaved + tokens / kTokensOfRow;
}

}  // namespace

SharedBeginning shared_beginning(const Sequence& sequence, const Sequences& all,
                                 const CachePlaces& places) {
  SharedBeginning out{.rows = sequence.waiting()};
  if (out.rows <= kLeastSaved || places.each() > kMostCopyPlaces) return out;
  const size_t all_but_last = sequence.tokens.size() - 1;
  size_t most = sequence.cached, coming = 0;  // tokens that can be copied, now or later
  const auto add = [&](int32_t place, size_t tokens) {
    if (tokens <= most) return;
    most = tokens;
    out.from = place;
  };
  bool is_earlier = true;
  for (const auto& other : all) {
    if (other.get() == &sequence) {
      is_earlier = false;
      continue;
    }
    if (other->place.replica != sequence.place.replica || other->weights != sequence.weights)
      continue;
    // An earlier sequence computes all of its tokens but the last one before it is continued.
    const size_t has = other->cached, gets = is_earlier ? other->tokens.size() - 1 : 0;
    const bool more_now = std::min(has, all_but_last) > most,
               more_later = std::min(gets, all_but_last) > coming;
    if (!more_now && !more_later) continue;
    // The token behind what is known differs between most sequences, which saves a comparison.
    const size_t next = !more_now ? coming : !more_later ? most : std::min(most, coming);
    if (other->tokens[next] != sequence.tokens[next]) continue;
    const size_t common = common_beginning(other->tokens, sequence.tokens);
    add(other->place.number, std::min(common, has));
    coming = std::max(coming, std::min(common, gets));
  }
  const CachePlaces::Found left =
      places.most_common(sequence.place.replica, sequence.tokens, sequence.weights);
  add(left.place.number, left.cached);
  out.is_awaited = coming > most && is_worth_row(coming, sequence.cached);
  if (is_worth_row(most, sequence.cached)) out.copied = most;
  if (out.copied > 0 || out.is_awaited)
    out.rows = 1 + sequence.tokens.size() - (out.is_awaited ? coming : most);
  return out;
}

}  // namespace weft::api
