package weft_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"weft"
)

var errOp = errors.New("the op has failed on purpose")

// scaled is y = x * s with a parameter s [width].
func scaled(forward func() error) weft.Op {
	return weft.Op{
		Name: "scaled",
		Shape: func(inputs, params []weft.Desc) (weft.Desc, weft.Desc, error) {
			if len(params) != 1 || params[0].Dims[0] != inputs[0].Dims[1] {
				return weft.Desc{}, weft.Desc{}, fmt.Errorf("expected x [n, width] and s [width], got %v and %v", inputs, params)
			}
			return inputs[0], weft.Desc{}, nil
		},
		Forward: func(call *weft.OpCall) error {
			x, s, y := call.Inputs[0].Float32(), call.Params[0].Float32(), call.Output.Float32()
			for i := range y {
				y[i] = x[i] * s[i%len(s)]
			}
			return forward()
		},
		Backward: func(call *weft.OpCall) error {
			s, dy, dx := call.Params[0].Float32(), call.GradOutput.Float32(), call.GradInputs[0].Float32()
			for i := range dx {
				dx[i] = dy[i] * s[i%len(s)]
			}
			return nil
		},
		BackwardParams: func(call *weft.OpCall) error {
			x, dy, ds := call.Inputs[0].Float32(), call.GradOutput.Float32(), call.GradParams[0].Float32()
			for i := range dy {
				ds[i%len(ds)] += float32(x[i] * dy[i])
			}
			return nil
		},
		BackwardReads: weft.ReadsParams, BackwardParamsReads: weft.ReadsInputs,
	}
}

// withOp is linear, scaled, linear; the same with the built-in op mul if op is nil.
func withOp(t testing.TB, op *weft.Op) *weft.Model {
	t.Helper()
	model := weft.NewModel()
	t.Cleanup(func() { model.Close() })
	x, y := model.Input("x", weft.F32, 1), model.Input("y", weft.F32, 1)
	node := weft.Node{Name: "middle", Op: "mul", Inputs: []weft.Value{model.Linear("hidden", x, 32)}}
	if op != nil {
		node.Op = op.Name
		model.AddOp(*op)
	}
	node.Params = []weft.Param{model.Param("s", weft.Constant(2), 32)}
	model.Binary("mse", model.Linear("out", model.Add(node), 1), y)
	try(t, model.Err())
	return model
}

func TestAnOpInGoHasTheBitsOfABuiltInOne(t *testing.T) {
	_, batch := sine(t)
	var found []string
	op := scaled(func() error { return nil })
	for _, model := range []*weft.Model{withOp(t, nil), withOp(t, &op)} {
		for _, threads := range []int{0, 2} {
			config := small
			config.MicroBatches, config.MicroBatchSize = 8, 8
			run := start(t, model, config, threads)
			steps(t, run, batch, 3)
			found = append(found, digest(t, run))
		}
	}
	if found[0] != found[1] || found[2] != found[3] {
		t.Error("threads:", found)
	}
	if found[0] != found[2] {
		t.Error("mul and the op in Go:", found)
	}
}

func TestErrorsAndPanicsOfOpsAreReported(t *testing.T) {
	_, batch := sine(t)
	for _, threads := range []int{0, 1} {
		op := scaled(func() error { return errOp })
		run := start(t, withOp(t, &op), small, threads)
		_, err := run.Step(background, weft.Train, batch...)
		if !errors.Is(err, weft.EUSER) || !errors.Is(err, errOp) || strings.Count(err.Error(), errOp.Error()) != 1 {
			t.Error("an op that returns an error:", err)
		}
		op = scaled(func() error { panic(errOp) })
		run = start(t, withOp(t, &op), small, threads)
		_, err = run.Step(background, weft.Train, batch...)
		var panicked *weft.PanicError
		if !errors.Is(err, weft.EUSER) || !errors.Is(err, errOp) || !errors.As(err, &panicked) || len(panicked.Stack) == 0 {
			t.Error("an op that panics:", err)
		}
	}
	op := scaled(nil)
	model := withOp(t, &op)
	model.Add(weft.Node{Op: "scaled", Inputs: []weft.Value{model.Input("z", weft.F32, 3)}})
	if err := model.Err(); !errors.Is(err, weft.EUSER) || !strings.Contains(err.Error(), "expected x [n, width] and s [width]") {
		t.Error("a shape that is refused:", err)
	}
	model = weft.NewModel()
	defer model.Close()
	model.AddOp(weft.Op{Name: "empty"})
	if err := model.Err(); !errors.Is(err, weft.EINVAL) {
		t.Error("an op without functions:", err)
	}
}

func TestAGradientThatReadsNothingGetsTheGradientOfTheOutputOnly(t *testing.T) {
	_, batch := sine(t)
	op := scaled(func() error { return nil })
	op.BackwardReads = weft.ReadsNone
	op.Backward = func(call *weft.OpCall) error {
		if len(call.Inputs[0].Float32())+len(call.Params[0].Float32())+len(call.Output.Float32()) > 0 {
			return errOp
		}
		copy(call.GradInputs[0].Float32(), call.GradOutput.Float32())
		return nil
	}
	steps(t, start(t, withOp(t, &op), small, 1), batch, 1)
}

// noText is an error whose text cannot be made.
type noText struct{ error }

func (noText) Error() string { panic("no text") }

func TestTheTextOfAnErrorOfAnOpCannotPanicInC(t *testing.T) {
	_, batch := sine(t)
	for _, err := range []error{noText{errOp}, fmt.Errorf("a\x00b: %w", errOp), (*os.PathError)(nil)} {
		op := scaled(func() error { return err })
		run := start(t, withOp(t, &op), small, 1)
		_, found := run.Step(background, weft.Train, batch...)
		if !errors.Is(found, weft.EUSER) || errors.Unwrap(found) != err {
			t.Errorf("%T: %v", err, found)
		}
		if _, is := err.(noText); is && !strings.Contains(found.Error(), "no text") {
			t.Error(found)
		}
	}
}

func TestAnyTextOfAnErrorOfAnOpIsFound(t *testing.T) {
	_, batch := sine(t)
	for _, text := range []string{"", "a\x1b[31mb", "a\u202eb", "a\xffb", "a\n\tb", strings.Repeat("\x01ö", 200)} {
		err := errors.New(text)
		op := scaled(func() error { return err })
		_, found := start(t, withOp(t, &op), small, 1).Step(background, weft.Train, batch...)
		if !errors.Is(found, weft.EUSER) || !errors.Is(found, err) || !strings.Contains(found.Error(), " returned -11: ") {
			t.Errorf("%q: %v", text, found)
		}
	}
}

// The other elements are in memory of the run, which may be free.
func TestOperandsHaveNoElementsAfterTheCall(t *testing.T) {
	_, batch := sine(t)
	var kept []*weft.OpCall
	op := scaled(func() error { return nil })
	keep := func(function func(call *weft.OpCall) error) func(call *weft.OpCall) error {
		return func(call *weft.OpCall) error {
			kept = append(kept, call)
			return function(call)
		}
	}
	op.Forward, op.Backward, op.BackwardParams = keep(op.Forward), keep(op.Backward), keep(op.BackwardParams)
	run := start(t, withOp(t, &op), small, 0)
	steps(t, run, batch, 1)
	run.Close()
	if len(kept) == 0 {
		t.Error("the op has not been called")
	}
	for _, call := range kept {
		tensors := append(append(append(append([]*weft.Tensor{call.Output, call.Stash, call.GradOutput}, call.Inputs...), call.Params...),
			call.GradInputs...), call.GradParams...)
		for _, tensor := range tensors {
			if elements := tensor.Float32(); len(elements) != 0 {
				t.Error("elements after the call:", len(elements))
			}
		}
	}
}

func TestAPanicWithNilIsAFailure(t *testing.T) {
	_, batch := sine(t)
	op := scaled(func() error { panic(nil) })
	_, err := start(t, withOp(t, &op), small, 1).Step(background, weft.Train, batch...)
	var panicked *weft.PanicError
	if !errors.Is(err, weft.EUSER) || !errors.As(err, &panicked) {
		t.Error(err)
	}
}

// The library drops an op with the last object that uses it, and then Go can free what it refers to.
func TestAnOpIsFreedWithItsModel(t *testing.T) {
	freed := make(chan bool)
	func() {
		kept := new([100]byte)
		runtime.SetFinalizer(kept, func(*[100]byte) { close(freed) })
		op := scaled(func() error { kept[0]++; return nil })
		model := withOp(t, &op)
		_, batch := sine(t)
		run := start(t, model, small, 1)
		steps(t, run, batch, 1)
		run.Close()
		model.Close()
	}()
	untilFreed(freed)
}

// untilFreed runs the garbage collector until the channel is closed, or until the deadline of the test.
func untilFreed(freed chan bool) {
	for {
		select {
		case <-freed:
			return
		default:
			runtime.GC()
		}
	}
}
