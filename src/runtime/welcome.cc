#include "runtime/welcome.h"

#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "kernels/gemm.h"
#include "kernels/target.h"
#include "plan/plan_hash.h"

namespace weft {

namespace {

// Different versions of weft may compute different bits, so links compare the version.
constexpr const char* kVersion = WEFT_VERSION_TEXT;

void write_digest(ByteWriter& out, const Digest& digest) {
  out.number(digest.high).number(digest.low);
}

Digest read_digest(ByteReader& in) {
  Digest out;
  out.high = in.number<uint64_t>();
  out.low = in.number<uint64_t>();
  return out;
}

Status whole(const ByteReader& in, const char* what) {
  if (in.at_end()) return {};
  return Status(Code::protocol,
                cat(what, in.ok() ? " is followed by other bytes" : " is cut short"));
}

void write_key(ByteWriter& out, const PublicKey& key) {
  for (const unsigned char byte : key) out.number(byte);
}

PublicKey read_key(ByteReader& in) {
  PublicKey out{};
  for (unsigned char& byte : out) byte = in.number<unsigned char>();
  return out;
}

std::vector<std::byte> copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

// weft's kernels give the same bits on every processor with fused multiply-add.
std::string numeric_profile() {
  if (gemm_is_fused()) return "fp32, fused";
  const GemmInfo gemm = gemm_info();
  return cat(gemm.library, ' ', gemm.kernels, ", ", simd_target());
}

std::vector<std::byte> encode_join(const JoinRequest& join) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.number(join.wanted_rank).text(join.endpoint).number(static_cast<uint64_t>(join.ops.size()));
  for (const std::string& op : join.ops) out.text(op);
  write_key(out, join.key);
  out.number(static_cast<uint8_t>(join.plan.has_value()));
  if (join.plan) {
    const PlanHash& hash = *join.plan;
    for (const Digest& d : {hash.model, hash.partition, hash.schedule, hash.settings})
      write_digest(out, d);
    out.number(static_cast<uint64_t>(hash.each.size()));
    for (const Digest& d : hash.each) write_digest(out, d);
  }
  return bytes;
}

Result<JoinRequest> decode_join(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  JoinRequest join;
  join.wanted_rank = in.number<int32_t>();
  join.endpoint = in.text();
  join.ops.resize(in.count(sizeof(uint64_t)));
  for (std::string& op : join.ops) op = in.text();
  join.key = read_key(in);
  if (in.number<uint8_t>()) {
    PlanHash hash;
    for (Digest* d : {&hash.model, &hash.partition, &hash.schedule, &hash.settings})
      *d = read_digest(in);
    hash.each.resize(in.count(sizeof(Digest)));
    for (Digest& d : hash.each) d = read_digest(in);
    join.plan = std::move(hash);
  }
  WEFT_TRY(whole(in, "the request to join"));
  return join;
}

std::vector<std::byte> encode_welcome(const Welcome& welcome) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.number(welcome.rank).number(welcome.incarnation).number(welcome.peer_timeout_ms);
  write_digest(out, welcome.run);
  out.bytes(welcome.model)
      .bytes(welcome.config)
      .number(static_cast<uint64_t>(welcome.endpoints.size()));
  for (const std::string& endpoint : welcome.endpoints) out.text(endpoint);
  for (const PublicKey& key : welcome.keys) write_key(out, key);
  return bytes;
}

Result<Welcome> decode_welcome(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Welcome welcome;
  welcome.rank = in.number<int32_t>();
  welcome.incarnation = in.number<uint32_t>();
  welcome.peer_timeout_ms = in.number<uint32_t>();
  welcome.run = read_digest(in);
  welcome.model = copy(in.bytes());
  welcome.config = copy(in.bytes());
  welcome.endpoints.resize(in.count(sizeof(uint64_t)));
  for (std::string& endpoint : welcome.endpoints) endpoint = in.text();
  welcome.keys.resize(welcome.endpoints.size());
  for (PublicKey& key : welcome.keys) key = read_key(in);
  WEFT_TRY(whole(in, "the welcome"));
  if (welcome.peer_timeout_ms < kLeastSilence)
    return Status(Code::protocol, cat("welcome with a peer timeout of ", welcome.peer_timeout_ms,
                                      " ms, expected at least ", kLeastSilence));
  if (welcome.rank < 1 || welcome.rank >= static_cast<int32_t>(welcome.endpoints.size()))
    return Status(Code::protocol,
                  cat("welcome as rank ", welcome.rank, " of ", welcome.endpoints.size()));
  return welcome;
}

std::string op_text(const Op& op) { return cat(op.name(), ' ', op.version()); }

Status check_ops(const Model& model, std::span<const std::string> ops) {
  for (const Node& node : model.nodes()) {
    if (node.is_input() || find_op(node.op->name())) continue;
    if (std::find(ops.begin(), ops.end(), op_text(*node.op)) != ops.end()) continue;
    const std::string name = cat(node.op->name(), ' ');
    const auto other = std::find_if(ops.begin(), ops.end(), [&name](const std::string& op) {
      return op.starts_with(name) && op.find(' ', name.size()) == std::string::npos;
    });
    if (other == ops.end())
      return Status(Code::not_found, cat("node '", node.name, "' needs the op '", node.op->name(),
                                         "', which it does not have"));
    return Status(Code::unsupported,
                  cat("node '", node.name, "' needs version ", node.op->version(), " of the op '",
                      node.op->name(), "', it has ", other->substr(name.size())));
  }
  return {};
}

Status compare_plans(const Plan& plan, const PlanHash& theirs) {
  const auto differs = [](const std::string& part) {
    return Status(Code::invalid, cat("its plan differs from that of rank 0 in ", part));
  };
  const PlanHash& mine = plan.hash;
  // First: most settings also change the partition or the schedule.
  const auto settings = setting_digests(plan.config);
  for (size_t i = 0; i < std::min(settings.size(), theirs.each.size()); ++i)
    if (settings[i].second != theirs.each[i])
      return differs(cat("the setting '", settings[i].first, "'"));
  if (mine.each.size() != theirs.each.size()) return differs("the number of parameter groups");
  if (mine.model != theirs.model) return differs("the model");
  if (mine.partition != theirs.partition) return differs("the partition");
  if (mine.schedule != theirs.schedule) return differs("the schedule");
  return {};
}

Process own_process() {
  char host[kMaxName + 1] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  return {.pid = static_cast<uint32_t>(getpid()), .host = host};
}

Identity admission_identity() {
  Identity out;
  out.version = kVersion;
  out.profile = numeric_profile();
  out.process = own_process();
  return out;
}

Identity run_identity(const Plan& plan, uint32_t incarnation, const Digest& run) {
  Identity out = admission_identity();
  out.incarnation = incarnation;
  out.run = run;
  out.model = plan.hash.model;
  out.partition = plan.hash.partition;
  out.schedule = plan.hash.schedule;
  out.settings = plan.hash.settings;
  return out;
}

}  // namespace weft
