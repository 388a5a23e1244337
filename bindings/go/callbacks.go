package weft

/*
#include <weft.h>
*/
import "C"

import (
	"errors"
	"runtime/cgo"
	"runtime/debug"
	"unsafe"
)

//export weft_go_shape
func weft_go_shape(call *C.weft_op_call) C.int32_t {
	return opOf(call).run(call, func(o *op) error {
		output, stash, err := o.Shape(descs(call.inputs, call.n_inputs), descs(call.params, call.n_params))
		if err != nil {
			return err
		}
		if len(output.Dims) > MaxDims || len(stash.Dims) > MaxDims {
			return errors.New("a shape has too many dimensions")
		}
		call.output.desc = toDesc(output)
		if stash.DType != 0 {
			call.stash.desc = toDesc(stash)
		}
		return nil
	})
}

//export weft_go_forward
func weft_go_forward(call *C.weft_op_call) C.int32_t {
	return opOf(call).run(call, func(o *op) error { return o.lend(call, o.Forward) })
}

//export weft_go_backward
func weft_go_backward(call *C.weft_op_call) C.int32_t {
	return opOf(call).run(call, func(o *op) error { return o.lend(call, o.Backward) })
}

//export weft_go_backward_params
func weft_go_backward_params(call *C.weft_op_call) C.int32_t {
	return opOf(call).run(call, func(o *op) error { return o.lend(call, o.BackwardParams) })
}

//export weft_go_destroy
func weft_go_destroy(payload unsafe.Pointer) { destroy(payload) }

// A panic of the function for log lines has no place to go, and is dropped.
//
//export weft_go_log
func weft_go_log(level C.weft_log_level, text *C.char, payload unsafe.Pointer) {
	defer func() { _ = recover() }()
	(*cgo.Handle)(payload).Value().(func(LogLevel, string))(LogLevel(level), C.GoString(text))
}

//export weft_go_choose
func weft_go_choose(choice *C.weft_choice) C.int32_t {
	s := chooserOf(choice.payload)
	lent := Choice{
		Sequence: uint64(choice.sequence), Index: uint64(choice.index),
		Tokens: unsafe.Slice((*int32)(unsafe.Pointer(choice.tokens)), choice.n_tokens),
		Logits: unsafe.Slice((*float32)(unsafe.Pointer(choice.logits)), choice.n_logits),
	}
	s.thread.enter()
	s.err = contain("", func() error { return s.choose(&lent) })
	s.thread.leave()
	lent.Tokens, lent.Logits = nil, nil // memory of the library
	if s.err == nil {
		return 0
	}
	return report(choice.err, textOf(s.err))
}

func opOf(call *C.weft_op_call) *op { return (*cgo.Handle)(call.payload).Value().(*op) }

// run calls a function of the program. Its error or panic is kept, and its text goes to the library.
func (o *op) run(call *C.weft_op_call, function func(o *op) error) C.int32_t {
	err := contain(o.Name, func() error { return function(o) })
	if err == nil {
		return 0
	}
	found := textOf(err)
	o.mu.Lock()
	o.err, o.text = err, found
	o.mu.Unlock()
	return report(call.err, found)
}

// contain calls a function of the program. The error of a panic has the name of the op.
func contain(name string, function func() error) (err error) {
	returned := false // recover returns nil for panic(nil) if go.mod says go 1.20 or older
	defer func() {
		if value := recover(); !returned {
			err = &PanicError{name, value, debug.Stack()}
		}
	}()
	err = function()
	returned = true
	return err
}

// report writes the text of the failure of a callback, and returns its status.
func report(err *C.weft_error, found string) C.int32_t {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&err.text[0])), len(err.text))
	text[copy(text[:len(text)-1], found)] = 0
	return C.WEFT_EUSER
}

// lend calls a function with the operands of a call. Afterwards they have no elements, as the memory belongs to the run.
func (o *op) lend(call *C.weft_op_call, function func(*OpCall) error) error {
	var lent []*Tensor
	view := func(from *C.weft_view) *Tensor {
		t := &Tensor{desc: fromDesc(&from.desc), elements: from.data}
		lent = append(lent, t)
		return t
	}
	views := func(from *C.weft_view, n C.uint32_t) []*Tensor {
		if from == nil {
			return nil
		}
		out := make([]*Tensor, n)
		all := unsafe.Slice(from, n)
		for i := range all {
			out[i] = view(&all[i])
		}
		return out
	}
	defer func() {
		for _, t := range lent {
			t.elements = nil
		}
	}()
	return function(&OpCall{
		Inputs: views(call.inputs, call.n_inputs), Params: views(call.params, call.n_params), Output: view(&call.output),
		Stash: view(&call.stash), GradOutput: view(&call.grad_output), GradInputs: views(call.grad_inputs, call.n_inputs),
		GradParams: views(call.grad_params, call.n_params), Training: call.training != 0, Seed: uint64(call.seed),
	})
}

func descs(from *C.weft_view, n C.uint32_t) []Desc {
	out := make([]Desc, n)
	for i, view := range unsafe.Slice(from, n) {
		out[i] = fromDesc(&view.desc)
	}
	return out
}
