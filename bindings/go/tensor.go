package weft

/*
#include <weft.h>
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// DType is the type of the elements of a tensor.
type DType uint32

const (
	F32 DType = C.WEFT_F32 // float32
	I32 DType = C.WEFT_I32 // int32
	F64 DType = C.WEFT_F64 // float64; of losses only
)

func (t DType) String() string {
	switch t {
	case F32:
		return "f32"
	case I32:
		return "i32"
	case F64:
		return "f64"
	}
	return fmt.Sprintf("DType(%d)", uint32(t))
}

// MaxDims is the maximum number of dimensions of a tensor.
const MaxDims = C.WEFT_MAX_DIMS

// Desc is the type and the dimensions of a dense array in row-major order.
type Desc struct {
	DType DType
	Dims  []int
}

// String returns a text like "f32[64,1]".
func (d Desc) String() string {
	return d.DType.String() + strings.ReplaceAll(fmt.Sprint(d.Dims), " ", ",")
}

// Elements returns the number of elements.
func (d Desc) Elements() int {
	n := 1
	for _, dim := range d.Dims {
		n *= dim
	}
	return n
}

func toDesc(d Desc) C.weft_desc {
	out := C.weft_desc{dtype: C.weft_dtype(d.DType), n_dims: C.uint32_t(len(d.Dims))}
	for i := 0; i < len(d.Dims) && i < MaxDims; i++ {
		out.dims[i] = C.int64_t(d.Dims[i])
	}
	return out
}

func fromDesc(d *C.weft_desc) Desc {
	out := Desc{DType: DType(d.dtype), Dims: make([]int, d.n_dims)}
	for i := range out.Dims {
		out.Dims[i] = int(d.dims[i])
	}
	return out
}

// Tensor is a dense array. Its memory belongs to the library, and Go reads and writes it as a slice, without a copy.
//
// The slice is valid until Close. Because it may be in use after the tensor itself is unreachable, the garbage collector does not free
// tensors: call Close.
type Tensor struct {
	mu       sync.Mutex
	c        *C.weft_tensor
	desc     Desc
	elements unsafe.Pointer // nil after Close
	memory   any            // of a copy: the slice that owns the elements
}

// NewTensor makes a tensor that is filled with zeros.
func NewTensor(dtype DType, dims ...int) (*Tensor, error) {
	t := &Tensor{desc: Desc{dtype, append([]int(nil), dims...)}}
	c, err := toDesc(t.desc), newError()
	if err := failed(C.weft_tensor_new(&c, &t.c, err), err); err != nil {
		return nil, err
	}
	t.elements = C.weft_tensor_data(t.c)
	return t, nil
}

// TensorOf makes a float32 tensor with a copy of values.
func TensorOf(values []float32, dims ...int) (*Tensor, error) {
	t, err := NewTensor(F32, dims...)
	if err != nil {
		return nil, err
	}
	if len(values) != t.desc.Elements() {
		t.Close()
		return nil, &Error{Status: EINVAL, Text: fmt.Sprintf("a tensor %v has %d elements, got %d", t.desc, t.desc.Elements(), len(values))}
	}
	copy(t.Float32(), values)
	return t, nil
}

// Close drops the tensor. Runs to which it was submitted keep its memory until their steps end.
func (t *Tensor) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	C.weft_tensor_unref(t.c)
	t.c, t.elements, t.memory = nil, nil, nil
	return nil
}

// borrow returns a tensor for a call, also if it is closed during the call; NULL for nil. It may occur several times in a call.
func (t *Tensor) borrow(own *memory) *C.weft_tensor {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.elements == nil {
		own.refuse(&Error{Status: ESTATE, Text: "the tensor is closed"})
	}
	if t.c == nil {
		own.refuse(&Error{Status: EINVAL, Text: "the tensor is an output of a run; use one of NewTensor"})
	}
	own.tensors = append(own.tensors, C.weft_tensor_ref(t.c))
	return t.c
}

// Desc returns the type and dimensions.
func (t *Tensor) Desc() Desc { return t.desc }

// Float32 returns the elements; nil if the type is not F32.
func (t *Tensor) Float32() []float32 { return elements[float32](t, F32) }

// Int32 returns the elements; nil if the type is not I32.
func (t *Tensor) Int32() []int32 { return elements[int32](t, I32) }

// Float64 returns the elements; nil if the type is not F64.
func (t *Tensor) Float64() []float64 { return elements[float64](t, F64) }

func elements[T any](t *Tensor, dtype DType) []T {
	if t.elements == nil || t.desc.DType != dtype {
		return nil
	}
	return unsafe.Slice((*T)(t.elements), t.desc.Elements())
}

// clone copies a tensor that the library changes into memory of Go.
func (t *Tensor) clone() *Tensor {
	switch t.desc.DType {
	case I32:
		return inGo(t.desc, t.Int32())
	case F64:
		return inGo(t.desc, t.Float64())
	}
	return inGo(t.desc, t.Float32())
}

// inGo makes a tensor of a copy of values. It cannot be submitted.
func inGo[T any](desc Desc, values []T) *Tensor {
	own := append(make([]T, 0, len(values)+1), values...)
	return &Tensor{desc: desc, elements: unsafe.Pointer(&own[:1][0]), memory: own}
}

// Batch is the inputs of a step, in the order in which they were added to the model.
type Batch []*Tensor

// Close drops the tensors.
func (b Batch) Close() error {
	for _, t := range b {
		t.Close()
	}
	return nil
}
