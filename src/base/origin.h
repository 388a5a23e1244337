// Why a run failed, as data. The rank that detects the failure fills them in and sends them to the
// other ranks. Only origin_text() converts them to text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft {

constexpr int32_t kNobody = 0xffff;  // the rank of a process without a rank

// What a rank is doing.
struct Activity {
  enum class State : uint8_t { unknown, idle, runs, waits };
  // What a waiting rank needs next: a message, or one of the other three.
  enum class Awaited : uint8_t {
    nothing,
    commit,
    release,  // until its own messages are sent
    input,
    activation,
    gradient,
    message  // any other message
  };
  static constexpr char kClear = 'c', kReduce = 'g', kUpdate = 'u', kFinish = 'e';
  static constexpr uint8_t kTrain = 0, kEval = 1, kForward = 2, kFill = 3;

  State state = State::unknown;
  char job = 0;  // F, I, W, B, R or O for an action, or one of the above
  Awaited awaited = Awaited::nothing;
  uint8_t mode = kTrain;
  int32_t stage = -1, micro_batch = -1;  // of an action
  int32_t from = -1;                     // awaited messages: the rank that sends them
  uint64_t step = 0;  // training steps before this one; idle: completed steps of any kind
  friend bool operator==(const Activity&, const Activity&) = default;
};

constexpr uint8_t kActivityStates = 4, kAwaitedKinds = 7;
// Whether a letter is a value of Activity::job, and whether it is an action.
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
  failed = 1,   // an operation failed in the process; `detail` describes it
  closed,       // its connection was closed; `detail` is the message of the transport
  silent,       // nothing arrived from it for `limit_ms`
  missing,      // `count` data frames that it announced did not arrive within `limit_ms`
  unreachable,  // it did not connect, within `limit_ms` if that is set; `detail` is the message of
                // the transport
  late,         // it did not do within `limit_ms` what `detail` describes: "answer bye"
  refused,      // it differs from the other ranks of the run; `detail` describes the difference
  protocol,     // it violated the protocol; `detail` describes how
  no_run,       // the run did not begin; `detail` contains the reason
};
constexpr uint8_t kCauses = 9;

struct Origin {
  int32_t rank = -1;  // the rank that failed, not the one that detected it. -1: no rank
  Code code = Code::peer;
  Cause cause = Cause::failed;
  // Causes closed to unreachable: the other end of a lost connection, if rank 0 is connected to
  // both ranks. -1: the rank was lost
  int32_t other = -1;
  bool joining = false;  // the process of the rank had not yet joined the run
  Process process = {};
  Activity activity =
      {};  // failed: the activity during the failure; otherwise the last one that the rank reported
  int64_t limit_ms = 0, count = 0;
  int64_t heard_ms = -1,
          reported_ms = -1;  // time since any frame, and since `activity`, arrived. -1: unknown
  std::string detail = {};
  // The stages of the rank. Every process takes them from its own plan; they are not sent.
  std::vector<uint32_t> stages = {};

  // The rank cannot be reached, or can no longer be reached.
  bool lost() const {
    return code == Code::peer && cause >= Cause::closed && cause <= Cause::unreachable;
  }
  friend bool operator==(const Origin&, const Origin&) = default;
};

// "rank 2".
std::string rank_name(int32_t rank);

// "rank 2 (stages 2 and 5, pid 77) lost: connection closed; last frame 0.3 s ago; last status 0.5 s
// ago: in 2B5 of step 12"
std::string origin_text(const Origin& origin);

}  // namespace weft
