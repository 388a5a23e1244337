// The README's program in Go: trains a small network in two pipeline stages to approximate a sine. The declarations are written by hand.
// A struct with a size may end after the last field that the program uses. The other fields have their defaults, or are not written.
package main

/*
#cgo pkg-config: weft
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct { uint32_t id; } value;
typedef struct { uint32_t size; int32_t status; char text[504]; } failure;
typedef struct { uint32_t dtype, n_dims; int64_t dims[8]; } desc;
typedef struct { uint32_t size, flags; const char *name, *op; const value *inputs; const void *params; uint32_t n_inputs, n_params; } node;
typedef struct { uint32_t size, rule; double rate, momentum, beta1, beta2, eps, weight_decay, clip;
	uint32_t curve, decay_all; uint64_t warmup, total; } optimizer;
typedef struct { uint32_t size, ranks, micro_batches, micro_batch_size, short_size, split; const char *schedule, *const *cuts;
	uint32_t n_cuts, step_kinds; uint64_t seed; const optimizer *optimizer; } plan_config;
typedef struct { uint32_t size, kind; uint64_t tag; int32_t status; uint32_t micro_batch; uint64_t step; double loss, grad_norm;
	void *const *outputs; uint32_t n_outputs; int32_t rank; const char *text; } event;
enum { F32 = 1, COSINE = 2, TRAIN = 1, DONE = 2, ERROR = 3 };

int32_t weft_tensor_new(const desc *, void **, failure *);
void *weft_tensor_data(void *);
void weft_tensor_unref(void *);
int32_t weft_model_new(void **, failure *);
void weft_model_free(void *);
int32_t weft_model_add_input(void *, const char *name, const desc *sample, uint32_t flags, value *, failure *);
int32_t weft_model_add_linear(void *, const char *name, value, int64_t features, value *, failure *);
int32_t weft_model_add_node(void *, const node *, value *, failure *);
void weft_optimizer_init(optimizer *, size_t size);
void weft_plan_config_init(plan_config *, size_t size);
int32_t weft_plan_new(void *, const plan_config *, void **, failure *);
void weft_plan_free(void *);
int32_t weft_run_start(const void *, void *mesh, const void *config, void **, failure *);
void weft_run_free(void *);
int32_t weft_run_submit(void *, void *const *inputs, uint32_t n_inputs, uint32_t mode, uint64_t tag, failure *);
int32_t weft_run_poll(void *, event *, int64_t timeout_ns);
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"unsafe"
)

var failed = C.failure{size: C.sizeof_failure}

func must(done bool, text *C.char) {
	if !done {
		fmt.Fprintln(os.Stderr, "embed:", C.GoString(text))
		os.Exit(1)
	}
}

func try(status C.int32_t)        { must(status >= 0, &failed.text[0]) }
func desc(rows C.int64_t) *C.desc { return &C.desc{dtype: C.F32, n_dims: 2, dims: [8]C.int64_t{rows, 1}} }
func name(text string) *C.char    { return (*C.char)(unsafe.Pointer(&append([]byte(text), 0)[0])) }

func main() {
	var batch [2]unsafe.Pointer // tensors in memory of the library, which Go may write and C may keep
	for i := range batch {
		try(C.weft_tensor_new(desc(64), &batch[i], &failed))
	}
	x, y := (*[64]float32)(C.weft_tensor_data(batch[0])), (*[64]float32)(C.weft_tensor_data(batch[1]))
	for i := range x {
		x[i] = float32(i)/10 - 3.2
		y[i] = float32(math.Sin(float64(x[i])))
	}
	var model, plan, run unsafe.Pointer
	v := (*[2]C.value)(C.calloc(2, C.sizeof_value))          // the current value and the target, in memory of C, as
	adamw := (*C.optimizer)(C.calloc(1, C.sizeof_optimizer)) // everything that configurations point to
	node := func(op string, n_inputs C.uint32_t) {
		config := C.node{size: C.sizeof_node, op: C.CString(op), inputs: &v[0], n_inputs: n_inputs}
		try(C.weft_model_add_node(model, &config, &v[0], &failed))
		C.free(unsafe.Pointer(config.op))
	}
	try(C.weft_model_new(&model, &failed))
	try(C.weft_model_add_input(model, name("x"), desc(1), 0, &v[0], &failed))
	try(C.weft_model_add_input(model, name("y"), desc(1), 0, &v[1], &failed))
	try(C.weft_model_add_linear(model, name("hidden"), v[0], 32, &v[0], &failed))
	node("gelu", 1)
	try(C.weft_model_add_linear(model, name("out"), v[0], 1, &v[0], &failed))
	node("mse", 2)
	C.weft_optimizer_init(adamw, C.sizeof_optimizer)
	adamw.rate, adamw.curve, adamw.total, adamw.clip = 0.02, C.COSINE, 500, 0
	var config C.plan_config
	C.weft_plan_config_init(&config, C.sizeof_plan_config)
	config.ranks, config.micro_batches, config.micro_batch_size, config.optimizer = 2, 4, 16, adamw
	try(C.weft_plan_new(model, &config, &plan, &failed))
	try(C.weft_run_start(plan, nil, nil, &run, &failed))
	ended := C.CString("the step has no final event")
	event := C.event{size: C.sizeof_event}
	for step := 0; step <= 500; step++ {
		try(C.weft_run_submit(run, &batch[0], 2, C.TRAIN, 0, &failed))
		for event.kind = 0; event.kind != C.DONE; { // events of other kinds report parts of the step
			must(C.weft_run_poll(run, &event, -1) > 0, ended)
			must(event.kind != C.ERROR, event.text)
		}
		if step%100 == 0 {
			fmt.Printf("step %3d  loss %.6f\n", step, float64(event.loss))
		}
	}
	C.weft_run_free(run)
	C.weft_plan_free(plan)
	C.weft_model_free(model)
	C.weft_tensor_unref(batch[0])
	C.weft_tensor_unref(batch[1])
	C.free(unsafe.Pointer(v))
	C.free(unsafe.Pointer(adamw))
}
