// The text form of schedules, and the table of the available ones.
#include "schedule/schedule.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/text.h"

namespace weft {

char kind_letter(Kind kind) {
  switch (kind) {
    case Kind::F: return 'F';
    case Kind::R: return 'R';
    case Kind::I: return 'I';
    case Kind::W: return 'W';
    case Kind::B: return 'B';
    case Kind::O: return 'O';
  }
  return '?';
}

std::string Action::text() const { return cat(stage, kind_letter(kind), micro_batch); }

std::string Schedule::text() const {
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i) out += ' ';
      out += row[i].text();
    }
    out += '\n';
  }
  return out;
}

const std::vector<ScheduleKind>& all_schedules() {
  static const std::vector<ScheduleKind> table = {
#define WEFT_SCHEDULE(name, chunks, make, about) {name, chunks, make, about, false, false, false},
#define WEFT_ASYNCHRONOUS(name, make, about) {name, 1, make, about, true, false, false},
#define WEFT_FORWARD_ONLY(name, make, about) {name, 1, make, about, false, true, false},
#define WEFT_FROM_COSTS(name, make, about) {name, 1, make, about, false, false, true},
#include "schedule/schedules.def"
#undef WEFT_FROM_COSTS
#undef WEFT_FORWARD_ONLY
#undef WEFT_ASYNCHRONOUS
#undef WEFT_SCHEDULE
  };
  return table;
}

const ScheduleKind* find_schedule(std::string_view name) {
  for (const ScheduleKind& kind : all_schedules())
    if (kind.name == name) return &kind;
  return nullptr;
}

bool is_from_costs(std::string_view name) {
  const ScheduleKind* kind = find_schedule(name);
  return kind && kind->from_costs;
}

Result<int32_t> chunks_of(const ScheduleKind& kind, int32_t chunks) {
  if (chunks < 0) return Status(Code::invalid, cat("chunks is ", chunks, ", expected 1 or more"));
  if (kind.chunks == 0) return chunks ? chunks : 2;
  if (chunks && chunks != kind.chunks)
    return Status(Code::invalid,
                  cat("schedule '", kind.name, "' has ", kind.chunks, " stage",
                      kind.chunks == 1 ? "" : "s", " per rank, found chunks ", chunks,
                      "; interleaved, looped-bfs and interleaved-zb take any number"));
  return kind.chunks;
}

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Removes the digits at the start of `word` and returns their value. The maximum value is not
// accepted, because counts are the largest number plus one.
bool take_number(std::string_view& word, int32_t& out) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || value >= static_cast<uint32_t>(std::numeric_limits<int32_t>::max()))
    return false;
  out = static_cast<int32_t>(value);
  word.remove_prefix(static_cast<size_t>(end - word.data()));
  return true;
}

bool read_action(std::string_view word, Action& out) {
  if (!take_number(word, out.stage) || word.empty()) return false;
  switch (word.front()) {
    case 'F': out.kind = Kind::F; break;
    case 'R': out.kind = Kind::R; break;
    case 'I': out.kind = Kind::I; break;
    case 'W': out.kind = Kind::W; break;
    case 'B': out.kind = Kind::B; break;
    case 'O': out.kind = Kind::O; break;
    default: return false;
  }
  word.remove_prefix(1);
  return take_number(word, out.micro_batch) && word.empty();
}

struct Reader {
  Schedule schedule;
  size_t line_number = 0;  // counted from 1
  bool blank_seen = false;

  Status fault(size_t column, std::string text) const {
    return Status(Code::data, cat("line ", line_number, " (row of rank ", schedule.rows.size(),
                                  "), column ", column + 1, ": ", text));
  }

  Status read_line(std::string_view line) {
    ++line_number;
    size_t at = 0;
    const auto skip_blanks = [&] {
      while (at < line.size() && is_blank(line[at])) ++at;
    };
    skip_blanks();
    if (at == line.size()) {
      blank_seen = blank_seen || !schedule.rows.empty();
      return {};
    }
    if (line[at] == '#' && schedule.rows.empty()) return {};
    // The position of a row is its rank, so that an empty line between rows is ambiguous.
    if (blank_seen) return fault(at, "expected no row after an empty line");
    std::vector<Action> row;
    while (at < line.size()) {
      size_t end = at;
      while (end < line.size() && !is_blank(line[end])) ++end;
      const std::string_view word = line.substr(at, end - at);
      Action action;
      if (!read_action(word, action))
        return fault(at, cat("expected an action such as 2F0, found ", quoted(word, 24)));
      row.push_back(action);
      at = end;
      skip_blanks();
    }
    schedule.rows.push_back(std::move(row));
    return {};
  }

  // The rows determine the sizes and the rank of each stage; check_schedule checks whether the
  // schedule can run.
  Status finish() {
    if (schedule.rows.empty())
      return Status(Code::data, "expected a row of actions per rank, found none");
    size_t actions = 0;
    schedule.forward_only = true;
    for (const auto& row : schedule.rows) {
      actions += row.size();
      for (const Action& action : row) {
        schedule.stages = std::max(schedule.stages, action.stage + 1);
        int32_t& count = action.kind == Kind::O ? schedule.updates : schedule.micro_batches;
        count = std::max(count, action.micro_batch + 1);
        schedule.forward_only = schedule.forward_only && action.kind == Kind::F;
      }
    }
    // Before memory is allocated for the stages: there cannot be more stages than actions.
    if (static_cast<size_t>(schedule.stages) > actions)
      return Status(Code::data, cat("stage ", schedule.stages - 1, " requires at least ",
                                    schedule.stages, " actions, found ", actions));
    schedule.rank_of_stage.assign(static_cast<size_t>(schedule.stages), -1);
    for (int32_t r = 0; r < schedule.ranks(); ++r)
      for (const Action& action : schedule.rows[static_cast<size_t>(r)]) {
        int32_t& home = schedule.rank_of_stage[static_cast<size_t>(action.stage)];
        if (home < 0) home = r;
      }
    const auto homeless =
        std::find(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), -1);
    if (homeless != schedule.rank_of_stage.end())
      return Status(Code::data, cat("stage ", homeless - schedule.rank_of_stage.begin(),
                                    " has no action, but stage ", schedule.stages - 1, " has"));
    return {};
  }
};

}  // namespace

Result<Schedule> parse_schedule(std::string_view text) {
  Reader reader;
  while (!text.empty()) WEFT_TRY(reader.read_line(take_item(text, '\n')));
  WEFT_TRY(reader.finish());
  return std::move(reader.schedule);
}

}  // namespace weft
