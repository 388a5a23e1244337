package weft_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft"
)

// A configuration with a closed object is not one without that object.
func TestAClosedObjectIsRefused(t *testing.T) {
	model, _ := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	defer plan.Close()
	run := start(t, model, small, 1)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, weft.ESTATE) || !strings.Contains(err.Error(), "the "+what+" is closed") {
			t.Errorf("a closed %s: %v", what, err)
		}
	}

	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	try(t, mesh.Close())
	_, err = weft.Start(background, plan, mesh, weft.RunConfig{})
	refused("mesh", err)
	_, err = mesh.ServeNoWait(nil, nil, weft.RunConfig{})
	refused("mesh", err)

	other, err := weft.Join(weft.MeshConfig{Endpoint: "ipc:///no/rank/0"})
	try(t, err)
	defer other.Close()
	closedPlan, err := weft.NewPlan(model, small)
	try(t, err)
	try(t, closedPlan.Close())
	_, err = other.ServeNoWait(closedPlan, nil, weft.RunConfig{})
	refused("plan", err)
	closedModel, _ := sine(t)
	try(t, closedModel.Close())
	_, err = other.ServeNoWait(nil, closedModel, weft.RunConfig{})
	refused("model", err)

	config := small
	config.Profile, err = weft.NewProfile(model, weft.ProfileConfig{MicroBatchSize: 16, Repeats: 1})
	try(t, err)
	try(t, config.Profile.Close())
	_, err = weft.NewPlan(model, config)
	refused("profile", err)
	_, err = run.Profile(config.Profile)
	refused("profile", err)
	config = small
	config.Cluster, err = weft.LoadCluster("../../examples/clusters/two-sites.json")
	try(t, err)
	try(t, config.Cluster.Close())
	_, err = weft.Compare(model, config)
	refused("cluster", err)

	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	try(t, tokenizer.Close())
	path := filepath.Join(t.TempDir(), "bytes")
	try(t, os.WriteFile(path, make([]byte, 100), 0o600))
	_, err = weft.OpenData(weft.DataConfig{Path: path, Vocabulary: 256, SeqLen: 8, Tokenizer: tokenizer})
	refused("tokenizer", err)
	data, err := weft.OpenData(weft.DataConfig{Path: path, Vocabulary: 256, SeqLen: 8})
	try(t, err)
	defer data.Close()
	tensor, err := weft.NewTensor(weft.I32, 1, 8)
	try(t, err)
	try(t, data.Sample(0, 0, tensor, tensor))
	try(t, tensor.Close())
	refused("tensor", data.Sample(0, 0, tensor, tensor))
	refused("tensor", run.Submit(weft.Forward, 0, tensor, nil))

	if _, ok := tokenizer.ID("<s>"); ok {
		t.Error("a closed tokenizer has tokens")
	}
}

func TestATextWithANULByteIsRefused(t *testing.T) {
	model, _ := sine(t)
	run := start(t, model, small, 1)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	defer plan.Close()
	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	defer tokenizer.Close()
	cut := filepath.Join(t.TempDir(), "cut")
	text := cut + "\x00rest"
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, weft.EINVAL) || !strings.Contains(err.Error(), `\x00rest" contains a NUL byte`) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(cut); err == nil {
			t.Errorf("%s has used the text before the NUL", what)
		}
	}
	refused("Plan.Save", plan.Save(text))
	refused("Run.Export", run.Export(text))
	refused("Run.Save", run.Save(background, text, weft.SaveConfig{}))
	_, err = run.Read("out.bias", weft.Values)
	try(t, err)
	_, err = weft.OpenCheckpoint(text)
	refused("OpenCheckpoint", err)
	_, err = weft.NewPlan(model, weft.PlanConfig{Schedule: text})
	refused("NewPlan", err)
	_, err = weft.Start(background, plan, nil, weft.RunConfig{WeightsDir: text})
	refused("Start", err)
	_, err = tokenizer.Chat([]weft.ChatMessage{{Role: "user", Content: text}}, weft.ChatConfig{})
	refused("Chat", err)
	if model.Input(text, weft.F32, 1) != (weft.Value{}) {
		t.Error("a model has an input with a NUL in its name")
	}
	refused("Input", model.Err())

	if ids, err := tokenizer.Encode("a\x00b", 0); err != nil || len(ids) < 3 {
		t.Error("a text with its size:", ids, err)
	}
	if _, ok := tokenizer.ID("<s>\x00"); ok {
		t.Error("a token with a NUL byte was found")
	}
	const secret = "not to be shown"
	if _, err := weft.PublicKey(secret + "\x00"); !errors.Is(err, weft.EINVAL) || strings.Contains(err.Error(), secret) {
		t.Error("a secret key:", err)
	}
}

func TestAnEmptyNameGetsTheErrorOfTheLibrary(t *testing.T) {
	refused := func(expected string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("expected %q, got: %v", expected, err)
		}
	}
	for expected, add := range map[string]func(model *weft.Model, x weft.Value){
		"input name must have 1 to 200 bytes, has 0":     func(model *weft.Model, x weft.Value) { model.Input("", weft.F32, 1) },
		"parameter name must have 1 to 200 bytes, has 0": func(model *weft.Model, x weft.Value) { model.Param("", weft.Constant(2), 1) },
		"node name must have 1 to 200 bytes, has 0":      func(model *weft.Model, x weft.Value) { model.Linear("", x, 1) },
		"op name must have 1 to 200 bytes, has 0":        func(model *weft.Model, x weft.Value) { model.AddOp(weft.Op{}) },
		"axis name must have 1 to 200 bytes, has 0":      func(model *weft.Model, x weft.Value) { model.Axis("", 2) },
		"op '' is not known":                             func(model *weft.Model, x weft.Value) { model.Unary("", x) },
		"axis '' is not known":                           func(model *weft.Model, x weft.Value) { model.CutInput(x, 1, "", 0) },
	} {
		model := weft.NewModel()
		defer model.Close()
		add(model, model.Input("x", weft.F32, 4))
		refused(expected, model.Err())
	}
	model, _ := sine(t)
	_, err := weft.NewPlan(model, weft.PlanConfig{Ranks: 2, Cuts: []string{""}})
	refused("cut '' is not the name of a node", err)
	_, err = weft.NewPlan(model, weft.PlanConfig{Axes: []weft.Axis{{"", 2}}})
	refused("axis '' is unknown", err)
	_, err = weft.LoadPlan(model, "")
	refused("'': cannot open", err)
	_, _, err = weft.NewPreset("", 0, 1)
	refused("model '' is not known", err)
	_, err = model.Adapt(weft.AdapterConfig{Targets: []string{""}})
	refused("target '' of the adapters", err)
}

func TestANumberThatDoesNotFitIsRefused(t *testing.T) {
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, weft.EINVAL) || !strings.Contains(err.Error(), what+" is ") || !strings.Contains(err.Error(), ", expected ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	const big = 1 << 32
	for what, node := range map[string]weft.Node{
		"axis":         {Op: "mean", Dims: []int{}, Axis: big + 1},
		"heads":        {Op: "attention", Heads: big + 1},
		"a coordinate": {Op: "ppermute", AxisName: "a", Coordinates: []int{big}},
	} {
		model, _ := sine(t)
		model.Axis("a", 1)
		node.Inputs = []weft.Value{model.Input("z", weft.F32, 3)}
		model.Add(node)
		refused(what, model.Err())
	}
	model, _ := sine(t)
	model.Attention(model.Input("z", weft.F32, 3, 6), big+1, 0)
	refused("heads", model.Err())
	_, err := weft.Join(weft.MeshConfig{Endpoint: "ipc:///no/rank/0", Rank: big + 1})
	refused("rank", err)

	model, _ = sine(t)
	run := start(t, model, small, 1)
	refused("jobs", run.Trace(-1))
	_, err = run.Resident(big)
	refused("rank", err)
	_, _, err = weft.NewPreset("mlp", 0, -1)
	refused("stages", err)
	model.AddOp(weft.Op{Name: "empty", Version: -2})
	refused("version", model.Err())
	failure := weft.Failure{Cause: weft.CauseSilent, Rank: big}
	if text := failure.String(); !strings.Contains(text, "rank is 4294967296") {
		t.Error(text)
	}
}
