// What is said in the admission: a process that knows only rank 0's address asks to join, and is
// given its rank, the model, the plan and where the others are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "link/link.h"
#include "net/curve.h"
#include "plan/plan.h"

namespace weft {

// The numeric profile of this process: build, SIMD target, GEMM kernels. Ranks with different
// profiles would not give the same bits.
std::string numeric_profile();

constexpr uint32_t kJoinType = 1, kWelcomeType = 2;

struct JoinRequest {
  int32_t wanted_rank = -1;      // -1: any
  std::string endpoint;          // where higher ranks may dial this process
  std::vector<std::string> ops;  // that are not weft's own, as op_text
  std::optional<PlanHash> plan;  // of a process that made the plan itself
  PublicKey key{};               // of this process for the run; zeros where nothing is encrypted
};

struct Welcome {
  int32_t rank = 0;
  uint32_t incarnation = 0;
  uint32_t peer_timeout_ms = 0;  // of every link of the run
  Digest run;
  std::vector<std::byte> model, config;
  std::vector<std::string> endpoints;  // per rank
  std::vector<PublicKey> keys;         // per rank
};

std::vector<std::byte> encode_join(const JoinRequest& join);
Result<JoinRequest> decode_join(std::span<const std::byte> bytes);
std::vector<std::byte> encode_welcome(const Welcome& welcome);
Result<Welcome> decode_welcome(std::span<const std::byte> bytes);

// An op of the caller's, as a request names it: "NAME VERSION".
std::string op_text(const Op& op);
// Whether who has these ops beside weft's own can make the model, or the first node that it cannot
// make.
Status check_ops(const Model& model, std::span<const std::string> ops);

// Equal, or the first section that differs. What rank 0 has is not said: it may be a stranger who
// asks.
Status compare_plans(const PlanHash& mine, const PlanHash& theirs);

Process own_process();
// What both ends of a admission link know: version and profile. And of a link of the run.
Identity admission_identity();
Identity run_identity(const Plan& plan, uint32_t incarnation, const Digest& run);

}  // namespace weft
