#include "cli/launcher.h"

#include <arpa/inet.h>

#include <cstdlib>

#include "cli/options.h"
#include "cli/parser.h"

namespace weft::cli {

namespace {

// A launcher started this process if `mark` is set. A batch script of Slurm has SLURM_PROCID, too,
// but only the processes that srun starts are ranks.
struct Launcher {
  const char *name, *mark, *rank, *ranks;
};
constexpr Launcher kLaunchers[] = {
    {"env", "RANK", "RANK", "WORLD_SIZE"},
    {"slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpi", "PMI_RANK", "PMI_RANK", "PMI_SIZE"},
    {"mpi", "PMIX_RANK", "PMIX_RANK", nullptr},
    {"kubernetes", "JOB_COMPLETION_INDEX", "JOB_COMPLETION_INDEX", nullptr},
};
constexpr uint32_t kMostLaunched = uint32_t{1} << 20;

bool is_meant(const Launcher& row, const std::string& name) {
  return name == kAuto || name == row.name;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::string is(const std::string& name, uint32_t value) {
  return name + " is " + std::to_string(value);
}

Outcome read_number(const char* name, uint32_t least, uint32_t most, uint32_t& out) {
  const std::string text = variable(name);
  if (text.empty()) return {kUsage, std::string(name) + " is not set, expected a number", ""};
  if (read_value(text, &out) && out >= least && out <= most) return {};
  return {kUsage,
          std::string(name) + " is '" + text + "', expected a whole number from " +
              std::to_string(least) + " to " + std::to_string(most),
          ""};
}

Outcome read_row(const Launcher& row, Place& out) {
  out.rank_from = row.rank;
  CLI_TRY(read_number(row.rank, 0, kMostLaunched - 1, out.rank));
  const char* const ranks = row.ranks ? row.ranks : "WORLD_SIZE";
  if (!row.ranks && variable(ranks).empty()) return {};
  out.ranks_from = ranks;
  return read_number(ranks, 1, kMostLaunched, out.ranks);
}

Outcome agree(const std::string& name, uint32_t value, const std::string& other, uint32_t another) {
  if (name.empty() || other.empty() || value == another) return {};
  return {kUsage, is(name, value) + " and " + is(other, another) + ": two launchers disagree",
          "name the one that started the ranks, for example --launcher mpi"};
}

Outcome merge(const Place& found, Place& place) {
  CLI_TRY(agree(place.rank_from, place.rank, found.rank_from, found.rank));
  CLI_TRY(agree(place.ranks_from, place.ranks, found.ranks_from, found.ranks));
  place.rank = found.rank;
  place.rank_from = found.rank_from;
  if (found.ranks_from.empty()) return {};
  place.ranks = found.ranks;
  place.ranks_from = found.ranks_from;
  return {};
}

// The first host of a list such as "node[07-12,20],login".
std::string first_host(const std::string& list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t first = at + 1, end = list.find_first_of(",-]", first);
    at = list.find(']', first);
    if (at == std::string::npos) return "";
    host += list.substr(first, end - first);
  }
  return host;
}

// Job steps may share a node, so each uses another port.
Outcome meet_in_slurm(Place& place) {
  const std::string list = variable("SLURM_STEP_NODELIST");
  place.host = first_host(list);
  if (place.host.empty())
    return {kUsage, "SLURM_STEP_NODELIST is '" + list + "', expected a list of nodes", ""};
  uint32_t job = 0, step = 0;
  CLI_TRY(read_number("SLURM_JOB_ID", 0, UINT32_MAX, job));
  CLI_TRY(read_number("SLURM_STEP_ID", 0, UINT32_MAX, step));
  place.port = 20000 + static_cast<uint32_t>((uint64_t{job} * 10 + step) % 10000);
  return {};
}

Outcome not_found(const std::string& name) {
  std::string marks;
  for (const Launcher& row : kLaunchers)
    if (is_meant(row, name)) marks += (marks.empty() ? "" : ", ") + std::string(row.mark);
  const bool several = marks.find(',') != std::string::npos;
  return {kUsage,
          "--launcher " + name + ": " + (several ? "none of " : "") + marks +
              (several ? " is set" : " is not set"),
          "start the command with the launcher, such as srun or mpirun"};
}

bool is_address(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

std::string endpoint_of(const std::string& host, uint32_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return "tcp://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace

std::vector<std::string> launcher_names() {
  std::vector<std::string> out = {kAuto};
  for (const Launcher& row : kLaunchers)
    if (out.back() != row.name) out.push_back(row.name);
  return out;
}

Outcome read_place(const std::string& launcher, Place& place) {
  bool slurm = false;
  for (const Launcher& row : kLaunchers) {
    if (!is_meant(row, launcher) || variable(row.mark).empty()) continue;
    Place found;
    CLI_TRY(read_row(row, found));
    CLI_TRY(merge(found, place));
    slurm = slurm || row.name == std::string_view("slurm");
  }
  if (place.rank_from.empty()) return not_found(launcher);
  if (place.ranks && place.rank >= place.ranks)
    return {kUsage,
            is(place.rank_from, place.rank) + ", expected less than " + place.ranks_from +
                ", which is " + std::to_string(place.ranks),
            ""};
  if (slurm) CLI_TRY(meet_in_slurm(place));
  if (const std::string host = variable("MASTER_ADDR"); !host.empty()) place.host = host;
  if (variable("MASTER_PORT").empty()) return {};
  return read_number("MASTER_PORT", 1, 65535, place.port);
}

Outcome check_ranks(const Place& place, uint32_t ranks) {
  if (place.ranks && ranks != place.ranks)
    return {kUsage,
            "the number of ranks is " + std::to_string(ranks) + ", but " +
                is(place.ranks_from, place.ranks),
            ""};
  if (place.rank >= ranks)
    return {kUsage,
            is(place.rank_from, place.rank) + ", expected less than --ranks, which is " +
                std::to_string(ranks),
            ""};
  return {};
}

std::string meeting_point(const Place& place) { return endpoint_of(place.host, place.port); }

// A host name may resolve to another address on its own host, so rank 0 listens at all of them.
std::string listening_point(const Place& place, uint32_t port) {
  const bool own = is_address(place.host) || place.host == "localhost";
  return endpoint_of(own ? place.host : "*", port);
}

}  // namespace weft::cli
