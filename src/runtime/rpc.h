// Requests of rank 0 to a rank, and the answers.
#pragma once

#include <span>
#include <vector>

#include "runtime/run.h"
#include "runtime/worker.h"

namespace weft {
class WeightFiles;
}

namespace weft::rpc {

// An answer has the type of its request.
constexpr uint32_t kRead = 16, kWrite = 17, kTrace = 18, kSpans = 19, kResident = 20, kHash = 21,
                   kOpen = 22, kLoad = 23, kClose = 24;
constexpr uint64_t kPieceFloats = uint64_t{1} << 16;  // at most, in one request
constexpr uint64_t kLoadFloats = uint64_t{1} << 20;   // of a request without their bytes

struct Request {
  ParamId param = -1;
  Part part = Part::value;
  uint64_t offset = 0, count = 0;    // in floats
  std::span<const std::byte> bytes;  // write; open: a FileOffer; load: a TensorPlace
};
std::vector<std::byte> encode(const Request& request);
// The answer of the rank of this worker: a status, and for a read the floats, for spans (at most
// `count`, from `offset` on) the recorded ones, for a hash the digest of the whole tensor. Trace
// reads the number of jobs from `count`, open the index of the file from `offset`. `files`: null if
// this rank reads none.
std::vector<std::byte> answer(const Plan& plan, Worker& worker, uint32_t type,
                              std::span<const std::byte> request, WeightFiles* files = nullptr);
// Decodes an answer: its status, and its bytes into `out`.
Status read_answer(std::span<const std::byte> answer, std::vector<std::byte>& out);

}  // namespace weft::rpc
