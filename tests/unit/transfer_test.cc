// Tensors move from all ranks at once, within the window, in any order of the answers.
#include "runtime/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "base/bytes.h"
#include "base/origin.h"
#include "graph/presets.h"
#include "runtime/loop_run.h"
#include "runtime/requests.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

constexpr size_t kPiece = rpc::kPieceFloats * sizeof(float);
constexpr size_t kMost = kTransferWindow / kPiece, kShare = kTransferShare / kPiece;

std::shared_ptr<const Plan> plan_of(int32_t ranks, const std::string& model) {
  PlanConfig config;
  config.ranks = ranks;
  config.split = SplitBy::uniform;
  auto plan = make_plan(make_preset(model, {}).take().model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.take();
}

struct Asked {
  int32_t rank;
  uint32_t type;
  ParamId param;
  uint64_t offset, count;
};

// A run whose ranks are all in other processes. They answer only when the window is full, and then
// the last requested rank answers first.
class FarRun final : public Run {
 public:
  explicit FarRun(std::shared_ptr<const Plan> plan)
      : Run(std::move(plan), [](void*) {}, {}),
        loop_(LoopThread::make().take()),
        requests_(
            loop_->loop(), *plan_, 20000,
            [this](int32_t rank, uint32_t type, std::span<const std::byte> bytes) {
              hear(rank, type, bytes);
            },
            [this](int32_t rank) {
              requests_.fail(Status(Origin{.rank = rank, .code = Code::timed_out}));
            }) {}

  Worker* worker_here(int32_t) override { return nullptr; }
  Requests* requests() override { return &requests_; }
  int descriptor() const override { return -1; }
  void feed(int32_t) override {}
  void hold(bool) override {}

  std::map<int32_t, size_t> expected;  // unanswered requests per rank
  size_t most = 0;                     // in transit at once
  std::map<int32_t, size_t> most_of_rank;
  size_t ranks_at_first_answer = 0;
  int32_t failing_rank = -1;
  std::map<ParamId, std::vector<std::byte>> written;  // loop thread, as hear()

 private:
  void start(Step*) override {}
  bool next_event(RunEvent&, int64_t) override { return false; }
  void proceed() override {}

  void hear(int32_t rank, uint32_t type, std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    Asked asked{.rank = rank, .type = type, .param = in.number<int32_t>(), .offset = 0, .count = 0};
    (void)in.number<uint8_t>();
    asked.offset = in.number<uint64_t>();
    asked.count = in.number<uint64_t>();
    if (type == rpc::kWrite) keep(asked, in.bytes());
    under_way_.push_back(asked);
    most = std::max(most, under_way_.size());
    size_t of_rank = 0;
    for (const Asked& a : under_way_) of_rank += a.rank == rank;
    most_of_rank[rank] = std::max(most_of_rank[rank], of_rank);
    while (!under_way_.empty() && under_way_.size() >= may_be()) answer();
  }
  void keep(const Asked& asked, std::span<const std::byte> bytes) {
    std::vector<std::byte>& to = written[asked.param];
    const size_t at = asked.offset * sizeof(float);
    to.resize(std::max(to.size(), at + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // A rank is asked for no more than its share.
  size_t may_be() const {
    size_t sum = 0;
    for (const auto& [rank, pieces] : expected) sum += std::min(pieces, kShare);
    return std::min(sum, kMost);
  }
  void answer() {
    if (ranks_at_first_answer == 0) ranks_at_first_answer = most_of_rank.size();
    const int32_t rank = under_way_.back().rank;
    const auto at = std::find_if(under_way_.begin(), under_way_.end(),
                                 [rank](const Asked& a) { return a.rank == rank; });
    const Asked asked = *at;
    under_way_.erase(at);
    if (expected[rank] > 0) --expected[rank];
    std::vector<float> floats(asked.type == rpc::kRead ? asked.count : 0);
    for (size_t i = 0; i < floats.size(); ++i)
      floats[i] = static_cast<float>(asked.param) + static_cast<float>(asked.offset + i) / 4194304;
    const bool fails = asked.rank == failing_rank;
    std::vector<std::byte> bytes;
    ByteWriter(bytes)
        .number(fails ? Code::data : Code::ok)
        .text(fails ? "no such tensor" : "")
        .bytes(fails ? std::span<const std::byte>() : std::as_bytes(std::span(floats)));
    requests_.answered(asked.rank, asked.type, bytes);
  }

  std::unique_ptr<LoopThread> loop_;
  Requests requests_;
  std::deque<Asked> under_way_;  // loop thread
};

std::vector<TensorAt> values_of(const Plan& plan) {
  std::vector<TensorAt> out;
  for (size_t p = 0; p < plan.model->params().size(); ++p)
    out.push_back({static_cast<ParamId>(p), Part::value});
  return out;
}

std::map<int32_t, size_t> pieces_of(const Plan& plan) {
  std::map<int32_t, size_t> pieces;
  for (size_t p = 0; p < plan.model->params().size(); ++p) {
    const auto floats = static_cast<size_t>(plan.model->params()[p].shape.elements());
    pieces[plan.owner_of_param[p]] += (floats + rpc::kPieceFloats - 1) / rpc::kPieceFloats;
  }
  return pieces;
}

// 20 ranks of 4 MiB: more than the window.
TEST(Transfer, ReadsFromAllRanksAtOnceWithinTheWindow) {
  FarRun run(plan_of(20, "mlp:layers=20,width=1024"));
  const Plan& plan = run.plan();
  run.expected = pieces_of(plan);
  const size_t owners = run.expected.size();
  ASSERT_GT(owners * kShare, kMost);
  std::vector<uint64_t> next(plan.model->params().size(), 0);
  int left = 0;
  const auto take = [&](size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
    EXPECT_EQ(offset, next[tensor]);
    next[tensor] += bytes.size();
    float first;
    std::memcpy(&first, bytes.data(), sizeof first);
    EXPECT_EQ(first, static_cast<float>(tensor) + static_cast<float>(offset / 4) / 4194304);
    return Status();
  };
  const auto tensors = values_of(plan);
  EXPECT_TRUE(read_tensors(run, tensors, take, [&] { ++left; }).ok());
  EXPECT_EQ(left, 1);
  for (size_t t = 0; t < next.size(); ++t)
    EXPECT_EQ(
        next[t],
        static_cast<uint64_t>(plan.model->param(static_cast<ParamId>(t)).shape.elements()) * 4);
  EXPECT_EQ(run.most, kMost) << "is the window, and no more";
  EXPECT_EQ(run.ranks_at_first_answer, owners);
  for (const auto& [rank, most] : run.most_of_rank) EXPECT_LE(most, kShare) << rank;
}

TEST(Transfer, WritesToAllRanksAtOnceWithinTheWindow) {
  FarRun run(plan_of(3, "mlp:layers=6,width=1024"));
  run.expected = pieces_of(run.plan());
  const size_t most = run.expected.size() * kShare;
  size_t filled = 0;
  const auto byte_at = [](size_t tensor, uint64_t offset) {
    return static_cast<std::byte>(tensor * 31 + offset / 4 % 251);
  };
  const auto fill = [&](size_t tensor, uint64_t offset, std::span<std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(tensor, offset + i);
    filled += bytes.size();
    return Status();
  };
  const auto tensors = values_of(run.plan());
  EXPECT_TRUE(write_tensors(run, tensors, fill).ok());
  size_t all = 0;
  for (const Param& p : run.plan().model->params())
    all += static_cast<size_t>(p.shape.elements()) * 4;
  EXPECT_EQ(filled, all);
  for (const auto& [param, bytes] : run.written) {
    size_t wrong = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      wrong += bytes[i] != byte_at(static_cast<size_t>(param), i);
    EXPECT_EQ(wrong, 0u) << "of parameter " << param;
  }
  EXPECT_EQ(run.written.size(), tensors.size());
  EXPECT_EQ(run.most, most) << "is the share of each rank";
}

// The call waits for the requests in transit: later requests get their own answers.
TEST(Transfer, AfterAFailureTheRunCanBeAskedAgain) {
  FarRun run(plan_of(3, "mlp:layers=6,width=1024"));
  run.failing_rank = 1;
  const auto tensors = values_of(run.plan());
  int left = 0;
  const Status status = read_tensors(
      run, tensors, [](size_t, uint64_t, auto) { return Status(); }, [&] { ++left; });
  EXPECT_EQ(status.text(), "rank 1: no such tensor");
  EXPECT_EQ(left, 1);
  run.failing_rank = -1;
  const Status second = read_tensors(run, tensors, [](size_t, uint64_t, auto) {
    return Status(Code::io, "no space left on device");
  });
  EXPECT_EQ(second.text(), "no space left on device");
  // Each piece is the requested one.
  const Status third =
      read_tensors(run, tensors, [](size_t tensor, uint64_t offset, std::span<const std::byte> b) {
        float first;
        std::memcpy(&first, b.data(), sizeof first);
        EXPECT_EQ(first, static_cast<float>(tensor) + static_cast<float>(offset / 4) / 4194304);
        return Status();
      });
  EXPECT_TRUE(third.ok()) << third.text();
}

}  // namespace
}  // namespace weft
