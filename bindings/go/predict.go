package weft

/*
#include <weft.h>
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
)

// ScheduleInfo describes a schedule.
type ScheduleInfo struct {
	Name         string
	About        string // one line, with the sizes that the schedule supports
	Chunks       int    // stages per rank; 0: any number, 2 unless the configuration gives another
	Asynchronous bool   // weights change while other micro-batches are in progress
	ForwardOnly  bool   // cannot train
}

// Schedules describes all schedules.
func Schedules() []ScheduleInfo {
	var out []ScheduleInfo
	c := C.weft_schedule_info{size: C.sizeof_weft_schedule_info}
	for C.weft_schedule_describe(count(len(out)), &c) == 0 {
		out = append(out, ScheduleInfo{C.GoString(c.name), C.GoString(c.about), int(c.chunks), c.asynchronous != 0, c.forward_only != 0})
	}
	return out
}

// Candidate is a plan that Compare has simulated.
type Candidate struct {
	Schedule            string
	Chunks              int    // stages per rank
	WarmUp              int    // 1f1b: forward actions ahead per later rank; else 0
	Group               int    // 1f1b-delayed-w: micro-batches whose weight gradients follow one another; else 0
	Refused             string // why there is no such plan; the fields below are then 0
	Best                bool   // the smallest of the candidates within 0.1 % of the shortest step, under the limit of bytes
	Over                bool   // a rank exceeds the limit of bytes
	Step                time.Duration
	Idle, IdleOwn       float64
	PeakBytes, Bytes    int64
	Data, Stage, Tensor int           // sizes of the axes if axis "auto" was given; else 0, like Work and Waiting
	Work                time.Duration // part of Step: the busiest rank in kernels
	Waiting             time.Duration // part of Step: waiting for other ranks. Messages take the remaining time.
	Shard               string        // PlanConfig.Shard of the candidate; "" without the axis "auto"
}

// Compare plans and simulates a step for each of several candidates; weft_plan_compare(3) describes which.
func Compare(model *Model, config PlanConfig) ([]Candidate, error) {
	var comparison *C.weft_comparison
	err := model.call(func(own *memory, m *C.weft_model, err *C.weft_error) C.weft_status {
		var c C.weft_plan_config
		config.fill(&c, own)
		return C.weft_plan_compare(m, &c, &comparison, err)
	})
	if err != nil {
		return nil, err
	}
	defer C.weft_comparison_free(comparison)
	var out []Candidate
	c := C.weft_candidate{size: C.sizeof_weft_candidate}
	for C.weft_comparison_row(comparison, count(len(out)), &c) == 0 {
		out = append(out, Candidate{
			Schedule: C.GoString(c.schedule), Chunks: int(c.chunks), WarmUp: int(c.warm_up), Group: int(c.group), Refused: C.GoString(c.refused), Best: c.best != 0,
			Over: c.over != 0, Step: time.Duration(c.step_ns), Idle: float64(c.idle), IdleOwn: float64(c.idle_own),
			PeakBytes: int64(c.peak_bytes), Bytes: int64(c.bytes), Data: int(c.data), Stage: int(c.stage), Tensor: int(c.tensor),
			Work: time.Duration(c.work_ns), Waiting: time.Duration(c.waiting_ns), Shard: C.GoString(c.shard),
		})
	}
	return out, nil
}

// Prediction is one simulated step of a plan.
type Prediction struct {
	Step            time.Duration // until the controller has received all reports
	Commit          time.Duration // until the weights may change
	Idle, IdleOwn   float64       // means over ranks
	PeakBytes       int64         // of the largest rank
	Messages, Bytes int64         // tensors over all links
	Ranks           []RankPrediction
	Links           []LinkPrediction

	mu sync.Mutex
	c  *C.weft_prediction
}

// RankPrediction is the part of a rank.
type RankPrediction struct {
	First, Last time.Duration // beginning of the first action and end of the last, from the beginning of the step
	Busy        time.Duration // in kernels of actions
	Idle        float64       // share of the time from the beginning of the step to the commit in which the rank runs no kernel
	IdleOwn     float64       // the same, from First to Last
	PeakBytes   int64
}

// LinkPrediction is the part of a link.
type LinkPrediction struct {
	From, To        int   // ranks
	Messages, Bytes int64 // per step
}

// Simulate simulates a step in the engine of a run. timeline records when every job runs, for Prediction.SaveTrace.
func (p *Plan) Simulate(timeline bool) (*Prediction, error) {
	out := &Prediction{}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_plan_simulate(p.borrow(own), flag(timeline)*C.WEFT_PREDICT_TIMELINE, &out.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(out, (*Prediction).Close)
	c := C.weft_prediction_info{size: C.sizeof_weft_prediction_info}
	C.weft_prediction_describe(out.c, &c)
	out.Step, out.Commit = time.Duration(c.step_ns), time.Duration(c.commit_ns)
	out.Idle, out.IdleOwn, out.PeakBytes = float64(c.idle), float64(c.idle_own), int64(c.peak_bytes)
	out.Messages, out.Bytes = int64(c.messages), int64(c.bytes)
	rank := C.weft_rank_prediction{size: C.sizeof_weft_rank_prediction}
	for C.weft_prediction_rank(out.c, count(len(out.Ranks)), &rank) == 0 {
		out.Ranks = append(out.Ranks, RankPrediction{time.Duration(rank.first_ns), time.Duration(rank.last_ns),
			time.Duration(rank.busy_ns), float64(rank.idle), float64(rank.idle_own), int64(rank.peak_bytes)})
	}
	link := C.weft_link_prediction{size: C.sizeof_weft_link_prediction}
	for C.weft_prediction_link(out.c, count(len(out.Links)), &link) == 0 {
		out.Links = append(out.Links, LinkPrediction{int(link.from), int(link.to), int64(link.messages), int64(link.bytes)})
	}
	return out, nil
}

// SaveTrace writes the timeline in the format of Run.SaveTrace, so that both can be compared.
func (p *Prediction) SaveTrace(path string) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_prediction_save_trace(borrow(own, &p.mu, &p.c, "prediction"), own.text(path), err)
	})
}

// Close frees the timeline. The fields remain valid.
func (p *Prediction) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	C.weft_prediction_free(p.c)
	p.c = nil
	runtime.SetFinalizer(p, nil)
	return nil
}
