// Moves tensors between rank 0 and the ranks that keep them: from or to all ranks at once, in
// pieces, within a window of memory. A rank of this process is read and written where its memory
// lies.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/hash.h"
#include "runtime/run.h"

namespace weft {

// Bytes on rank 0 that are under way, or have arrived and wait to be taken: of all ranks, and of
// one. Each other rank takes at most the latter for its answers.
constexpr size_t kTransferWindow = size_t{64} << 20, kTransferShare = size_t{4} << 20;

struct TensorAt {
  ParamId param = -1;  // of Plan::whole
  Part part = Part::value;
};

// Called on the calling thread with a piece of tensors[tensor], which begins at that byte. Those of
// one tensor ascend if the parameter is not cut; otherwise they come in any order.
using TakePiece =
    std::function<Status(size_t tensor, uint64_t offset, std::span<const std::byte> bytes)>;
using FillPiece = std::function<Status(size_t tensor, uint64_t offset, std::span<std::byte> bytes)>;

// After the first failure nothing more is asked for, and what is under way is waited for.
// `left` is called once when everything has left the ranks, which may be before all of it was
// taken.
Status read_tensors(Run& run, std::span<const TensorAt> tensors, const TakePiece& take,
                    const std::function<void()>& left = {});
// To every rank that has a copy. A piece is filled once per copy.
Status write_tensors(Run& run, std::span<const TensorAt> tensors, const FillPiece& fill);
// XXH3-128 over the bytes of each tensor, computed by the rank that owns it. A tensor that is cut
// is read for it.
Result<std::vector<Digest>> hash_tensors(Run& run, std::span<const TensorAt> tensors);

}  // namespace weft
