package weft

/*
#include <weft.h>

int32_t weft_go_shape(weft_op_call *call);
int32_t weft_go_forward(weft_op_call *call);
int32_t weft_go_backward(weft_op_call *call);
int32_t weft_go_backward_params(weft_op_call *call);
void weft_go_destroy(void *payload);

static void weft_go_callbacks(weft_op *op, int backward, int backward_params) {
	op->shape = weft_go_shape;
	op->forward = (int32_t(*)(const weft_op_call *))weft_go_forward;
	if (backward) op->backward = (int32_t(*)(const weft_op_call *))weft_go_backward;
	if (backward_params) op->backward_params = (int32_t(*)(const weft_op_call *))weft_go_backward_params;
	op->destroy = weft_go_destroy;
}
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
)

// OpReads are tensors that a gradient of an op reads besides OpCall.GradOutput. The others are empty in its call, and their memory is free.
type OpReads int

const (
	ReadsNone   OpReads = noCount // only OpCall.GradOutput
	ReadsInputs OpReads = C.WEFT_OP_READS_INPUTS
	ReadsParams OpReads = C.WEFT_OP_READS_PARAMS
	ReadsOutput OpReads = C.WEFT_OP_READS_OUTPUT
	ReadsStash  OpReads = C.WEFT_OP_READS_STASH
	ReadsAll    OpReads = C.WEFT_OP_READS_ALL
)

// Op is an op in Go, with 1 to 16 inputs, up to 16 parameters and one output. Each call must be a pure function of its argument. The functions
// run on compute threads, possibly at the same time, and must not call weft. An error or a panic of theirs fails the call or the run with
// EUSER; errors.Is and errors.As find it, and a panic is a [*PanicError]. On other ranks the error has its text. The functions must not call
// runtime.Goexit, as FailNow of a test does.
//
// Go may fuse a product and a sum into one rounding on some processors. For the same bits on all of them, write float32(x*y) + z.
type Op struct {
	Name    string // without spaces and control characters
	Version int    // part of the hash of the plan, with the name; default: 1
	// Shape returns the shapes of the output and the stash, or an error if it does not accept the inputs and parameters. A zero stash is none.
	// Dimension 0 of the output is the samples.
	Shape func(inputs, params []Desc) (output, stash Desc, err error)
	// Forward writes the output and the stash.
	Forward func(call *OpCall) error
	// Backward writes each of GradInputs that has elements. nil: inputs have no gradient, so nothing below the op is trained.
	Backward func(call *OpCall) error
	// BackwardParams writes each of GradParams that has elements. nil: parameters of the op cannot be trained.
	BackwardParams      func(call *OpCall) error
	BackwardReads       OpReads // default: ReadsAll
	BackwardParamsReads OpReads // default: ReadsAll
}

// OpCall is the operands of one call of an op, valid until the function returns. After that the tensors have no elements, and slices of their
// elements must not be used: copy what the program keeps. A tensor that the call does not use has no elements.
type OpCall struct {
	Inputs, Params []*Tensor
	Output         *Tensor   // written by Forward
	Stash          *Tensor   // written by Forward for the gradients
	GradOutput     *Tensor   // Backward, BackwardParams
	GradInputs     []*Tensor // Backward; they hold zeros
	GradParams     []*Tensor // BackwardParams; they hold zeros
	Training       bool      // whether the step has a backward pass
	Seed           uint64    // for random numbers: of the node, the micro-batch and the updates before the step, so the same in its gradients
}

// PanicError is a panic of an op or of SequenceConfig.Choose.
type PanicError struct {
	Op    string // "": of Choose
	Value any
	Stack []byte
}

// Error returns the value of the panic.
func (p *PanicError) Error() string {
	if p.Op == "" {
		return fmt.Sprintf("panic in Choose: %v", p.Value)
	}
	return fmt.Sprintf("panic in op '%s': %v", p.Op, p.Value)
}

// Unwrap returns the value of the panic, if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// op is a registered op, with the last error of its functions.
type op struct {
	Op
	mu   sync.Mutex
	err  error
	text string // of err
}

// AddOp registers an op under its name for this model.
func (m *Model) AddOp(definition Op) {
	state := &op{Op: definition}
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		var c C.weft_op
		C.weft_op_init(&c, C.sizeof_weft_op)
		c.name = own.text(definition.Name)
		own.setCount(&c.version, "version", definition.Version)
		own.setCountOrNone(&c.backward_reads, "backward_reads", int(definition.BackwardReads))
		own.setCountOrNone(&c.backward_params_reads, "backward_params_reads", int(definition.BackwardParamsReads))
		if definition.Shape != nil && definition.Forward != nil {
			C.weft_go_callbacks(&c, C.int(flag(definition.Backward != nil)), C.int(flag(definition.BackwardParams != nil)))
		}
		payload := newPayload(state)
		status := C.weft_model_add_op(model, &c, payload, err)
		if status < 0 {
			destroy(payload)
			return status
		}
		m.ops = append(m.ops, state)
		return status
	})
}

// caused makes the error that an op in Go has returned the cause of a failure.
func caused(ops []*op, err error) error {
	e, ok := err.(*Error)
	if !ok || e.Status != EUSER || e.Cause != nil {
		return err
	}
	for _, o := range ops {
		o.mu.Lock()
		found, text := o.err, o.text
		o.mu.Unlock()
		if found != nil && strings.Contains(e.Text, ": "+text) {
			e.Cause = found
		}
	}
	return err
}

// textOf returns the text of an error of an op as the message of the library contains it: with printable characters only, as the library
// escapes others, and never empty. fmt also returns a text if Error panics, which must not reach C.
func textOf(err error) string {
	printable := func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}
	text := strings.Join(strings.Fields(strings.Map(printable, fmt.Sprint(err))), " ")
	if text == "" {
		text = fmt.Sprintf("%T", err)
	}
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	return text
}

func (m *Model) caused(err error) error { return caused(m.ops, err) }
