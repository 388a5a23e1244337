// The README's program in Go: a sine is learned with a small network in two pipeline stages.
package main

// #cgo pkg-config: weft
// #include <stdlib.h>
// #include <weft.h>
import "C"

import (
	"fmt"
	"math"
	"os"
	"unsafe"
)

const samples = 64

var failure = C.weft_error{size: C.sizeof_weft_error}

func try(status C.weft_status) {
	if status < 0 {
		fmt.Fprintln(os.Stderr, "embed:", C.GoString(&failure.text[0]))
		os.Exit(1)
	}
}

func desc(rows C.int64_t) *C.weft_desc {
	return &C.weft_desc{dtype: C.WEFT_F32, rank: 2, dims: [C.WEFT_MAX_RANK]C.int64_t{rows, 1}}
}

// A tensor of the library's own memory, which Go may write and C may keep.
func tensor(value func(i int) float64) *C.weft_tensor {
	var out *C.weft_tensor
	try(C.weft_tensor_new(desc(samples), &out, &failure))
	data := unsafe.Slice((*float32)(C.weft_tensor_data(out)), samples)
	for i := range data {
		data[i] = float32(value(i))
	}
	return out
}

func node(model *C.weft_model, op string, inputs *C.weft_value, n C.uint32_t) {
	name := C.CString(op)
	defer C.free(unsafe.Pointer(name))
	config := C.weft_node_config{size: C.sizeof_weft_node_config, op: name, inputs: inputs, n_inputs: n}
	try(C.weft_model_add_node(model, &config, inputs, &failure))
}

func linear(model *C.weft_model, name string, value *C.weft_value, features C.int64_t) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	try(C.weft_model_add_linear(model, text, *value, features, value, &failure))
}

func main() {
	at := func(i int) float64 { return float64(i)/10 - 3.2 }
	batch := []*C.weft_tensor{tensor(at), tensor(func(i int) float64 { return math.Sin(at(i)) })}

	var model *C.weft_model
	try(C.weft_model_new(&model, &failure))
	values := (*[2]C.weft_value)(C.malloc(2 * C.sizeof_weft_value)) // the prediction so far, and its target
	for i, name := range []string{"x", "y"} {
		text := C.CString(name)
		try(C.weft_model_add_input(model, text, desc(1), 0, &values[i], &failure))
		C.free(unsafe.Pointer(text))
	}
	linear(model, "hidden", &values[0], 32)
	node(model, "gelu", &values[0], 1)
	linear(model, "out", &values[0], 1)
	node(model, "mse", &values[0], 2)

	optimizer := (*C.weft_optimizer)(C.calloc(1, C.sizeof_weft_optimizer)) // C memory: a configuration points to it
	*optimizer = C.weft_optimizer{size: C.sizeof_weft_optimizer, rate: 0.02, curve: C.WEFT_RATE_COSINE, total: 500}
	config := C.weft_plan_config{size: C.sizeof_weft_plan_config, ranks: 2, micro_batches: 4, micro_batch_size: 16, optimizer: optimizer}
	var plan *C.weft_plan
	var run *C.weft_run
	try(C.weft_plan_new(model, &config, &plan, &failure))
	try(C.weft_run_start(plan, nil, nil, &run, &failure))
	event := C.weft_event{size: C.sizeof_weft_event}
	for step := 0; step <= 500; step++ {
		try(C.weft_run_submit(run, &batch[0], 2, C.WEFT_TRAIN, 0, &failure))
		for event.kind = C.WEFT_EVENT_MICRO_BATCH; event.kind == C.WEFT_EVENT_MICRO_BATCH; {
			if status := C.weft_run_poll(run, &event, -1); status < 0 {
				fmt.Fprintln(os.Stderr, "embed:", C.GoString(C.weft_status_text(status)))
				os.Exit(1)
			}
		}
		if event.kind != C.WEFT_EVENT_DONE {
			fmt.Fprintln(os.Stderr, "embed:", C.GoString(event.text))
			os.Exit(1)
		}
		if step%100 == 0 {
			fmt.Printf("step %3d  loss %.6f\n", step, float64(event.loss))
		}
	}
	C.weft_run_free(run)
	C.weft_plan_free(plan)
	C.weft_model_free(model)
	for _, t := range batch {
		C.weft_tensor_unref(t)
	}
	C.free(unsafe.Pointer(values))
	C.free(unsafe.Pointer(optimizer))
}
