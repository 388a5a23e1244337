package weft

/*
#include <weft.h>
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// Mode is what a step does.
type Mode uint32

const (
	Train    Mode = C.WEFT_TRAIN     // forward, backward, update
	NoUpdate Mode = C.WEFT_NO_UPDATE // forward, backward; the weights do not change, and gradients can be read
	Eval     Mode = C.WEFT_EVAL      // forward to the loss
	Forward  Mode = C.WEFT_FORWARD   // forward to the outputs; inputs that they do not need may be nil
	Fill     Mode = C.WEFT_FILL      // forward to the state of nodes, as the caches of a decoder, and no further; there are no outputs
)

// RunConfig configures a run.
type RunConfig struct {
	// Threads is the number of compute threads per rank. Without a mesh, 0 means that the goroutines which wait for the run compute, and see the end
	// of their contexts only between jobs; services use 1 or more. With a mesh, 0 counts as 1.
	Threads int
	// Log gets the log lines of the run, from one goroutine at a time. It must return soon and must not use the run.
	Log      func(level LogLevel, text string)
	LogLevel LogLevel // the most detailed level of lines that Log gets; default: LogInfo
	// WeightsDir is for Serve and ServeNoWait: a directory. This rank reads its part of safetensors files below it itself when rank 0 loads
	// them from the same path. Default: rank 0 sends all weights.
	WeightsDir string
}

// Run is a plan being executed.
type Run struct {
	*runMemory
	mu         sync.Mutex // guards runMemory, and what it points to
	unfinished int        // steps and saves without their final event
	left       bool       // one of these is of a call that has left it
	over       bool       // it has failed, or the service has ended
	awaited    EventKind  // the end of the start or of the service that is in progress; 0: there is none
	samples    int        // of the last step
	sequences  int        // of the generator, whose last token has not been taken
	choosing   *threadOfChoose
	computes   bool
	ops        []*op
	shapes     shapes
	kinds      StepKinds // of the plan
	mesh       *Mesh

	waiting chan struct{} // has an element while a goroutine takes events
	kept    []Event       // taken while a call waited for its own, and not of that call; guarded by waiting
	ready   *ready
}

// runMemory is what the library allocates for a run, apart from the run: a mesh and its run refer to each other, and Go frees no such objects if
// one of them has a finalizer.
type runMemory struct {
	c         *C.weft_run
	generator *C.weft_generator
	choosers  map[uint64]unsafe.Pointer // of sequences of the generator that have Choose
	log       *logger
	mesh      *meshMemory // not freed before the run
}

func (m *runMemory) free() {
	m.freeGenerator()
	C.weft_run_free(m.c)
	m.log.free()
	*m = runMemory{}
	runtime.SetFinalizer(m, nil)
}

// Start allocates the planned memory and initializes the parameters. If mesh is nil, this process hosts all ranks. Otherwise the call waits
// until every other rank has joined; if ctx ends before, the run ends and Start returns the error of ctx. A mesh serves one run.
func Start(ctx context.Context, plan *Plan, mesh *Mesh, config RunConfig) (*Run, error) {
	if mesh == nil {
		return start(plan, nil, config, 0, 0)
	}
	run, err := StartNoWait(plan, mesh, config)
	if err != nil {
		return nil, err
	}
	if err := run.waitFor(ctx, StartedEvent); err != nil {
		run.Close()
		return nil, err
	}
	return run, nil
}

// StartNoWait is Start that returns at once. The events of the run are JoinedEvent, LeftEvent and RefusedEvent, and then either StartedEvent or
// FailedEvent. Other calls on the run return ESTATE until it has started.
func StartNoWait(plan *Plan, mesh *Mesh, config RunConfig) (*Run, error) {
	return start(plan, mesh, config, C.WEFT_RUN_NOWAIT, StartedEvent)
}

func start(plan *Plan, mesh *Mesh, config RunConfig, flags C.uint32_t, awaited EventKind) (*Run, error) {
	run := newRun(mesh, awaited)
	run.computes = mesh == nil && config.Threads == 0
	return run.open(plan, config, func(own *memory, plan *C.weft_plan, c *C.weft_run_config, err *C.weft_error) C.weft_status {
		c.flags = flags
		return C.weft_run_start(plan, mesh.borrow(own), c, &run.c, err)
	})
}

func newRun(mesh *Mesh, awaited EventKind) *Run {
	run := &Run{runMemory: &runMemory{}, mesh: mesh, awaited: awaited, choosing: &threadOfChoose{}, waiting: make(chan struct{}, 1)}
	if mesh != nil {
		run.runMemory.mesh = mesh.meshMemory
	}
	return run
}

// open makes the call that sets r.c. start borrows the mesh.
func (r *Run) open(plan *Plan, config RunConfig, start func(*memory, *C.weft_plan, *C.weft_run_config, *C.weft_error) C.weft_status) (*Run, error) {
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		var c C.weft_run_config
		C.weft_run_config_init(&c, C.sizeof_weft_run_config)
		own.setCount(&c.threads, "threads", config.Threads)
		c.weights_dir = own.str(config.WeightsDir)
		borrowed := plan.borrow(own)
		if plan != nil {
			r.ops, r.shapes = plan.ops, plan.shapes
			settings := C.weft_plan_config{size: C.sizeof_weft_plan_config}
			C.weft_plan_settings(borrowed, &settings)
			r.kinds = StepKinds(settings.step_kinds)
		}
		r.log = setLog(&c, config)
		status := start(own, borrowed, &c, err)
		if status >= 0 {
			r.ready = newReady(int(C.weft_run_fd(r.c)))
			r.mesh.begins(r)
		}
		return status
	})
	if err = r.mesh.explain(caused(r.ops, err)); err != nil {
		r.log.free()
		return nil, err
	}
	runtime.SetFinalizer(r.runMemory, (*runMemory).free)
	return r, nil
}

// waitFor takes events until one of this kind.
func (r *Run) waitFor(ctx context.Context, kind EventKind) error {
	if err := r.acquire(ctx); err != nil {
		return canceled(err)
	}
	defer r.release()
	for {
		event, err := r.take(ctx, false)
		if err != nil {
			return canceled(err)
		}
		if event.Kind == kind || event.Err != nil {
			return event.Err
		}
	}
}

// canceled makes the error of a context the cause of ECANCELED.
func canceled(err error) error {
	if _, ok := err.(*Error); ok {
		return err
	}
	return &Error{Status: ECANCELED, Text: "the wait was canceled", Cause: err}
}

// Close ends the run on every rank and discards steps that are not finished. It may wait until a running job ends.
func (r *Run) Close() error {
	if r == nil {
		return nil
	}
	if err := r.choosing.refuse(); err != nil {
		return err
	}
	r.mesh.endUnstarted()
	r.ready.close()
	_ = r.acquire(context.Background()) // the goroutine that waits has seen that the run is closed
	defer r.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runMemory.free()
	r.ops, r.kept, r.sequences = nil, nil, 0
	r.mesh.ended(r)
	return nil
}

// between makes a call that is possible between steps only. It waits for a step that Step has left.
func (r *Run) between(function func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status) error {
	if err := r.choosing.refuse(); err != nil {
		return err
	}
	select {
	case r.waiting <- struct{}{}:
		err := r.settle(context.Background())
		r.release()
		if err != nil {
			return err
		}
	default: // another goroutine takes the events; if there is a step, the library refuses the call
	}
	return r.call(function)
}

// call makes a call of the library with the run.
func (r *Run) call(function func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status) error {
	if err := r.choosing.refuse(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return errClosed
	}
	err := r.mesh.explain(caused(r.ops, call(func(own *memory, err *C.weft_error) C.weft_status { return function(own, r.c, err) })))
	if e, ok := err.(*Error); ok {
		failure := C.weft_failure{size: C.sizeof_weft_failure}
		if C.weft_run_failure(r.c, &failure) == 1 {
			e.Failure = fromFailure(&failure)
		}
	}
	return err
}

// Submit submits one step: all samples of all inputs, in the order in which the inputs were added to the model. The run keeps the tensors
// until the step ends, and delivers events with this tag: one per micro-batch, then exactly one final event. The error is EAGAIN if
// 16 steps and saves are not finished.
func (r *Run) Submit(mode Mode, tag uint64, inputs ...*Tensor) error {
	if tag == ownTag {
		return errTag
	}
	return r.submit(mode, tag, inputs)
}

// SetRate sets the learning rate of all steps submitted after this call, in place of that of the plan.
func (r *Run) SetRate(rate float64) error {
	return r.call(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_set_rate(run, C.double(rate), err)
	})
}

// ownTag marks the steps and saves for which a call waits.
const ownTag = ^uint64(0)

var errTag = &Error{Status: EINVAL, Text: "tag is the largest number, which marks the steps of Step"}

func (r *Run) submit(mode Mode, tag uint64, inputs []*Tensor) error {
	return r.call(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		tensors := make([]*C.weft_tensor, len(inputs)+1)
		samples := 0
		for i, t := range inputs {
			tensors[i] = t.borrow(own)
			if t != nil && len(t.desc.Dims) > 0 {
				samples = t.desc.Dims[0]
			}
		}
		status := C.weft_run_submit(run, &tensors[0], count(len(inputs)), C.weft_step_mode(mode), C.uint64_t(tag), err)
		if status >= 0 {
			r.unfinished++
			r.samples = samples
		}
		return status
	})
}

// Step makes one step and returns its loss. If ctx ends, Step returns its error, but the step continues and still reads the inputs. Do not
// change them before Poll, which waits for the step, has returned an event whose Kind is 0. The next step waits for it as well.
// Calls that are possible only between steps, as Digest, Read, Write and Load, wait for the rest of the step without a context. Step is not
// possible while steps of Submit are not finished.
func (r *Run) Step(ctx context.Context, mode Mode, inputs ...*Tensor) (float64, error) {
	done, err := r.step(ctx, mode, inputs, func(*Event) {})
	return done.Loss, err
}

// StepEvent is Step, which describes the end of ctx, and returns the whole final event.
func (r *Run) StepEvent(ctx context.Context, mode Mode, inputs ...*Tensor) (Event, error) {
	return r.step(ctx, mode, inputs, func(*Event) {})
}

// Forward makes a forward step and returns the outputs of all samples, in the order of Model.Output. Inputs that the outputs do not need may
// be nil. The tensors are memory of Go, and cannot be submitted. If ctx ends, the step continues, see Step.
func (r *Run) Forward(ctx context.Context, inputs ...*Tensor) ([]*Tensor, error) {
	_, outputs, err := r.StepOutputs(ctx, Forward, inputs...)
	return outputs, err
}

// StepOutputs makes one step and returns its loss, and its outputs as Forward does. Training and evaluation steps have outputs if
// PlanConfig.Steps includes TrainOutputs and EvalOutputs. If ctx ends, the step continues, see Step.
func (r *Run) StepOutputs(ctx context.Context, mode Mode, inputs ...*Tensor) (float64, []*Tensor, error) {
	kinds := map[Mode]StepKinds{Train: TrainOutputs, NoUpdate: TrainOutputs, Eval: EvalOutputs}
	if mode != Forward && r.kinds&kinds[mode] == 0 {
		return 0, nil, &Error{Status: EINVAL, Text: "the plan delivers no outputs of such a step; see PlanConfig.Steps"}
	}
	var parts [][]*Tensor // of each micro-batch
	done, err := r.step(ctx, mode, inputs, func(event *Event) {
		for len(parts) <= event.MicroBatch {
			parts = append(parts, nil)
		}
		for _, output := range event.Outputs {
			parts[event.MicroBatch] = append(parts[event.MicroBatch], output.clone())
		}
	})
	if err != nil || len(parts) == 0 {
		return done.Loss, nil, err
	}
	outputs := make([]*Tensor, len(parts[0]))
	for i := range outputs {
		outputs[i] = join(parts, i)
	}
	return done.Loss, outputs, nil
}

// join joins output i of all micro-batches along dimension 0.
func join(parts [][]*Tensor, i int) *Tensor {
	desc := Desc{parts[0][i].desc.DType, append([]int(nil), parts[0][i].desc.Dims...)}
	desc.Dims[0] = 0
	var floats []float32
	var ints []int32
	for _, part := range parts {
		desc.Dims[0] += part[i].desc.Dims[0]
		floats = append(floats, part[i].Float32()...)
		ints = append(ints, part[i].Int32()...)
	}
	if desc.DType == I32 {
		return inGo(desc, ints)
	}
	return inGo(desc, floats)
}

func (r *Run) step(ctx context.Context, mode Mode, inputs []*Tensor, part func(*Event)) (Event, error) {
	if err := r.acquire(ctx); err != nil {
		return Event{}, err
	}
	defer r.release()
	if err := r.settle(ctx); err != nil {
		return Event{}, err
	}
	if err := r.submit(mode, ownTag, inputs); err != nil {
		return Event{}, err
	}
	for {
		event, err := r.takeOwn(ctx)
		if err != nil {
			r.leave()
			return Event{}, err
		}
		switch event.Kind {
		case DoneEvent, ErrorEvent:
			return event, event.Err
		default:
			part(&event)
		}
	}
}

// leave leaves the step or save of a call unfinished. Its events are dropped.
func (r *Run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
}

// settle waits for the step or save that was left, if there is one.
func (r *Run) settle(ctx context.Context) error {
	for {
		r.mu.Lock()
		left, unfinished := r.left, r.unfinished
		r.mu.Unlock()
		if !left && unfinished > 0 {
			return &Error{Status: ESTATE, Text: "steps or saves are not finished; take their events before another step"}
		}
		if !left {
			return nil
		}
		if _, err := r.takeOwn(ctx); err != nil {
			return err
		}
	}
}
