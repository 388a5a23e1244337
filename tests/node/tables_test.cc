// What a rank allocates: as much for a mesh of eight as for one of sixty-four, if it has as many
// edges and peers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "graph/presets.h"
#include "node/node.h"
#include "tune/make_plan.h"

namespace {
size_t allocated = 0;
}

void* operator new(size_t size) {
  allocated += size;
  if (void* at = std::malloc(size ? size : 1)) return at;
  throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace weft {
namespace {

class Unheard final : public RankNodeEffects {
  void run(const StepDescriptor&, double, int32_t, bool) override {}
  void copy(const MessageAt&) override {}
  Result<std::span<const std::byte>> outgoing(const MessageAt&) override {
    return std::span<const std::byte>();
  }
  Result<std::span<std::byte>> landing(const MessageAt&) override { return std::span<std::byte>(); }
  Status landed(const MessageAt&) override { return {}; }
  double loss(const MessageAt&) override { return 0; }
  void send(int32_t, Lane, std::span<const std::byte, kHeaderBytes>, std::span<const std::byte>,
            uint64_t) override {}
  void hang_up(int32_t) override {}
  void joined() override {}
  void message(int32_t, uint32_t, std::span<const std::byte>) override {}
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  void failed(const Origin&) override {}
  void closed() override {}
};

size_t bytes_of_rank_3_of(int32_t ranks) {
  PlanConfig config;
  config.ranks = ranks;
  config.micro_batches = 128;
  config.schedule = "1f1b";
  config.split = SplitBy::uniform;
  const std::string model = "mlp:width=8,layers=" + std::to_string(ranks);
  const auto plan = make_plan(make_preset(model, {}).take().model, config).take();
  Unheard effects;
  const size_t before = allocated;
  const RankNode node(plan, 3, Identity(), effects);
  return allocated - before;
}

TEST(TablesOfARank, DoNotGrowWithTheEdgesOfOthers) {
  EXPECT_EQ(bytes_of_rank_3_of(8), bytes_of_rank_3_of(64));
}

}  // namespace
}  // namespace weft
