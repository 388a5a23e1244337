package weft

/*
#include <weft.h>
*/
import "C"

import (
	"runtime"
	"sync"
)

// Plan is the partition, the schedule and the memory layout of a step. It does not change.
type Plan struct {
	mu  sync.RWMutex // Close waits for other calls
	c   *C.weft_plan
	ops []*op
	shapes
}

// plan makes a plan of the model.
func (m *Model) plan(make func(own *memory, model *C.weft_model, plan **C.weft_plan, err *C.weft_error) C.weft_status) (*Plan, error) {
	p := &Plan{}
	err := m.call(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		status := make(own, model, &p.c, err)
		p.ops, p.shapes = m.ops, m.shapes()
		return status
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(p, (*Plan).Close)
	return p, nil
}

// NewPlan cuts the model into stages, makes a schedule, checks that it cannot deadlock, and lays out all memory. The model cannot be changed
// after the first successful NewPlan, LoadPlan, Compare or NewProfile.
func NewPlan(model *Model, config PlanConfig) (*Plan, error) {
	return model.plan(func(own *memory, m *C.weft_model, plan **C.weft_plan, err *C.weft_error) C.weft_status {
		var c C.weft_plan_config
		config.fill(&c, own)
		return C.weft_plan_new(m, &c, plan, err)
	})
}

// LoadPlan makes the same plan for the same model from a file of Plan.Save.
func LoadPlan(model *Model, path string) (*Plan, error) {
	return model.plan(func(own *memory, m *C.weft_model, plan **C.weft_plan, err *C.weft_error) C.weft_status {
		return C.weft_plan_load(m, own.text(path), plan, err)
	})
}

// borrow returns NULL for a nil plan.
func (p *Plan) borrow(own *memory) *C.weft_plan {
	if p == nil {
		return nil
	}
	return borrow(own, p.mu.RLocker(), &p.c, "plan")
}

// Close frees the plan. A run that was started with it remains valid.
func (p *Plan) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	C.weft_plan_free(p.c)
	p.c, p.ops = nil, nil
	runtime.SetFinalizer(p, nil)
	return nil
}

// use calls a function with the plan; NULL after Close, for which the library returns 0.
func use[T any](p *Plan, function func(plan *C.weft_plan) T) T {
	if p == nil {
		return function(nil)
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return function(p.c)
}

// Save writes the inputs of the plan (first nodes of stages, schedule, sizes, settings) as JSON, and replaces the file at path.
func (p *Plan) Save(path string) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_plan_save(p.borrow(own), own.text(path), err)
	})
}

// PlanInfo is the results of choices that the configuration left to NewPlan.
type PlanInfo struct {
	Ranks, Stages, MicroBatches int
	Schedule                    string // "written" for a written schedule
	WarmUp                      int    // 1f1b: forward actions ahead per later rank; else 0
	Group                       int    // 1f1b-delayed-w: micro-batches whose weight gradients follow one another; else 0
	Trained                     int64  // elements of the parameters that are not frozen
}

// Info describes the plan; zeros after Close.
func (p *Plan) Info() PlanInfo {
	return use(p, func(plan *C.weft_plan) PlanInfo {
		c := C.weft_plan_info{size: C.sizeof_weft_plan_info}
		if C.weft_plan_describe(plan, &c) < 0 {
			return PlanInfo{}
		}
		return PlanInfo{int(c.ranks), int(c.stages), int(c.micro_batches), C.GoString(c.schedule), int(c.warm_up), int(c.group), int64(c.trained)}
	})
}

// Settings returns a configuration that makes the same plan for the same model, if LinkLatency was 0: with the cuts, without Profile, Speeds,
// links and Cluster. After LoadPlan, and with a choice such as the schedule "auto", it is that of the plan. Zeros after Close.
func (p *Plan) Settings() PlanConfig {
	return use(p, func(plan *C.weft_plan) PlanConfig {
		c := C.weft_plan_config{size: C.sizeof_weft_plan_config}
		if C.weft_plan_settings(plan, &c) < 0 {
			return PlanConfig{}
		}
		return settingsOf(&c)
	})
}

// First returns the name of the first node of a stage; "" if stage is out of range.
func (p *Plan) First(stage int) string {
	return use(p, func(plan *C.weft_plan) string { return C.GoString(C.weft_plan_first(plan, count(stage))) })
}

// Rank returns the first rank that hosts a stage, in replica 0; 0 if stage is out of range.
func (p *Plan) Rank(stage int) int {
	return use(p, func(plan *C.weft_plan) int { return int(C.weft_plan_rank(plan, count(stage))) })
}

// Replicas returns the number of ranks that have the same part of a stage; 0 if stage is out of range.
func (p *Plan) Replicas(stage int) int {
	return use(p, func(plan *C.weft_plan) int { return int(C.weft_plan_replicas(plan, count(stage))) })
}

// Bytes returns the bytes of the tensors of a rank; 0 if rank is out of range.
func (p *Plan) Bytes(rank int) int64 {
	return use(p, func(plan *C.weft_plan) int64 { return int64(C.weft_plan_bytes(plan, count(rank))) })
}

// MemoryKind is what planned memory is for.
type MemoryKind uint32

const (
	WeightMemory     MemoryKind = C.WEFT_MEMORY_WEIGHTS     // all versions
	GradientMemory   MemoryKind = C.WEFT_MEMORY_GRADIENTS   // accumulators, and the sums for the norm
	OptimizerMemory  MemoryKind = C.WEFT_MEMORY_OPTIMIZER   // optimizer state
	ActivationMemory MemoryKind = C.WEFT_MEMORY_ACTIVATIONS // values of micro-batches that only this rank uses
	MessageMemory    MemoryKind = C.WEFT_MEMORY_MESSAGES    // slots of values that arrive from other ranks or leave for them
	ScratchMemory    MemoryKind = C.WEFT_MEMORY_SCRATCH     // of one kernel, or of one action
	StateMemory      MemoryKind = C.WEFT_MEMORY_STATE       // that nodes keep between steps: keys and values of cached_attention
)

// Memory returns the planned bytes of one kind on a rank; the sum over all kinds is Bytes.
func (p *Plan) Memory(rank int, kind MemoryKind) int64 {
	return use(p, func(plan *C.weft_plan) int64 {
		return int64(C.weft_plan_memory(plan, count(rank), C.weft_memory_kind(kind)))
	})
}

// Owned returns the number of elements of the parameters that a rank owns.
func (p *Plan) Owned(rank int) int64 {
	return use(p, func(plan *C.weft_plan) int64 { return int64(C.weft_plan_owned(plan, count(rank))) })
}

// Resident returns the same for the parameters that a rank holds: its own, and copies of tied ones.
func (p *Plan) Resident(rank int) int64 {
	return use(p, func(plan *C.weft_plan) int64 { return int64(C.weft_plan_resident(plan, count(rank))) })
}

// Rate returns the learning rate of a step; the first step is 0.
func (p *Plan) Rate(step uint64) float64 {
	return use(p, func(plan *C.weft_plan) float64 { return float64(C.weft_plan_rate(plan, C.uint64_t(step))) })
}

// Timetable returns the schedule of training steps as text: one row per rank of a pipeline, for example "0F0 0F1 0B0 0B1".
func (p *Plan) Timetable() string {
	return use(p, func(plan *C.weft_plan) string {
		return text(func(buffer *C.char, size C.size_t) C.size_t { return C.weft_plan_timetable(plan, buffer, size) })
	})
}

// Updates returns the maximum number of updates of a step of Train: those of a segment of an asynchronous schedule, otherwise 1.
func (p *Plan) Updates() int {
	return use(p, func(plan *C.weft_plan) int { return int(C.weft_plan_updates(plan)) })
}

// NOAM returns the number of minibatches in progress that suits an asynchronous schedule; 0 if it is synchronous.
func (p *Plan) NOAM() int {
	return use(p, func(plan *C.weft_plan) int { return int(C.weft_plan_noam(plan)) })
}

// Versions returns the versions of its weights that a rank keeps: 1 with a synchronous schedule.
func (p *Plan) Versions(rank int) int {
	return use(p, func(plan *C.weft_plan) int { return int(C.weft_plan_versions(plan, count(rank))) })
}
