// Files of weights that a rank reads itself while rank 0 loads them. Rank 0 offers a file with its
// path and fingerprint; a rank accepts it if it may read this path and has the same file there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/piece.h"
#include "io/weights.h"

namespace weft {

struct FileOffer {
  std::string path;  // absolute
  Digest fingerprint;
};
std::vector<std::byte> encode(const FileOffer& offer);

// A tensor of an accepted file, as rank 0 names it.
struct TensorPlace {
  uint32_t file = 0;  // in the order of the offers
  std::string name;
};
std::vector<std::byte> encode(const TensorPlace& place);

// Elements of a piece of a parameter, from the file's tensor of the whole parameter.
Status read_weights(const Weights::Tensor& from, const ParamPiece& piece, uint64_t first,
                    std::span<float> out);

class WeightFiles {
 public:
  // Only files below `directory`, or itself if it is a file, are accepted; empty: none. Links are
  // followed before the check.
  explicit WeightFiles(std::string directory = {}) : directory_(std::move(directory)) {}
  // Whether any file can be accepted. Any thread.
  bool accepts_files() const { return !directory_.empty(); }

  // Accepts the offer with that index, or fails without a reason, so that rank 0 learns nothing
  // about files that it does not have. Index 0 closes the files of the offers before.
  Status open(uint64_t index, std::span<const std::byte> offer);
  void close() { files_.clear(); }
  // The tensor at an encoded TensorPlace. Valid until the next offer.
  Result<Weights::Tensor> find(std::span<const std::byte> place) const;

 private:
  Status accept(const FileOffer& offer);

  std::string directory_;
  std::vector<SafetensorsFile> files_;
};

}  // namespace weft
