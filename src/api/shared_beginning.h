// What a sequence has in common with other sequences of its replica, running or not: tokens whose
// keys and values are copied from another place of the cache and not computed again.
#pragma once

#include "api/sequence.h"

namespace weft::api {

struct SharedBeginning {
  int32_t from = -1;        // the place to copy from now; -1: no copy is worth its row
  size_t copied = 0;        // tokens, from the first one on
  bool is_awaited = false;  // an earlier sequence is going to compute more of them
  size_t rows;              // for all tokens that wait, with the copy, or the one that is awaited
};

SharedBeginning shared_beginning(const Sequence& sequence, const Sequences& all,
                                 const CachePlaces& places);

}  // namespace weft::api
