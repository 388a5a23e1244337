// The events that the owner of a run polls.
#pragma once

#include <cstdint>
#include <string>

#include "base/origin.h"
#include "engine/messages.h"

namespace weft {

struct Step;

// What happens to the processes of a run.
struct MeshEvent {
  int32_t rank = -1;      // joined, left, started
  int32_t ranks = 0;      // of the run
  int32_t missing = 0;    // joined, left: ranks that have not joined
  Process process = {};   // joined
  uint64_t count = 0;     // refused: connections so far
  std::string text = {};  // refused: the last of them
};

struct RunEvent {
  enum class Kind : uint8_t {
    micro_batch = 1,
    done = 2,
    error = 3,
    update = 4,
    saved = 5,
    joined = 6,
    left = 7,
    refused = 8,
    started = 9,
    failed = 10,
    ended = 11
  };
  Kind kind = Kind::done;
  // Final events of a step or save: valid until the next acquire(). Null: an event of the run.
  Step* step = nullptr;
  uint64_t tag = 0;
  // Training steps before this one; update: plus the updates of the segment before it; saved: in
  // the checkpoint.
  uint64_t number = 0;
  Mode mode = Mode::train;
  int32_t micro_batch = 0;
  const Step* of = nullptr;  // micro_batch: its step, valid until the final event of the step
  double loss = 0;  // mean over the counted elements: of the micro-batch, the update, or the step
  double grad_norm = 0;
  double idle = 0;  // final: mean over the ranks; per rank in the step
  Status status = {};
  MeshEvent mesh = {};  // joined, left, refused, started
};

// Of joined, left or refused, for a log.
std::string mesh_text(RunEvent::Kind kind, const MeshEvent& event);

// What a host polls: a run that it controls, or the rank that it serves.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Owner's thread. The next event, if one arrives within the time (nanoseconds; negative: no
  // limit). Waits only while something is in progress whose end is an event.
  virtual bool poll(RunEvent& event, int64_t timeout_ns) = 0;
  // Any thread. Readable if poll() has something to do; level-triggered, the caller must not read
  // from it. -1: the process had no free descriptor.
  virtual int descriptor() const = 0;
};

}  // namespace weft
