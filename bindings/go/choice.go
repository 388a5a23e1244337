package weft

/*
#include <pthread.h>
#include <stdint.h>

static uintptr_t weft_go_thread(void) { return (uintptr_t)pthread_self(); }
*/
import "C"

import (
	"runtime/cgo"
	"sync/atomic"
	"unsafe"
)

// Choice is the next token of a sequence, before it is chosen. After Choose has returned, its slices are nil, and copies of them must not be used:
// they are memory of the library.
type Choice struct {
	Sequence uint64    // as Add returned it
	Index    uint64    // among the tokens that are added, from First
	Tokens   []int32   // of the sequence, without the next one; not to be changed
	Logits   []float32 // one for each token of the vocabulary, as the model computes them; -Inf excludes a token
}

// chooser is the function of a sequence, with its last error.
type chooser struct {
	choose func(*Choice) error
	thread *threadOfChoose // of the run, which would stay reachable through a handle
	err    error
}

func chooserOf(payload unsafe.Pointer) *chooser { return (*cgo.Handle)(payload).Value().(*chooser) }

// threadOfChoose is the thread that calls Choose. The run is locked then, and a call of the same goroutine would wait for itself. Go does not move a
// goroutine to another thread, and runs no other goroutine on its thread, while it is in a function that C has called.
type threadOfChoose struct{ id atomic.Uintptr }

func (t *threadOfChoose) enter() { t.id.Store(uintptr(C.weft_go_thread())) }

func (t *threadOfChoose) leave() { t.id.Store(0) }

// refuse returns an error in Choose.
func (t *threadOfChoose) refuse() error {
	if id := t.id.Load(); id == 0 || id != uintptr(C.weft_go_thread()) {
		return nil
	}
	return &Error{Status: ESTATE, Text: "Choose must not use its run and generator"}
}
