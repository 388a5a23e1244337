// Moves tensors between rank 0 and the ranks that store them: from or to all ranks at once, in
// pieces, within a window of memory. The memory of ranks in this process is read and written
// directly.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/hash.h"
#include "io/weights.h"
#include "runtime/run.h"

namespace weft {

// Limits for bytes that are in transit, or have arrived at rank 0 and are not yet taken: of all
// ranks, and of one rank. Each other rank uses at most the latter for its answers.
constexpr size_t kTransferWindow = size_t{64} << 20, kTransferShare = size_t{4} << 20;

struct TensorAt {
  ParamId param = -1;  // of Plan::whole
  Part part = Part::value;
};

// Called on the calling thread with a piece of tensors[tensor], which begins at that byte. If the
// parameter is not cut, pieces of a tensor arrive in ascending order; otherwise in any order.
using TakePiece =
    std::function<Status(size_t tensor, uint64_t offset, std::span<const std::byte> bytes)>;
using FillPiece = std::function<Status(size_t tensor, uint64_t offset, std::span<std::byte> bytes)>;

// After the first failure no more requests are sent, and the call waits for those in transit.
// `left` is called once when all data has left the ranks, possibly before all of it was
// taken.
Status read_tensors(Run& run, std::span<const TensorAt> tensors, const TakePiece& take,
                    const std::function<void()>& left = {});
// To every rank that has a copy. Each piece is filled once per copy.
Status write_tensors(Run& run, std::span<const TensorAt> tensors, const FillPiece& fill);
// The same from tensors of files, which have the shapes of the parameters. A rank of another
// process that has the same files reads its parts itself; the others are sent.
Status load_tensors(Run& run, std::span<const TensorAt> tensors,
                    std::span<const Weights::Tensor> from);
// XXH3-128 over the bytes of each tensor, computed by the rank that owns it. A tensor that is cut
// is read instead.
Result<std::vector<Digest>> hash_tensors(Run& run, std::span<const TensorAt> tensors);

}  // namespace weft
