package weft

/*
#include <weft.h>
*/
import "C"

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
)

// computeTime is how long a run without threads computes before it looks at the context.
const computeTime = 10 * time.Millisecond

// ready is the descriptor of a run in the poller of Go, which waits for it without a thread.
type ready struct {
	file   *os.File // nil: the process had no descriptor left
	raw    syscall.RawConn
	closed chan struct{}
	once   sync.Once
}

func newReady(descriptor int) *ready {
	r := &ready{closed: make(chan struct{})}
	if descriptor < 0 {
		return r
	}
	syscall.ForkLock.RLock()
	own, err := syscall.Dup(descriptor)
	if err == nil {
		syscall.CloseOnExec(own)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return r
	}
	file := os.NewFile(uintptr(own), "weft_run_fd")
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails if the poller has refused the descriptor
	}
	if err != nil {
		file.Close()
		return r
	}
	r.file, r.raw = file, raw
	return r
}

// close ends all waits, present and future.
func (r *ready) close() {
	r.once.Do(func() {
		close(r.closed)
		if r.file != nil {
			r.file.Close()
		}
	})
}

func (r *ready) isClosed() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// wait calls poll whenever the descriptor has become readable, until poll returns true, ctx ends or the run is closed.
func (r *ready) wait(ctx context.Context, poll func() bool) {
	if r.file == nil {
		for !poll() && ctx.Err() == nil && !r.isClosed() {
			sleep(ctx, r.closed)
		}
		return
	}
	defer r.interruptOn(ctx)()
	// An error is the deadline that interruptOn sets, or the end of the file by close; the caller looks at both.
	_ = r.raw.Read(func(uintptr) bool { return poll() || ctx.Err() != nil })
}

// sleep is the wait for a run without a descriptor.
func sleep(ctx context.Context, closed chan struct{}) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closed:
	case <-ctx.Done():
	}
}

// interruptOn ends a wait for the descriptor when ctx ends. The result undoes it.
func (r *ready) interruptOn(ctx context.Context) (undo func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			_ = r.file.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	return func() {
		close(stop)
		<-stopped
		_ = r.file.SetReadDeadline(time.Time{})
	}
}

// acquire waits until no other goroutine takes events.
func (r *Run) acquire(ctx context.Context) error {
	if err := r.choosing.refuse(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case r.waiting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryAcquire is acquire that does not wait.
func (r *Run) tryAcquire(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case r.waiting <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *Run) release() { <-r.waiting }

// await calls poll until it is done or fails, ctx ends or the run is closed. poll computes for a moment in a run without threads, and else
// does not wait; it takes all that there is. The caller has acquired the run.
func (r *Run) await(ctx context.Context, poll func() (done bool, err error)) (err error) {
	done := false
	over := func() bool {
		for {
			done, err = poll()
			if done || err != nil || !r.computing() || ctx.Err() != nil || r.ready.isClosed() {
				return done || err != nil
			}
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.ready.isClosed() {
			return errClosed
		}
		if over() {
			return err
		}
		if r.ready.wait(ctx, over); done || err != nil {
			return err
		}
	}
}

// next waits for the next event of any kind. If polls is set and nothing is in progress, it returns an event of kind 0.
func (r *Run) next(ctx context.Context, polls bool) (event Event, err error) {
	err = r.await(ctx, func() (bool, error) {
		found, idle, err := r.poll(&event)
		return found || polls && idle, err
	})
	return event, err
}

// take is next without the events of a step or save that a call has left. The failure of the run in such a step is one of no step. The outputs of
// the event are copies.
func (r *Run) take(ctx context.Context, polls bool) (Event, error) {
	for {
		if len(r.kept) > 0 {
			event := r.kept[0]
			r.kept = r.kept[1:]
			return event, nil
		}
		event, err := r.next(ctx, polls)
		if err != nil || !event.own {
			event.copyOutputs()
			return event, err
		}
		if event.Kind == ErrorEvent {
			event.Kind, event.Tag = FailedEvent, 0
			return event, nil
		}
	}
}

// takeOwn waits for the next event of the step or save of the call. It keeps other events for take.
func (r *Run) takeOwn(ctx context.Context) (Event, error) {
	for {
		event, err := r.next(ctx, false)
		if err != nil || event.own {
			return event, err
		}
		event.copyOutputs()
		r.kept = append(r.kept, event)
	}
}

// poll takes an event of the library, if there is one, and reports whether nothing is in progress.
func (r *Run) poll(event *Event) (found, idle bool, err error) {
	err = r.call(func(_ *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		timeout := C.int64_t(0)
		if r.computes && r.unfinished > 0 {
			timeout = C.int64_t(computeTime)
		}
		c := C.weft_event{size: C.sizeof_weft_event}
		status := C.weft_run_poll(run, &c, timeout, err)
		if found = status > 0; found {
			*event = r.fromEvent(&c)
		}
		idle = r.unfinished == 0 && r.awaited == 0
		return status
	})
	return found, idle, err
}

// computing reports whether the goroutine that waits for the run has to compute.
func (r *Run) computing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.computes && (r.unfinished > 0 || r.sequences > 0)
}

var errClosed = &Error{Status: ESTATE, Text: "the run is closed"}
