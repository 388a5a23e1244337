#include "io/cluster.h"

#include <charconv>
#include <map>
#include <set>

#include "base/fault.h"
#include "base/text.h"
#include "io/file.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr uint64_t kFormat = 1;
constexpr uint64_t kMostRanks = 1 << 20;
constexpr size_t kMostBytes = size_t{1} << 26;
constexpr size_t kMostValues = size_t{1} << 20;  // of 131072 machines or links, or more

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
  return out >= 1 && out <= kMostRanks
             ? Status()
             : fault(cat(where, key, " is ", out, ", expected 1 to ", kMostRanks));
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
  if (!(out.speed > 0))
    return fault(cat(where, "speed is ", out.speed, ", expected a number above 0"));
  if (fields.has("memory")) WEFT_TRY(fields.number("memory", out.memory));
  if (out.memory > uint64_t{INT64_MAX})
    return fault(cat(where, "memory is ", out.memory, " bytes, expected at most ", INT64_MAX));
  if (out.name.empty()) return fault(cat(where, "name is empty"));
  return fields.finish();
}

// "node-7" is number 7 of the stem "node"; no stem: not such a name.
struct Numbered {
  std::string_view stem;
  uint64_t number = 0;
};
Numbered numbered(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view digits = name.substr(dash + 1);
  Numbered out{name.substr(0, dash)};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), out.number);
  const bool plain = error == std::errc() && end == digits.data() + digits.size() &&
                     (digits[0] != '0' || digits.size() == 1);
  return plain ? out : Numbered{};
}

// The names of machines: those of the file, or with a count the name of each one.
class Names {
 public:
  // The entry with this name, without or with a number; null: none.
  const size_t* find(std::string_view name) const {
    if (const auto it = entries_.find(name); it != entries_.end()) return &it->second.index;
    const Numbered one = numbered(name);
    const auto it = entries_.find(one.stem);
    return it != entries_.end() && it->second.count > 1 && one.number < it->second.count
               ? &it->second.index
               : nullptr;
  }
  // An entry that already has a name of m.
  const size_t* taken(const ClusterMachines& m) const {
    if (const size_t* index = find(m.name)) return index;
    const auto it = lowest_.find(m.name);
    return it != lowest_.end() && m.count > 1 && it->second.number < m.count ? &it->second.index
                                                                             : nullptr;
  }
  void add(const ClusterMachines& m, size_t index) {
    entries_[m.name] = {m.count, index};
    if (!m.group.empty()) groups_.insert(m.group);
    const Numbered one = numbered(m.name);
    if (one.stem.empty()) return;
    const auto [it, fresh] = lowest_.try_emplace(std::string(one.stem), Lowest{one.number, index});
    if (!fresh && one.number < it->second.number) it->second = {one.number, index};
  }
  bool knows(const std::string& name) const { return groups_.contains(name) || find(name); }

 private:
  struct Entry {
    uint64_t count;
    size_t index;
  };
  struct Lowest {
    uint64_t number;
    size_t index;
  };
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, Lowest, std::less<>>
      lowest_;  // by stem: the entry whose own name is it with the lowest number
  std::set<std::string, std::less<>> groups_;
};

Status read_override(const Json& value, size_t index, const Names& known,
                     const ClusterLink& between, ClusterOverride& out) {
  const std::string where = cat("links[", index, "]: ");
  if (!value.is_object()) return fault(cat(where, "expected an object, found ", value.type_name()));
  Fields fields(value, where);
  WEFT_TRY_ASSIGN(const Json* ends, fields.list("between"));
  std::vector<std::string> names;
  WEFT_TRY(read_texts(*ends, cat(where, "between"), names));
  if (names.size() != 2)
    return fault(cat(where, "between has ", names.size(), " names, expected 2"));
  for (const std::string& name : names)
    if (!known.knows(name))
      return fault(cat(where, "'", name, "' is not a machine or a group of the file"));
  out.a = names[0];
  out.b = names[1];
  // Missing keys have the values of `between`.
  out.link = between;
  WEFT_TRY(read_link(fields, out.link));
  return fields.finish();
}

Status read_all(const Json& root, Cluster& out) {
  Fields fields(root, "");
  uint64_t format = 0;
  WEFT_TRY(fields.number("weft_cluster", format));
  if (format != kFormat)
    return fault(cat("weft_cluster is ", format, ", this version of weft reads format ", kFormat));
  WEFT_TRY_ASSIGN(const Json* machines, fields.list("machines"));
  if (machines->items().empty()) return fault("machines is empty, expected one or more");
  Names names;
  uint64_t ranks = 0;
  for (const Json& value : machines->items()) {
    const size_t index = out.machines.size();
    ClusterMachines next;
    WEFT_TRY(read_machines(value, index, next));
    ranks += next.count * next.ranks;  // each at most 2^20
    if (ranks > kMostRanks)
      return fault(cat("machines[", index, "]: up to here there are ", ranks,
                       " ranks, expected at most ", kMostRanks));
    if (const size_t* other = names.taken(next))
      return fault(
          cat("machines[", index, "]: name '", next.name, "' is also in machines[", *other, "]"));
    names.add(next, index);
    out.machines.push_back(std::move(next));
  }
  if (fields.has("overhead")) WEFT_TRY(fields.real("overhead", out.overhead));
  WEFT_TRY(read_default_link(fields, "within", out.within));
  WEFT_TRY(read_default_link(fields, "between", out.between));
  if (fields.has("links")) {
    WEFT_TRY_ASSIGN(const Json* links, fields.list("links"));
    for (const Json& value : links->items()) {
      ClusterOverride next;
      WEFT_TRY(read_override(value, out.overrides.size(), names, out.between, next));
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

Cluster::Machine Cluster::at(int64_t rank) const {
  size_t kind = 0;
  for (int64_t all = 0; kind + 1 < machines.size(); ++kind, rank -= all) {
    all = static_cast<int64_t>(machines[kind].count * machines[kind].ranks);
    if (rank < all) break;
  }
  return {kind, rank / static_cast<int64_t>(machines[kind].ranks)};
}

std::string Cluster::machine(int64_t rank) const {
  const Machine machine = at(rank);
  const ClusterMachines& m = machines[machine.kind];
  return m.count > 1 ? cat(m.name, "-", machine.number) : m.name;
}

bool Cluster::named(const Machine& machine, const std::string& name) const {
  const ClusterMachines& m = machines[machine.kind];
  return m.name == name || m.group == name ||
         (m.count > 1 && cat(m.name, "-", machine.number) == name);
}

ClusterLink Cluster::link(int64_t from, int64_t to) const {
  const Machine a = at(from), b = at(to);
  if (a.kind == b.kind && a.number == b.number) return within;
  for (size_t i = overrides.size(); i-- > 0;) {
    const ClusterOverride& o = overrides[i];
    if ((named(a, o.a) && named(b, o.b)) || (named(a, o.b) && named(b, o.a))) return o.link;
  }
  return between;
}

Result<Cluster> parse_cluster(std::string_view text) {
  Cluster out;
  WEFT_TRY_ASSIGN(const Json root,
                  read_json(text, {.fractions = Fractions::allow, .values = kMostValues}));
  WEFT_TRY(read_all(root, out));
  return out;
}

Result<Cluster> read_cluster(const std::string& path) {
  WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
  return parse_cluster(text).within(cat("cluster '", path, "'"));
}

}  // namespace weft
