// The messages of the admission: a process that knows only the address of rank 0 requests to join,
// and receives its rank, the model, the plan and the addresses of the other ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "link/link.h"
#include "net/curve.h"
#include "plan/plan.h"

namespace weft {

// The numeric profile of this process: build, SIMD target, GEMM kernels. Ranks with different
// profiles would not compute the same bits.
std::string numeric_profile();

constexpr uint32_t kJoinType = 1, kWelcomeType = 2;

struct JoinRequest {
  int32_t wanted_rank = -1;      // -1: any
  std::string endpoint;          // at which higher ranks may dial this process
  std::vector<std::string> ops;  // that are not built in, as op_text
  std::optional<PlanHash> plan;  // if the process made the plan itself
  PublicKey key{};               // of this process for the run; zeros if nothing is encrypted
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

// The name of a user op in a request: "NAME VERSION".
std::string op_text(const Op& op);
// Ok if the model can be built from these and the built-in ops; otherwise names the first node that
// cannot.
Status check_ops(const Model& model, std::span<const std::string> ops);

// Ok if equal; otherwise names the first setting or part that differs. The error does not show the
// plan of rank 0, because the client may be unknown.
Status compare_plans(const Plan& plan, const PlanHash& theirs);

Process own_process();
// What both ends of an admission link compare: version and profile. And those of a run.
Identity admission_identity();
Identity run_identity(const Plan& plan, uint32_t incarnation, const Digest& run);

}  // namespace weft
