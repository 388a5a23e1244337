#include "runtime/rpc.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/text.h"
#include "link/payload.h"
#include "runtime/parameter_access.h"
#include "runtime/weight_files.h"

namespace weft::rpc {

namespace {

constexpr uint64_t kMostJobs = uint64_t{1} << 32;  // of a trace

Result<Request> decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Request request;
  request.param = in.number<int32_t>();
  request.part = in.number<Part>();
  request.offset = in.number<uint64_t>();
  request.count = in.number<uint64_t>();
  request.bytes = in.bytes();
  if (!in.at_end()) return Status(Code::protocol, "a request is cut short or too long");
  return request;
}

// The floats that are to be read or written.
Result<PartRange> range_of(const Plan& plan, const Worker::ParamMemory& memory, const Request& r,
                           uint64_t most = kPieceFloats) {
  if (r.param < 0 || static_cast<size_t>(r.param) >= plan.model->params().size() ||
      r.part > Part::state1)
    return Status(Code::protocol,
                  cat("a request for parameter ", r.param, ", part ", static_cast<int>(r.part),
                      ", expected a parameter below ", plan.model->params().size(),
                      " and a part from 0 to ", static_cast<int>(Part::state1)));
  const uint64_t all = static_cast<uint64_t>(plan.model->param(r.param).shape.elements());
  if (r.offset > all || r.count > all - r.offset || r.count > most)
    return Status(Code::protocol, cat("a request for ", r.count, " floats from ", r.offset, " of ",
                                      all, ", expected at most ", most));
  return PartRange::find(plan, memory, r.param, r.part, r.offset, r.count);
}

// What an answer points to, if it is not in the memory of the rank's tensors.
struct Buffer {
  int64_t bytes = 0;
  Digest digest;
  PartRange range;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T>(&value, 1));
}

Status carry_out(const Plan& plan, Worker& worker, WeightFiles& files, uint32_t type,
                 std::span<const std::byte> bytes, Buffer& buffer,
                 std::span<const std::byte>& out) {
  WEFT_TRY_ASSIGN(const Request request, decode(bytes));
  switch (type) {
    case kRead: {
      WEFT_TRY_ASSIGN(buffer.range, range_of(plan, worker.param(request.param), request));
      out = std::as_bytes(buffer.range.read());
      return {};
    }
    case kWrite: {
      WEFT_TRY_ASSIGN(PartRange range,
                      range_of(plan, worker.writable_param(request.param), request));
      const std::span<float> floats = range.floats();
      if (request.bytes.size() != floats.size_bytes())
        return Status(Code::protocol, cat("a write of ", floats.size(), " floats with ",
                                          request.bytes.size(), " bytes"));
      std::copy(request.bytes.begin(), request.bytes.end(), std::as_writable_bytes(floats).begin());
      range.store();
      return {};
    }
    case kTrace:
      if (request.count > kMostJobs)
        return Status(Code::protocol,
                      cat("a trace of ", request.count, " jobs, expected at most ", kMostJobs));
      return worker.trace(request.count);
    case kSpans: {
      const auto& spans = worker.spans();
      const size_t from = std::min<size_t>(request.offset, spans.size());
      const size_t n = std::min<size_t>({request.count, spans.size() - from, kPieceFloats / 16});
      out = std::as_bytes(std::span<const TraceSpan>(spans.data() + from, n));
      return {};
    }
    case kResident: {
      WEFT_TRY_ASSIGN(buffer.bytes, worker.resident_bytes());
      out = bytes_of(buffer.bytes);
      return {};
    }
    case kHash: {
      const Worker::ParamMemory memory = worker.param(request.param);
      WEFT_TRY(range_of(plan, memory, request).status());
      WEFT_TRY_ASSIGN(buffer.digest, hash_part(plan, memory, request.param, request.part));
      out = bytes_of(buffer.digest);
      return {};
    }
    case kOpen: return files.open(request.offset, request.bytes);
    case kLoad: {
      WEFT_TRY_ASSIGN(const Weights::Tensor from, files.find(request.bytes));
      WEFT_TRY_ASSIGN(PartRange range,
                      range_of(plan, worker.writable_param(request.param), request, kLoadFloats));
      WEFT_TRY(read_weights(from, plan.model->param(request.param).piece, request.offset,
                            range.floats()));
      range.store();
      return {};
    }
    case kClose: files.close(); return {};
    default: return Status(Code::protocol, cat("a request of type ", type, ", which is unknown"));
  }
}

}  // namespace

std::vector<std::byte> encode(const Request& request) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes)
      .number(request.param)
      .number(request.part)
      .number(request.offset)
      .number(request.count)
      .bytes(request.bytes);
  return bytes;
}

std::vector<std::byte> answer(const Plan& plan, Worker& worker, uint32_t type,
                              std::span<const std::byte> request, WeightFiles* files) {
  WeightFiles none;
  std::span<const std::byte> bytes;
  Buffer buffer;
  const Status status =
      carry_out(plan, worker, files ? *files : none, type, request, buffer, bytes);
  std::vector<std::byte> out;
  ByteWriter(out).number(status.code()).text(status.text()).bytes(bytes);
  return out;
}

Status read_answer(std::span<const std::byte> answer, std::vector<std::byte>& out) {
  ByteReader in(answer);
  const Code code = in.number<Code>();
  const std::string text = in.text();
  const std::span<const std::byte> bytes = in.bytes();
  if (!in.at_end()) return Status(Code::protocol, "the answer of a rank is cut short or too long");
  // Callers treat a code above 0 as success.
  if (code > Code::ok || code < Code::data)
    return Status(Code::protocol, cat("the answer of a rank has the code ",
                                      static_cast<int32_t>(code), ", which is not an error code"));
  if (code != Code::ok) return Status(code, std::string(head_of(text, kMaxDetail)));
  constexpr size_t kMost = kPieceFloats * sizeof(float);
  if (bytes.size() > kMost)
    return Status(Code::protocol, cat("the answer of a rank has ", bytes.size(),
                                      " bytes, expected at most ", kMost));
  out.assign(bytes.begin(), bytes.end());
  return {};
}

}  // namespace weft::rpc
