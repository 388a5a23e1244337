// What a sequence has in common with other sequences of its replica, running or not: tokens whose
// keys and values are copied from another place of the cache and not computed again.
#pragma once

#include "api/sequence.h"

namespace weft::api {

struct SharedBeginning {
  size_t copied = 0;        // tokens to copy now, from the first one on; 0: no copy is worth a row
  int32_t from = -1;        // the place to copy them from
  bool is_awaited = false;  // an earlier sequence is going to compute more of them
  size_t rows;              // that the sequence still needs, with that of a copy, now or later
};

SharedBeginning shared_beginning(const Sequence& sequence, const Sequences& all,
                                 const CachePlaces& places);

}  // namespace weft::api
