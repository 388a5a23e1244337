// Access of the owner of a run to the data of its ranks between steps, in any process.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/text.h"
#include "io/checkpoint_names.h"
#include "runtime/optimizer_state.h"
#include "runtime/requests.h"
#include "runtime/transfer.h"

namespace weft {

Status Run::read(ParamId param, Part part, std::span<float> out) {
  const std::span<std::byte> to = std::as_writable_bytes(out);
  const TensorAt tensor{param, part};
  return read_tensors(*this, {&tensor, 1},
                      [to](size_t, uint64_t offset, std::span<const std::byte> bytes) {
                        std::copy(bytes.begin(), bytes.end(), to.subspan(offset).begin());
                        return Status();
                      });
}

Status Run::write(ParamId param, Part part, std::span<const float> in) {
  const std::span<const std::byte> from = std::as_bytes(in);
  const TensorAt tensor{param, part};
  return write_tensors(*this, {&tensor, 1},
                       [from](size_t, uint64_t offset, std::span<std::byte> bytes) {
                         const auto piece = from.subspan(offset, bytes.size());
                         std::copy(piece.begin(), piece.end(), bytes.begin());
                         return Status();
                       });
}

Status Run::ask(int32_t rank, uint32_t type, const rpc::Request& request,
                std::vector<std::byte>& out) {
  if (Worker* worker = worker_here(rank))
    return rpc::read_answer(rpc::answer(*plan_, *worker, type, rpc::encode(request)), out);
  Requests::Slot slot;
  slot.rank = rank;
  slot.type = type;
  slot.request = request;
  WEFT_TRY(requests()->ask(slot));
  const auto answered = requests()->take(/*wait=*/true);
  if (!answered.ok()) requests()->forget();
  WEFT_TRY(answered.status());
  out = std::move(slot.bytes);
  return slot.status;
}

Result<int64_t> Run::resident_bytes(int32_t rank) {
  std::vector<std::byte> answer;
  WEFT_TRY(ask(rank, rpc::kResident, {.bytes = {}}, answer));
  int64_t bytes = 0;
  if (answer.size() != sizeof bytes)
    return Status(Code::protocol, cat("rank ", rank, " answered ", answer.size(),
                                      " bytes, expected ", sizeof bytes));
  std::memcpy(&bytes, answer.data(), sizeof bytes);
  return bytes;
}

Status Run::trace(size_t jobs) {
  std::vector<std::byte> answer;
  traced_ = jobs;
  for (int32_t r = 0; r < plan_->config.ranks; ++r)
    WEFT_TRY(ask(r, rpc::kTrace, {.count = jobs, .bytes = {}}, answer));
  return {};
}

Status Run::spans(int32_t rank, std::vector<TraceSpan>& out) {
  out.clear();
  std::vector<std::byte> answer;
  do {
    // The spans arrive in pieces, of which the last is empty.
    WEFT_TRY(
        ask(rank, rpc::kSpans, {.offset = out.size(), .count = UINT64_MAX, .bytes = {}}, answer));
    const size_t n = answer.size() / sizeof(TraceSpan), before = out.size();
    if (answer.size() % sizeof(TraceSpan) != 0)
      return Status(Code::protocol, cat("rank ", rank, " sent spans of ", answer.size(),
                                        " bytes, expected a multiple of ", sizeof(TraceSpan)));
    if (n > traced_ - before)
      return Status(Code::protocol,
                    cat("rank ", rank, " sent ", before + n, " spans, expected at most ", traced_));
    out.resize(before + n);
    if (n > 0) std::memcpy(out.data() + before, answer.data(), n * sizeof(TraceSpan));
  } while (!answer.empty());
  // They may come from another process, and are used as indices.
  for (const TraceSpan& s : out)
    if (static_cast<size_t>(s.mode) >= plan_->modes.size() || !plan_->mode(s.mode).present ||
        s.job < 0 ||
        static_cast<size_t>(s.job) >=
            plan_->mode(s.mode).ranks[static_cast<size_t>(rank)].jobs.size())
      return Status(Code::protocol,
                    cat("rank ", rank, " sent a span of a job that it does not have"));
  return {};
}

Status Run::save_trace(const std::string& path) {
  std::vector<std::vector<TraceSpan>> all(static_cast<size_t>(plan_->config.ranks));
  for (int32_t r = 0; r < plan_->config.ranks; ++r) WEFT_TRY(spans(r, all[static_cast<size_t>(r)]));
  return save_text(path, trace_text(*plan_, all, "measured"));
}

namespace {

std::vector<ParamId> by_name(const std::vector<Param>& params) {
  std::vector<ParamId> order(params.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](ParamId a, ParamId b) {
    return params[static_cast<size_t>(a)].name < params[static_cast<size_t>(b)].name;
  });
  return order;
}

// Over the tensors in this order, each with its name.
struct Digests {
  std::vector<TensorAt> tensors;
  std::vector<std::string> names;

  void add(ParamId param, Part part, const std::string& name) {
    tensors.push_back({param, part});
    names.push_back(name);
  }
  Result<Digest> of(Run& run) const {
    WEFT_TRY_ASSIGN(const std::vector<Digest> digests, hash_tensors(run, tensors));
    Hasher all;
    for (size_t i = 0; i < names.size(); ++i)
      all.bytes(names[i].c_str(), names[i].size() + 1).digest(digests[i]);
    return all.finish();
  }
};

}  // namespace

Result<Digest> Run::digest() {
  Digests digests;
  for (ParamId p : by_name(plan_->whole->params()))
    digests.add(p, Part::value, plan_->whole->param(p).name);
  return digests.of(*this);
}

Result<Digest> Run::optimizer_digest() {
  Digests digests;
  for (ParamId p : by_name(plan_->whole->params()))
    WEFT_TRY(each_state(*plan_, p, [&](Part part, const std::string& name) {
      digests.add(p, part, name);
      return Status();
    }));
  return digests.of(*this);
}

}  // namespace weft
