#include "io/cluster.h"

#include "base/text.h"
#include "io/file.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr uint64_t kFormat = 1;
constexpr uint64_t kMostRanks = 1 << 20;
constexpr size_t kMostBytes = size_t{1} << 26;

Status fault(std::string text) { return Status(Code::data, std::move(text)); }

Status read_link(Fields& fields, ClusterLink& out) {
  if (fields.has("latency")) WEFT_TRY(fields.real("latency", out.latency));
  if (fields.has("bandwidth")) WEFT_TRY(fields.real("bandwidth", out.bandwidth));
  return {};
}

Status read_default_link(Fields& fields, const char* key, ClusterLink& out) {
  if (!fields.has(key)) return {};
  WEFT_TRY_ASSIGN(const Json* object, fields.object(key));
  Fields link(*object, cat(key, ": "));
  WEFT_TRY(read_link(link, out));
  return link.finish();
}

// Optional, at least 1.
Status read_count(Fields& fields, const std::string& where, const char* key, uint64_t& out) {
  if (!fields.has(key)) return {};
  WEFT_TRY(fields.number(key, out));
  return out >= 1 && out <= kMostRanks ? Status() : fault(cat(where, key, " is ", out, ", expected 1 to ", kMostRanks));
}

Status read_machines(const Json& value, size_t index, ClusterMachines& out) {
  const std::string where = cat("machines[", index, "]: ");
  if (!value.is_object()) return fault(cat(where, "expected an object, found ", value.type_name()));
  Fields fields(value, where);
  WEFT_TRY(fields.text("name", out.name));
  if (fields.has("group")) WEFT_TRY(fields.text("group", out.group));
  WEFT_TRY(read_count(fields, where, "count", out.count));
  WEFT_TRY(read_count(fields, where, "ranks", out.ranks));
  if (fields.has("speed")) WEFT_TRY(fields.real("speed", out.speed));
  if (!(out.speed > 0)) return fault(cat(where, "speed is ", out.speed, ", expected a number above 0"));
  if (fields.has("memory")) WEFT_TRY(fields.number("memory", out.memory));
  if (out.memory > uint64_t{INT64_MAX}) return fault(cat(where, "memory is ", out.memory, " bytes, expected at most ", INT64_MAX));
  if (out.name.empty()) return fault(cat(where, "name is empty"));
  return fields.finish();
}

// Is that the name of a machine of m, or of all of them?
bool carries(const ClusterMachines& m, const std::string& name) {
  if (m.name == name) return true;
  for (uint64_t i = 0; m.count > 1 && name.size() > m.name.size() && name.starts_with(m.name) && i < m.count; ++i)
    if (cat(m.name, "-", i) == name) return true;
  return false;
}

Status read_override(const Json& value, size_t index, const Cluster& cluster, ClusterOverride& out) {
  const std::string where = cat("links[", index, "]: ");
  if (!value.is_object()) return fault(cat(where, "expected an object, found ", value.type_name()));
  Fields fields(value, where);
  WEFT_TRY_ASSIGN(const Json* ends, fields.list("between"));
  std::vector<std::string> names;
  WEFT_TRY(read_texts(*ends, cat(where, "between"), names));
  if (names.size() != 2) return fault(cat(where, "between has ", names.size(), " names, expected 2"));
  for (const std::string& name : names) {
    bool known = false;
    for (const ClusterMachines& m : cluster.machines) known = known || m.group == name || carries(m, name);
    if (!known) return fault(cat(where, "'", name, "' is no machine and no group of the file"));
  }
  out.a = names[0];
  out.b = names[1];
  // What it does not say stays as it is between machines.
  out.link = cluster.between;
  WEFT_TRY(read_link(fields, out.link));
  return fields.finish();
}

Status read_all(const Json& root, Cluster& out) {
  Fields fields(root, "");
  uint64_t format = 0;
  WEFT_TRY(fields.number("weft_cluster", format));
  if (format != kFormat) return fault(cat("weft_cluster is ", format, ", this weft reads format ", kFormat));
  WEFT_TRY_ASSIGN(const Json* machines, fields.list("machines"));
  if (machines->empty()) return fault("machines is empty, expected one or more");
  for (const Json& value : *machines) {
    ClusterMachines next;
    WEFT_TRY(read_machines(value, out.machines.size(), next));
    for (size_t i = 0; i < out.machines.size(); ++i)
      if (carries(out.machines[i], next.name) || carries(next, out.machines[i].name))
        return fault(cat("machines[", out.machines.size(), "]: name '", next.name, "' is also in machines[", i, "]"));
    out.machines.push_back(std::move(next));
  }
  uint64_t ranks = 0;
  for (const ClusterMachines& m : out.machines) ranks += m.count * m.ranks;   // each at most 2^20
  if (ranks > kMostRanks) return fault(cat("machines have ", ranks, " ranks, expected at most ", kMostRanks));
  if (fields.has("overhead")) WEFT_TRY(fields.real("overhead", out.overhead));
  WEFT_TRY(read_default_link(fields, "within", out.within));
  WEFT_TRY(read_default_link(fields, "between", out.between));
  if (fields.has("links")) {
    WEFT_TRY_ASSIGN(const Json* links, fields.list("links"));
    for (const Json& value : *links) {
      ClusterOverride next;
      WEFT_TRY(read_override(value, out.overrides.size(), out, next));
      out.overrides.push_back(std::move(next));
    }
  }
  return fields.finish();
}

}  // namespace

int64_t Cluster::ranks() const {
  uint64_t sum = 0;
  for (const ClusterMachines& m : machines) sum += m.count * m.ranks;
  return static_cast<int64_t>(sum);
}

Cluster::Seat Cluster::at(int64_t rank) const {
  size_t kind = 0;
  for (int64_t all = 0; kind + 1 < machines.size(); ++kind, rank -= all) {
    all = static_cast<int64_t>(machines[kind].count * machines[kind].ranks);
    if (rank < all) break;
  }
  return {kind, rank / static_cast<int64_t>(machines[kind].ranks)};
}

std::string Cluster::machine(int64_t rank) const {
  const Seat seat = at(rank);
  const ClusterMachines& m = machines[seat.kind];
  return m.count > 1 ? cat(m.name, "-", seat.number) : m.name;
}

bool Cluster::named(const Seat& seat, const std::string& name) const {
  const ClusterMachines& m = machines[seat.kind];
  return m.name == name || m.group == name || (m.count > 1 && cat(m.name, "-", seat.number) == name);
}

ClusterLink Cluster::link(int64_t from, int64_t to) const {
  const Seat a = at(from), b = at(to);
  if (a.kind == b.kind && a.number == b.number) return within;
  for (size_t i = overrides.size(); i-- > 0;) {
    const ClusterOverride& o = overrides[i];
    if ((named(a, o.a) && named(b, o.b)) || (named(a, o.b) && named(b, o.a))) return o.link;
  }
  return between;
}

Result<Cluster> parse_cluster(std::string_view text) {
  Cluster out;
  WEFT_TRY_ASSIGN(const Json root, read_json(text, Fractions::allow));
  WEFT_TRY(read_all(root, out));
  return out;
}

Result<Cluster> read_cluster(const std::string& path) {
  WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
  auto cluster = parse_cluster(text);
  if (!cluster.ok()) return cluster.status().within(cat("cluster '", path, "'"));
  return cluster;
}

}  // namespace weft
