package weft

/*
#include <weft.h>
*/
import "C"

import (
	"context"
	"unsafe"
)

// EventKind is the kind of an event. Ignore kinds that you do not know.
type EventKind uint32

const (
	MicroBatchEvent EventKind = C.WEFT_EVENT_MICRO_BATCH // the loss of one micro-batch, its outputs, or both
	DoneEvent       EventKind = C.WEFT_EVENT_DONE        // final: the step is finished
	ErrorEvent      EventKind = C.WEFT_EVENT_ERROR       // final: the run has failed; Err gives the reason
	UpdateEvent     EventKind = C.WEFT_EVENT_UPDATE      // asynchronous schedules: the result of one update, before the final event
	SavedEvent      EventKind = C.WEFT_EVENT_SAVED       // final event of a queued save: Path or Err
	JoinedEvent     EventKind = C.WEFT_EVENT_JOINED      // a process has joined as Rank, and Missing ranks have not joined; of a service: this process
	LeftEvent       EventKind = C.WEFT_EVENT_LEFT        // the process that joined as Rank left before all ranks had joined
	RefusedEvent    EventKind = C.WEFT_EVENT_REFUSED     // this process has refused Count connections so far; Text describes the last one
	StartedEvent    EventKind = C.WEFT_EVENT_STARTED     // the run has started
	FailedEvent     EventKind = C.WEFT_EVENT_FAILED      // the run has failed, and not in a step or save; Err gives the reason
	EndedEvent      EventKind = C.WEFT_EVENT_ENDED       // of a service: rank 0 has ended the run
)

// Event is an event of a run.
type Event struct {
	Kind       EventKind
	Tag        uint64 // of the step or save
	Err        error  // ErrorEvent, FailedEvent, SavedEvent: an *Error
	MicroBatch int
	Step       uint64    // updates of the weights before this step or update; SavedEvent: those in the checkpoint
	Loss       float64   // the mean over the micro-batch, the update or the whole step
	GradNorm   float64   // DoneEvent, UpdateEvent: global norm before clipping; check that it is finite
	Outputs    []*Tensor // MicroBatchEvent of a step that delivers outputs: copies in the order of Model.Output, which cannot be submitted
	Rank       int       // ErrorEvent, FailedEvent, SavedEvent: the rank that failed, or -1; JoinedEvent, LeftEvent, StartedEvent
	Idle       float64   // DoneEvent: mean over ranks of the share of time in which a rank ran no kernel
	IdleByRank []float64 // DoneEvent
	Path       string    // SavedEvent: the checkpoint
	Text       string    // RefusedEvent
	Ranks      int       // JoinedEvent, LeftEvent, StartedEvent: ranks of the run
	Missing    int       // JoinedEvent, LeftEvent: ranks that have not joined
	Host       string    // JoinedEvent: machine of the process
	PID        int       // JoinedEvent: of the process
	Count      uint64    // RefusedEvent: connections refused by this process since the mesh was made

	own bool // of a step or save of Step, Forward or Save
}

// fromEvent converts an event and notes what it ends. r.mu is held.
func (r *Run) fromEvent(c *C.weft_event) Event {
	event := Event{
		Kind: EventKind(c.kind), Tag: uint64(c.tag), MicroBatch: int(c.micro_batch), Step: uint64(c.step), Loss: float64(c.loss),
		GradNorm: float64(c.grad_norm), Rank: int(c.rank), Idle: float64(c.idle), Path: C.GoString(c.path),
		Ranks: int(c.ranks), Missing: int(c.missing), Host: C.GoString(c.host), PID: int(c.pid), Count: uint64(c.count),
	}
	if event.Kind == RefusedEvent {
		event.Text = C.GoString(c.text)
	}
	for _, output := range unsafe.Slice(c.outputs, c.n_outputs) {
		desc := C.weft_tensor_desc(output)
		event.Outputs = append(event.Outputs, &Tensor{desc: fromDesc(&desc), elements: C.weft_tensor_data(output)})
	}
	for _, idle := range unsafe.Slice(c.idle_by_rank, c.n_ranks) {
		event.IdleByRank = append(event.IdleByRank, float64(idle))
	}
	if c.status < 0 {
		err := &Error{Status: Status(c.status), Text: C.GoString(c.text)}
		if c.failure != nil {
			err.Failure = fromFailure(c.failure)
		}
		event.Err = r.mesh.explain(caused(r.ops, err))
	}
	if event.Kind == StartedEvent {
		r.mesh.starts()
	}
	event.own = event.Tag == ownTag
	switch event.Kind {
	case DoneEvent, ErrorEvent, SavedEvent:
		r.unfinished--
		if event.own {
			r.left = false
		}
	case r.awaited, FailedEvent:
		r.awaited = 0
	}
	switch event.Kind {
	case ErrorEvent, FailedEvent, EndedEvent:
		r.over = true
	}
	return event
}

// copyOutputs copies what the next call that waits for the run changes, and what its end frees.
func (e *Event) copyOutputs() {
	for i, output := range e.Outputs {
		e.Outputs[i] = output.clone()
	}
}

// Poll waits for the next event of the run, of a step of Submit, or of a save of SubmitSave. If there is none, and no start, step or save is in
// progress, it returns at once an event whose Kind is 0. A service is in progress until EndedEvent or FailedEvent. The outputs of an event are
// copies in memory of Go. If ctx ends, Poll returns its error. A step or save whose call has left it because its context ended is in progress
// until its end, and has no event, except a FailedEvent if the run has failed.
func (r *Run) Poll(ctx context.Context) (Event, error) {
	if err := r.acquire(ctx); err != nil {
		return Event{}, err
	}
	defer r.release()
	return r.take(ctx, true)
}

// Events returns a channel of the events of the run. It is closed after the last event, and when ctx ends or the run is closed. The last event is
// EndedEvent, FailedEvent, or the last ErrorEvent or SavedEvent of a run that has failed; if the events cannot be taken, it is a FailedEvent with
// the reason. The outputs of an event are copies. While the channel is open, Step, Forward, Save and Poll wait, because they take events as well,
// and another channel of Events gets the events after it; Submit does not wait.
func (r *Run) Events(ctx context.Context) <-chan Event {
	events := make(chan Event)
	acquired := r.tryAcquire(ctx)
	go func() {
		defer close(events)
		if !acquired && r.acquire(ctx) != nil {
			return
		}
		defer r.release()
		for r.hasEvents() && r.send(ctx, events) {
		}
	}()
	return events
}

// hasEvents reports whether the run has not failed or ended, or has events all the same.
func (r *Run) hasEvents() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.over || r.unfinished > 0 || len(r.kept) > 0
}

// send sends the next event, and reports whether others may follow.
func (r *Run) send(ctx context.Context, events chan<- Event) bool {
	event, err := r.take(ctx, false)
	if err != nil {
		if ctx.Err() != nil || r.ready.isClosed() {
			return false
		}
		event = Event{Kind: FailedEvent, Err: err, Rank: -1}
	}
	select {
	case events <- event:
		return err == nil
	case <-ctx.Done():
		if err == nil {
			r.kept = append([]Event{event}, r.kept...)
		}
	case <-r.ready.closed:
	}
	return false
}
