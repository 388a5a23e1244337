package weft

/*
#include <weft.h>
*/
import "C"

import (
	"time"
	"unsafe"
)

// Cause is why a run has failed.
type Cause uint32

const (
	CauseFailed      Cause = C.WEFT_CAUSE_FAILED      // something failed in the process of the rank; Detail describes it
	CauseClosed      Cause = C.WEFT_CAUSE_CLOSED      // the connection to the rank was closed; Detail: what the transport reports
	CauseSilent      Cause = C.WEFT_CAUSE_SILENT      // nothing arrived from the rank for Limit
	CauseMissing     Cause = C.WEFT_CAUSE_MISSING     // Count data frames that the rank announced did not arrive within Limit
	CauseUnreachable Cause = C.WEFT_CAUSE_UNREACHABLE // the rank did not connect, within Limit unless that is 0
	CauseLate        Cause = C.WEFT_CAUSE_LATE        // the rank did not do within Limit what Detail names
	CauseRefused     Cause = C.WEFT_CAUSE_REFUSED     // the process differs from the rest of the run; Detail describes the difference
	CauseProtocol    Cause = C.WEFT_CAUSE_PROTOCOL    // the rank violated the protocol; Detail describes how
	CauseNoRun       Cause = C.WEFT_CAUSE_NO_RUN      // the run did not begin; Detail gives the reason
)

// Activity is what a rank did when it failed.
type Activity uint32

const (
	ActivityUnknown Activity = C.WEFT_ACTIVITY_UNKNOWN
	ActivityIdle    Activity = C.WEFT_ACTIVITY_IDLE
	ActivityRuns    Activity = C.WEFT_ACTIVITY_RUNS
	ActivityWaits   Activity = C.WEFT_ACTIVITY_WAITS
)

// Awaited is what a rank that waits is waiting for.
type Awaited uint32

const (
	AwaitsNothing    Awaited = C.WEFT_AWAITS_NOTHING
	AwaitsCommit     Awaited = C.WEFT_AWAITS_COMMIT  // the message of rank 0 that the weights may change
	AwaitsRelease    Awaited = C.WEFT_AWAITS_RELEASE // the messages of the rank itself have to leave
	AwaitsInput      Awaited = C.WEFT_AWAITS_INPUT
	AwaitsActivation Awaited = C.WEFT_AWAITS_ACTIVATION
	AwaitsGradient   Awaited = C.WEFT_AWAITS_GRADIENT
	AwaitsMessage    Awaited = C.WEFT_AWAITS_MESSAGE // any other message
)

// Failure is the facts behind the failure of a run. Every rank reports the same.
type Failure struct {
	Cause       Cause
	Status      Status
	Rank        int   // the rank that failed, not the one that noticed it; -1: none
	Other       int   // not -1: both ranks are alive, and the connection between them was lost
	Joining     bool  // the process of the rank had not joined the run yet
	PID         int   // of that process; 0: this process, or unknown
	Stages      []int // that the rank hosts, ascending
	Host        string
	Detail      string
	Activity    Activity
	Job         rune // 'F', 'I', 'W', 'B', 'R', 'O', 'c', 'g', 'u' or 'e', see weft_run_poll(3); 0: none
	Stage       int  // of the action, like MicroBatch; -1: none
	MicroBatch  int
	Mode        Mode
	Awaited     Awaited
	AwaitedRank int    // the sender of the awaited message; -1: none
	Step        uint64 // training steps before that step; ActivityIdle: finished steps of any kind
	Limit       time.Duration
	Count       int64
	Heard       time.Duration // since the last frame of the rank; -1: unknown
	Reported    time.Duration // since the last report of the rank; -1: unknown
}

func fromFailure(c *C.weft_failure) *Failure {
	f := &Failure{
		Cause: Cause(c.cause), Status: Status(c.status), Rank: int(c.rank), Other: int(c.other), Joining: c.joining != 0, PID: int(c.pid),
		Host: C.GoString(c.host), Detail: C.GoString(c.detail), Activity: Activity(c.activity), Job: rune(c.job), Stage: int(c.stage),
		MicroBatch: int(c.micro_batch), Mode: Mode(c.mode), Awaited: Awaited(c.awaited), AwaitedRank: int(c.awaited_rank),
		Step: uint64(c.step), Limit: time.Duration(c.limit_ns), Count: int64(c.count), Heard: time.Duration(c.heard_ns),
		Reported: time.Duration(c.reported_ns),
	}
	for _, stage := range unsafe.Slice(c.stages, c.n_stages) {
		f.Stages = append(f.Stages, int(stage))
	}
	return f
}

// String returns the failure in words. Fields may be changed before.
func (f *Failure) String() (out string) {
	err := call(func(own *memory, _ *C.weft_error) C.weft_status {
		c := C.weft_failure{
			size: C.sizeof_weft_failure, cause: C.weft_cause(f.Cause), status: C.weft_status(f.Status), rank: own.signed("rank", f.Rank),
			other: own.signed("other", f.Other), joining: flag(f.Joining), pid: own.unsigned("pid", f.PID), activity: C.weft_activity(f.Activity),
			job: C.uint32_t(f.Job), stage: own.signed("stage", f.Stage), micro_batch: own.signed("micro_batch", f.MicroBatch),
			mode: C.weft_step_mode(f.Mode), awaited: C.weft_awaited(f.Awaited), awaited_rank: own.signed("awaited_rank", f.AwaitedRank),
			step: C.uint64_t(f.Step), limit_ns: C.int64_t(f.Limit), count: C.int64_t(f.Count), heard_ns: C.int64_t(f.Heard),
			reported_ns: C.int64_t(f.Reported),
		}
		c.host, c.detail, c.n_stages = own.text(f.Host), own.text(f.Detail), count(len(f.Stages))
		c.stages = array(own, f.Stages, func(n int) C.uint32_t { return own.unsigned("stages", n) })
		out = text(func(buffer *C.char, size C.size_t) C.size_t { return C.weft_failure_text(&c, buffer, size) })
		return 0
	})
	if err != nil {
		return err.Error()
	}
	return out
}
