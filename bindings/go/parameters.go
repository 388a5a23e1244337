package weft

/*
#include <weft.h>

// The tensor is around memory of Go, and must not outlive the call.
static weft_status access(weft_run *run, const char *name, weft_part part, const weft_desc *desc, void *data, int writes, weft_error *err) {
	weft_tensor *tensor;
	weft_status status = weft_tensor_wrap(desc, data, NULL, NULL, &tensor, err);
	if (status < 0) return status;
	status = writes ? weft_run_write(run, name, part, tensor, err) : weft_run_read(run, name, part, tensor, err);
	weft_tensor_unref(tensor);
	return status;
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Part is a tensor of a parameter.
type Part uint32

const (
	Values   Part = C.WEFT_VALUE
	Gradient Part = C.WEFT_GRAD       // of the last step with a backward pass, before clipping; of several updates, the last one
	Momentum Part = C.WEFT_MOMENTUM   // state of SGD with momentum
	ExpAvg   Part = C.WEFT_EXP_AVG    // state of Adam and AdamW: mean of the gradients
	ExpAvgSq Part = C.WEFT_EXP_AVG_SQ // state of Adam and AdamW: mean of their squares
)

// Read returns a tensor of a parameter. Gradient also reads the gradient of an input of Model.InputWithGrad, for the samples of the last step.
// Only between steps, see Step.
func (r *Run) Read(name string, part Part) ([]float32, error) {
	desc, err := r.desc(name)
	if err != nil {
		return nil, err
	}
	values := make([]float32, desc.Elements())
	return values, r.ReadTo(name, part, values)
}

// ReadTo is Read into a slice of the program.
func (r *Run) ReadTo(name string, part Part, values []float32) error {
	return r.access(name, part, values, 0)
}

// Write copies values into a tensor of a parameter, except Gradient, which can only be read. Only between steps, see Step.
func (r *Run) Write(name string, part Part, values []float32) error {
	return r.access(name, part, values, 1)
}

// desc returns the shape of a parameter, or of an input for the samples of the last step.
func (r *Run) desc(name string) (Desc, error) {
	desc, found := r.shapes.params[name]
	if found {
		return desc, nil
	}
	desc, found = r.shapes.inputs[name]
	if !found {
		return desc, &Error{Status: ENOENT, Text: fmt.Sprintf("the model has no parameter '%s'", name)}
	}
	if err := r.choosing.refuse(); err != nil {
		return desc, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	dims := append([]int(nil), desc.Dims...)
	dims[0] = r.samples
	return Desc{desc.DType, dims}, nil
}

func (r *Run) access(name string, part Part, values []float32, writes C.int) error {
	desc, err := r.desc(name)
	if err != nil {
		return err
	}
	if len(values) != desc.Elements() {
		return &Error{Status: EINVAL, Text: fmt.Sprintf("'%s' is %v, got %d elements", name, desc, len(values))}
	}
	if len(values) == 0 {
		values = make([]float32, 1) // C requires an address
	}
	c := toDesc(desc)
	return r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.access(run, own.text(name), C.weft_part(part), &c, unsafe.Pointer(&values[0]), writes, err)
	})
}

// shapes are the shapes of the inputs and parameters of a model, by name.
type shapes struct{ inputs, params map[string]Desc }

// shapes lists the shapes of a model that cannot change. m.mu is held.
func (m *Model) shapes() shapes {
	by := func(kind ItemKind) map[string]Desc {
		out := make(map[string]Desc)
		for _, item := range m.items(kind) {
			out[item.Name] = item.Desc
		}
		return out
	}
	return shapes{by(InputItem), by(ParamItem)}
}
