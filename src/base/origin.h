// Why a run failed, as facts. They are filled in where the failure arises, every rank tells the
// others the same ones, and origin_text() is the only place where they become a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft {

constexpr int32_t kNobody = 0xffff;  // the rank of a process that has none yet

// What a rank does at one moment.
struct Activity {
  enum class State : uint8_t { unknown, idle, runs, waits };
  // What a rank that waits needs next: a message, or one of the other three.
  enum class Awaited : uint8_t {
    nothing,
    commit,
    release,  // its own messages have to leave
    input,
    activation,
    gradient,
    message  // any other
  };
  static constexpr char kClear = 'c', kReduce = 'g', kUpdate = 'u', kFinish = 'e';
  static constexpr uint8_t kTrain = 0, kEval = 1, kForward = 2;

  State state = State::unknown;
  char job = 0;  // F, I, W, B, R or O for an action, otherwise one of those above
  Awaited awaited = Awaited::nothing;
  uint8_t mode = kTrain;
  int32_t stage = -1, micro_batch = -1;  // of an action
  int32_t from = -1;                     // awaited messages: the rank that sends them
  uint64_t step = 0;  // training steps before this one; idle: steps of any kind that are done
  friend bool operator==(const Activity&, const Activity&) = default;
};

constexpr uint8_t kActivityStates = 4, kAwaitedKinds = 7;
// Whether a letter is one of Activity::job, and whether it is that of an action.
bool is_job(char letter);
bool is_action(char letter);

// "in 2B5 of step 12", "before 2B5 of step 12, waits for the activation of micro-batch 5 from rank
// 1".
std::string activity_text(const Activity& activity);

struct Process {
  uint32_t pid = 0;  // 0: unknown
  std::string host;  // empty: unknown
  friend bool operator==(const Process&, const Process&) = default;
};

enum class Cause : uint8_t {
  failed = 1,   // something failed in the process; `detail` describes it
  closed,       // its connection was closed; `detail` is what the transport reports
  silent,       // nothing arrived from it for `limit_ms`
  missing,      // `count` data frames that it announced did not arrive within `limit_ms`
  unreachable,  // it did not connect, within `limit_ms` if that is set; `detail` is what the
                // transport reports
  late,         // it did not do within `limit_ms` what `detail` names: "answer bye"
  refused,      // it differs from the rest of the run; `detail` says how
  protocol,     // it violated the protocol; `detail` says how
  no_run,       // the run did not begin; `detail` says why
};
constexpr uint8_t kCauses = 9;

struct Origin {
  int32_t rank = -1;  // the rank that failed, not the one that noticed. -1: none in particular
  Code code = Code::peer;
  Cause cause = Cause::failed;
  // closed to unreachable: rank 0 is connected with both ranks, so only the connection between them
  // was lost. -1: the rank was lost
  int32_t other = -1;
  bool joining = false;  // the rank had been assigned, and its process had not joined the run yet
  Process process = {};
  Activity activity =
      {};  // failed: during which the failure occurred; otherwise what the rank reported last
  int64_t limit_ms = 0, count = 0;
  int64_t heard_ms = -1,
          reported_ms = -1;  // how long ago anything, and `activity`, arrived. -1: unknown
  std::string detail = {};
  // Of the rank. Every process takes them from its own plan; they are not sent.
  std::vector<uint32_t> stages = {};

  // The rank cannot be reached, or cannot be reached any more.
  bool lost() const {
    return code == Code::peer && cause >= Cause::closed && cause <= Cause::unreachable;
  }
  friend bool operator==(const Origin&, const Origin&) = default;
};

// "rank 2".
std::string rank_name(int32_t rank);

// "rank 2 (stages 2 and 5, pid 77) lost: connection closed; last heard 0.3 s ago; its status 0.5 s
// ago: in 2B5 of step 12"
std::string origin_text(const Origin& origin);

}  // namespace weft
