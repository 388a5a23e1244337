package weft_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"weft"
)

var background = context.Background()

// sine makes the model of examples/embed and a batch.
func sine(t testing.TB) (*weft.Model, weft.Batch) {
	t.Helper()
	model := weft.NewModel()
	t.Cleanup(func() { model.Close() })
	x, y := model.Input("x", weft.F32, 1), model.Input("y", weft.F32, 1)
	out := model.Linear("out", model.Unary("gelu", model.Linear("hidden", x, 32)), 1)
	model.Output(out)
	model.Binary("mse", out, y)
	batch, err := model.NewBatch(64)
	try(t, err)
	t.Cleanup(func() { batch.Close() })
	for i := range batch[0].Float32() {
		batch[0].Float32()[i] = float32(i)/10 - 3.2
		batch[1].Float32()[i] = float32(math.Sin(float64(i)/10 - 3.2))
	}
	return model, batch
}

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var small = weft.PlanConfig{Ranks: 2, MicroBatches: 4, MicroBatchSize: 16}

func start(t testing.TB, model *weft.Model, config weft.PlanConfig, threads int) *weft.Run {
	t.Helper()
	return startOf(t, nil, model, config, threads)
}

func startOf(t testing.TB, mesh *weft.Mesh, model *weft.Model, config weft.PlanConfig, threads int) *weft.Run {
	t.Helper()
	plan, err := weft.NewPlan(model, config)
	try(t, err)
	defer plan.Close()
	run, err := weft.Start(background, plan, mesh, weft.RunConfig{Threads: threads})
	try(t, err)
	t.Cleanup(func() { run.Close() })
	return run
}

func digest(t testing.TB, run *weft.Run) string {
	t.Helper()
	digest, err := run.Digest()
	try(t, err)
	return digest
}

func steps(t testing.TB, run *weft.Run, batch weft.Batch, n int) {
	t.Helper()
	for ; n > 0; n-- {
		_, err := run.Step(background, weft.Train, batch...)
		try(t, err)
	}
}

func TestThreadsDoNotChangeTheBits(t *testing.T) {
	var found []string
	for _, threads := range []int{0, 1, 2} {
		model, batch := sine(t)
		run := start(t, model, small, threads)
		steps(t, run, batch, 5)
		found = append(found, digest(t, run))
	}
	if found[0] != found[1] || found[0] != found[2] {
		t.Error(found)
	}
}

func TestARateThatIsSetReplacesThatOfThePlan(t *testing.T) {
	model, batch := sine(t)
	run := start(t, model, small, 1)
	before := digest(t, run)
	try(t, run.SetRate(0))
	steps(t, run, batch, 1)
	if digest(t, run) != before {
		t.Error("a step with the rate 0 changed the weights")
	}
	try(t, run.SetRate(0.1))
	steps(t, run, batch, 1)
	if digest(t, run) == before {
		t.Error("a step with the rate 0.1 did not change the weights")
	}
	if run.SetRate(-1) == nil {
		t.Error("a negative rate is accepted")
	}
}

func TestATrainingStepCanDeliverOutputs(t *testing.T) {
	model, batch := sine(t)
	config := small
	config.Steps = weft.TrainSteps | weft.TrainOutputs | weft.EvalSteps | weft.ForwardSteps
	run := start(t, model, config, 1)
	expected, err := run.Forward(background, batch[0], nil)
	try(t, err)
	loss, outputs, err := run.StepOutputs(background, weft.Train, batch...)
	try(t, err)
	if len(outputs) != 1 || !reflect.DeepEqual(outputs[0].Float32(), expected[0].Float32()) || loss <= 0 {
		t.Error(loss, outputs)
	}
	before := digest(t, run)
	if _, outputs, err = run.StepOutputs(background, weft.Eval, batch...); err == nil {
		t.Error("outputs of an evaluation:", outputs)
	}
	if digest(t, run) != before {
		t.Error("a step was made that has no outputs")
	}
}

func TestForwardReturnsAllSamples(t *testing.T) {
	model, batch := sine(t)
	run := start(t, model, small, 1)
	outputs, err := run.Forward(background, batch[0], nil)
	try(t, err)
	if len(outputs) != 1 || outputs[0].Desc().String() != "f32[64,1]" || len(outputs[0].Float32()) != 64 {
		t.Fatal(outputs)
	}
	weight, err := run.Read("hidden.weight", weft.Values)
	try(t, err)
	try(t, run.Write("out.weight", weft.Values, make([]float32, 32)))
	try(t, run.Write("out.bias", weft.Values, []float32{7}))
	outputs, err = run.Forward(background, batch[0], nil)
	try(t, err)
	for i, y := range outputs[0].Float32() {
		if y != 7 {
			t.Fatalf("output %d is %v, expected the bias, 7", i, y)
		}
	}
	if len(weight) != 32 || weight[0] == 0 {
		t.Error("hidden.weight is", weight)
	}
}

func TestAValueOfAnotherModelIsRefused(t *testing.T) {
	other := weft.NewModel()
	defer other.Close()
	value, param := other.Input("other", weft.F32, 4), other.Param("w", weft.Constant(1), 4)
	for _, add := range []func(model *weft.Model, x weft.Value){
		func(model *weft.Model, x weft.Value) { model.Output(value) },
		func(model *weft.Model, x weft.Value) { model.Linear("linear", value, 1) },
		func(model *weft.Model, x weft.Value) { model.Binary("add", x, value) },
		func(model *weft.Model, x weft.Value) { model.CutInput(value, 1, "a", 0) },
		func(model *weft.Model, x weft.Value) { model.ShareGradient(param) },
		func(model *weft.Model, x weft.Value) { model.Add(weft.Node{Op: "add", Inputs: []weft.Value{x, value}}) },
		func(model *weft.Model, x weft.Value) {
			model.Add(weft.Node{Op: "mul", Inputs: []weft.Value{x}, Params: []weft.Param{param}})
		},
	} {
		model := weft.NewModel()
		defer model.Close()
		x := model.Input("x", weft.F32, 4)
		model.Param("w", weft.Constant(2), 4)
		if found := model.Items(weft.InputItem)[0].Value; found != x {
			t.Error("the value of an item is", found, "expected", x)
		}
		_, err := model.Shape(value, 1)
		for _, err := range []error{err, func() error { add(model, x); return model.Err() }()} {
			if !errors.Is(err, weft.EINVAL) || !strings.Contains(err.Error(), "belongs to another model") {
				t.Error(err)
			}
		}
	}
	model := weft.NewModel()
	defer model.Close()
	model.Output(weft.Value{})
	if err := model.Err(); !errors.Is(err, weft.EINVAL) {
		t.Error("no value as an output:", err)
	}
}

func TestFailuresAreErrorsWithStatusAndText(t *testing.T) {
	model, batch := sine(t)
	model.Add(weft.Node{Name: "late", Op: "no_such_op"})
	if err := model.Err(); !errors.Is(err, weft.ENOENT) || !strings.Contains(err.Error(), "no_such_op") {
		t.Error("an unknown op:", err)
	}
	if added := model.Input("z", weft.F32, 1); added != (weft.Value{}) {
		t.Error("a model with an error adds", added)
	}
	if _, err := weft.NewPlan(model, small); !errors.Is(err, weft.ENOENT) || !strings.Contains(err.Error(), "no_such_op") {
		t.Error("a plan of this model:", err)
	}
	model, batch = sine(t)
	run := start(t, model, small, 0)
	var err *weft.Error
	if _, found := run.Step(background, weft.Train, batch[0]); !errors.As(found, &err) || err.Status != weft.EINVAL {
		t.Error("an input too few:", found)
	}
	if _, found := weft.OpenCheckpoint(filepath.Join(t.TempDir(), "none")); !errors.Is(found, os.ErrNotExist) {
		t.Error("a file that does not exist:", found)
	}
	if _, found := run.Read("nothing", weft.Values); !errors.Is(found, weft.ENOENT) || errors.Is(found, weft.EINVAL) {
		t.Error("an unknown parameter:", found)
	}
	if found := run.Write("out.bias", weft.Values, make([]float32, 2)); !errors.Is(found, weft.EINVAL) {
		t.Error("a parameter of another size:", found)
	}
	if _, found := weft.NewTensor(weft.F32, -1); !errors.Is(found, weft.EINVAL) {
		t.Error("a tensor with a negative dimension:", found)
	}
}

func TestZeroValuesAreDefaults(t *testing.T) {
	model, _ := sine(t)
	plan, err := weft.NewPlan(model, weft.PlanConfig{})
	try(t, err)
	defer plan.Close()
	if info := plan.Info(); info != (weft.PlanInfo{Ranks: 1, Stages: 1, MicroBatches: 8, Schedule: "1f1b", WarmUp: 1, Trained: model.Parameters()}) {
		t.Errorf("%+v", info)
	}
	if rate := plan.Rate(0); rate != 1e-3 {
		t.Error("rate", rate)
	}
}

func TestNegativeNumbersAreRefused(t *testing.T) {
	model, _ := sine(t)
	group := func(g weft.ParameterGroup) []weft.ParameterGroup {
		g.Pattern = "*"
		return []weft.ParameterGroup{g}
	}
	for what, config := range map[string]weft.PlanConfig{
		"ranks": {Ranks: -1}, "micro_batches": {MicroBatches: -1}, "warm_up": {WarmUp: -2},
		"rate": {Optimizer: weft.Optimizer{Rate: -1}}, "momentum": {Optimizer: weft.Optimizer{Rule: weft.SGD, Momentum: -1}},
		"beta1": {Optimizer: weft.Optimizer{Beta1: -1}}, "beta2": {Optimizer: weft.Optimizer{Beta2: -1}},
		"eps": {Optimizer: weft.Optimizer{Eps: -1}}, "weight_decay": {Optimizer: weft.Optimizer{WeightDecay: -1}},
		"clip": {Optimizer: weft.Optimizer{Clip: -1}}, "min_rate": {Optimizer: weft.Optimizer{Curve: weft.Cosine, Total: 9, MinRate: -1}},
		"rate_factor": {Groups: group(weft.ParameterGroup{RateFactor: -1})}, "decay_factor": {Groups: group(weft.ParameterGroup{WeightDecayFactor: -1})},
	} {
		if _, err := weft.NewPlan(model, config); !errors.Is(err, weft.EINVAL) || !strings.Contains(err.Error(), what) {
			t.Errorf("a negative %s: %v", what, err)
		}
	}
	plan, err := weft.NewPlan(model, weft.PlanConfig{})
	try(t, err)
	if _, err := weft.Start(background, plan, nil, weft.RunConfig{Threads: -1}); !errors.Is(err, weft.EINVAL) {
		t.Error("a negative number of threads:", err)
	}
}

// The gradients of a step with huge targets have a norm above 1, so clipping shows.
func TestNoneIsZero(t *testing.T) {
	found := make(map[float64]string)
	for _, clip := range []float64{0, 1, weft.None} {
		model, batch := sine(t)
		for i := range batch[1].Float32() {
			batch[1].Float32()[i] = 1000
		}
		config := small
		config.Optimizer = weft.Optimizer{Rule: weft.SGD, Rate: 1e-6, Clip: clip}
		run := start(t, model, config, 0)
		steps(t, run, batch, 1)
		found[clip] = digest(t, run)
	}
	if found[0] != found[1] || found[0] == found[weft.None] {
		t.Error(found)
	}
}

func TestCloseIsIdempotentAndEndsUse(t *testing.T) {
	model, batch := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	run, err := weft.Start(background, plan, nil, weft.RunConfig{})
	try(t, err)
	for i := 0; i < 2; i++ {
		for _, object := range []interface{ Close() error }{run, plan, model, (*weft.Run)(nil), (*weft.Model)(nil), (*weft.Tensor)(nil)} {
			try(t, object.Close())
		}
	}
	if _, err := run.Step(background, weft.Train, batch...); !errors.Is(err, weft.ESTATE) {
		t.Error("a step of a closed run:", err)
	}
	if _, err := run.Digest(); err == nil {
		t.Error("a closed run has a digest")
	}
	if _, err := weft.NewPlan(model, small); !errors.Is(err, weft.ESTATE) {
		t.Error("a plan of a closed model:", err)
	}
	if _, err := weft.Start(background, plan, nil, weft.RunConfig{}); !errors.Is(err, weft.ESTATE) {
		t.Error("a run of a closed plan:", err)
	}
	batch.Close()
	batch.Close()
	if batch[0].Float32() != nil {
		t.Error("a closed tensor has memory")
	}
}

func TestResumedRunHasTheSameBits(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "out")
	model, batch := sine(t)
	run := start(t, model, small, 1)
	steps(t, run, batch, 3)
	try(t, run.Save(background, directory, weft.SaveConfig{Options: map[string]string{"a": "1", "b": ""}}))
	steps(t, run, batch, 2)
	checkpoint, err := weft.OpenCheckpoint(directory)
	try(t, err)
	defer checkpoint.Close()
	if info := checkpoint.Info(); info.Step != 3 || info.Params != 4 || info.States != 8 || fmt.Sprint(info.Options) != "map[a:1 b:]" {
		t.Errorf("%+v", info)
	}
	again, _ := sine(t)
	resumed := start(t, again, weft.PlanConfig{Ranks: 1, MicroBatches: 4, MicroBatchSize: 16}, 0)
	try(t, resumed.Load(checkpoint))
	steps(t, resumed, batch, 2)
	if digest(t, resumed) != digest(t, run) {
		t.Error("the resumed run differs")
	}
	try(t, resumed.Write("out.bias", weft.Values, []float32{7}))
	try(t, resumed.LoadExcept(checkpoint, "*.bias"))
	if kept, err := resumed.Read("out.bias", weft.Values); err != nil || kept[0] != 7 {
		t.Error("a parameter that keeps its value:", kept, err)
	}
	if err := resumed.LoadExcept(checkpoint, "head"); err == nil || !strings.Contains(err.Error(), "pattern 'head' matches no parameter") {
		t.Error("a pattern that matches nothing:", err)
	}
	if err := run.Save(background, "/proc/no", weft.SaveConfig{}); err == nil || !strings.Contains(err.Error(), "/proc/no") {
		t.Error("a save into /proc:", err)
	}
	steps(t, run, batch, 1)
}

func TestACheckpointIsExportedWithTheFilesOfItsSource(t *testing.T) {
	directory := t.TempDir()
	model, _ := sine(t)
	run := start(t, model, small, 1)
	try(t, run.Save(background, filepath.Join(directory, "out"), weft.SaveConfig{}))
	try(t, os.Mkdir(filepath.Join(directory, "model"), 0o755))
	try(t, os.WriteFile(filepath.Join(directory, "model", "config.json"), []byte(`{"eos_token_id": 7}`), 0o644))
	try(t, weft.KeepSource(filepath.Join(directory, "out"), filepath.Join(directory, "model"), ""))
	checkpoint, err := weft.OpenCheckpoint(filepath.Join(directory, "out"))
	try(t, err)
	defer checkpoint.Close()
	if info := checkpoint.Info(); filepath.Base(info.Source) != "source" || fmt.Sprint(info.Ends) != "[7]" {
		t.Errorf("%+v", info)
	}
	file := filepath.Join(directory, "weights.safetensors")
	err = checkpoint.ExportAs(file, weft.ExportConfig{Adapters: file + "-none"})
	if err == nil || !strings.Contains(err.Error(), file+"-none") {
		t.Error("adapters that do not exist:", err)
	}
	for dtype, expected := range map[string]string{"": "F32", "bf16": "BF16"} {
		try(t, checkpoint.ExportAs(file, weft.ExportConfig{DType: dtype}))
		weights, err := weft.OpenCheckpoint(file)
		try(t, err)
		defer weights.Close()
		if _, _, found := weights.Tensor(0); found != expected {
			t.Error("the type of the file is", found)
		}
	}
}

// withMesh starts a run on a mesh, which waits for rank 1.
func withMesh(t *testing.T) (*weft.Mesh, *weft.Run) {
	t.Helper()
	model, _ := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	run, err := weft.StartNoWait(plan, mesh, weft.RunConfig{})
	try(t, err)
	return mesh, run
}

func TestCloseOfAMeshClosesItsRuns(t *testing.T) {
	mesh, run := withMesh(t)
	other, err := weft.Join(weft.MeshConfig{Endpoint: mesh.JoinEndpoint()})
	try(t, err)
	service, err := other.ServeNoWait(nil, nil, weft.RunConfig{})
	try(t, err)
	polled := make(chan error)
	go func() {
		var err error
		for err == nil {
			_, err = run.Poll(background)
		}
		polled <- err
	}()
	try(t, mesh.Close())
	if err := <-polled; !errors.Is(err, weft.ESTATE) {
		t.Error("a poll of a run whose mesh is closed:", err)
	}
	try(t, other.Close())
	for _, run := range []*weft.Run{run, service} {
		if _, err := run.Poll(background); !errors.Is(err, weft.ESTATE) {
			t.Error("a run whose mesh is closed:", err)
		}
		try(t, run.Close())
	}
	try(t, mesh.Close())
}

func TestUnreachableMeshesAreFreedWithTheirRuns(t *testing.T) {
	before := descriptors(t)
	for i := 0; i < 5; i++ {
		withMesh(t)
	}
	for descriptors(t) > before+5 { // until the deadline of the test
		runtime.GC()
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	try(t, err)
	return len(entries)
}

// Runs without Close are freed with their descriptors.
func TestUnreachableRunsAreFreed(t *testing.T) {
	before := descriptors(t)
	func() {
		for i := 0; i < 20; i++ {
			model, batch := sine(t)
			plan, err := weft.NewPlan(model, small)
			try(t, err)
			run, err := weft.Start(background, plan, nil, weft.RunConfig{Threads: 1})
			try(t, err)
			steps(t, run, batch, 1)
		}
	}()
	for descriptors(t) > before+5 { // until the deadline of the test
		runtime.GC()
	}
}
