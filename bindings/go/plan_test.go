package weft_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft"
)

func TestPlansDescribeThemselves(t *testing.T) {
	model, _ := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	defer plan.Close()
	if rows := strings.Split(strings.TrimSpace(plan.Timetable()), "\n"); len(rows) != 2 || !strings.HasPrefix(rows[0], "0F0") {
		t.Error(rows)
	}
	var sum int64
	for kind := weft.WeightMemory; kind <= weft.ScratchMemory; kind++ {
		sum += plan.Memory(0, kind)
	}
	if sum == 0 || sum != plan.Bytes(0) {
		t.Error("bytes:", sum, plan.Bytes(0))
	}
	if plan.Owned(0)+plan.Owned(1) != model.Parameters() || plan.First(5) != "" || plan.Bytes(-1) != 0 {
		t.Error("owned:", plan.Owned(0), plan.Owned(1), model.Parameters())
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	try(t, plan.Save(path))
	again, _ := sine(t)
	loaded, err := weft.LoadPlan(again, path)
	try(t, err)
	if loaded.Timetable() != plan.Timetable() || loaded.First(1) != plan.First(1) {
		t.Error("the loaded plan differs")
	}
}

// The settings of a plan make it again, whatever they are.
func TestSettingsMakeTheSamePlan(t *testing.T) {
	written := func(plan *weft.Plan) string {
		path := filepath.Join(t.TempDir(), "plan.json")
		try(t, plan.Save(path))
		text, err := os.ReadFile(path)
		try(t, err)
		return string(text)
	}
	for _, config := range []weft.PlanConfig{
		{},
		{Ranks: 2, MicroBatches: 6, MicroBatchSize: 5, ShortSize: 3, Schedule: "interleaved", Chunks: 2, Group: 2, Seed: 9, Recompute: "stage",
			Steps: weft.TrainSteps | weft.EvalSteps | weft.EvalOutputs, MemoryLimit: 1 << 30, Precision: "bf16", F32Nodes: "out",
			Optimizer: weft.Optimizer{Rule: weft.Adam, Rate: 0.5, Beta1: weft.None, Beta2: 0.6, Eps: 0.1, WeightDecay: 0.2, Clip: weft.None,
				Curve: weft.Cosine, DecayAll: true, Warmup: 3, Total: 10, MinRate: 0.001},
			Groups: []weft.ParameterGroup{{Pattern: "*", RateFactor: 0.5, WeightDecayFactor: weft.None}, {Pattern: "out.*", Frozen: true}}},
		{Axes: []weft.Axis{{"data", 2}, {"stage", 2}}, MicroBatches: 4, Shard: "none", GradientGroups: 4, WarmUp: 2, Cuts: []string{"out"},
			Optimizer: weft.Optimizer{Rule: weft.SGD, Momentum: 0.9, Curve: weft.LinearRate, Total: 8}},
		{Ranks: 2, MicroBatches: 1, Schedule: "pipedream", Segment: 16, StageReplicas: "1,1", VerticalSync: true, Optimizer: weft.Optimizer{Clip: weft.None}},
		{Ranks: 2, MicroBatches: 2, Schedule: "auto"},
	} {
		model, _ := sine(t)
		plan, err := weft.NewPlan(model, config)
		try(t, err)
		path := filepath.Join(t.TempDir(), "plan.json")
		try(t, plan.Save(path))
		loaded, err := weft.LoadPlan(model, path)
		try(t, err)
		again, err := weft.NewPlan(model, loaded.Settings())
		try(t, err)
		if written(again) != written(plan) {
			t.Errorf("%s\nmade again from %+v\nis %s", written(plan), loaded.Settings(), written(again))
		}
		try(t, loaded.Close())
		if settings := loaded.Settings(); settings.Ranks != 0 {
			t.Error("a closed plan has the settings", settings)
		}
	}
}

func TestAFrozenParameterDoesNotChange(t *testing.T) {
	model, batch := sine(t)
	config := small
	config.Groups = []weft.ParameterGroup{{Pattern: "*", RateFactor: 0.5}, {Pattern: "hidden.*", Frozen: true}, {Pattern: "out.bias", RateFactor: weft.None}}
	run := start(t, model, config, 1)
	values := func(name string) string {
		values, err := run.Read(name, weft.Values)
		try(t, err)
		return fmt.Sprint(values)
	}
	hidden, weight, bias := values("hidden.weight"), values("out.weight"), values("out.bias")
	steps(t, run, batch, 1)
	if values("hidden.weight") != hidden || values("out.bias") != bias || values("out.weight") == weight {
		t.Error("the parameters after a step:", values("hidden.weight"), values("out.weight"), values("out.bias"))
	}
	plan, err := weft.NewPlan(model, config)
	try(t, err)
	if trained := plan.Info().Trained; trained != 32+1 {
		t.Error("trained elements:", trained)
	}
}

func profileOfRun(t *testing.T, model *weft.Model, profile *weft.Profile) *weft.Profile {
	_, batch := sine(t)
	run := start(t, model, small, 1)
	try(t, run.Trace(1000))
	steps(t, run, batch, 6)
	measured, err := run.Profile(profile)
	try(t, err)
	if len(measured.Nodes()) != len(profile.Nodes()) {
		t.Error(measured.Nodes())
	}
	return measured
}

func TestPredictions(t *testing.T) {
	model, _ := sine(t)
	profile, err := weft.NewProfile(model, weft.ProfileConfig{MicroBatchSize: 16, Repeats: 1})
	try(t, err)
	defer profile.Close()
	if nodes := profile.Nodes(); len(nodes) != 4 || nodes[0].Name != "hidden" || nodes[0].Forward <= 0 {
		t.Error(nodes)
	}
	bf16, err := weft.NewProfile(model, weft.ProfileConfig{MicroBatchSize: 16, Repeats: 1, Precision: "bf16", F32Nodes: "out"})
	try(t, err)
	defer bf16.Close()
	config := small
	config.Profile = bf16
	if _, err := weft.NewPlan(model, config); err == nil || !strings.Contains(err.Error(), "made with precision bf16 and f32_nodes 'out'") {
		t.Error(err)
	}
	config.Profile = profileOfRun(t, model, profile)
	plan, err := weft.NewPlan(model, config)
	try(t, err)
	prediction, err := plan.Simulate(true)
	try(t, err)
	defer prediction.Close()
	if len(prediction.Ranks) != 2 || len(prediction.Links) == 0 || prediction.Step < prediction.Commit || prediction.Commit <= 0 {
		t.Errorf("%+v", prediction)
	}
	path := filepath.Join(t.TempDir(), "trace.json")
	try(t, prediction.SaveTrace(path))
	if content, err := os.ReadFile(path); err != nil || !strings.Contains(string(content), "0F0") {
		t.Error("the trace has no action 0F0:", err)
	}
	config.Schedule = "auto"
	candidates, err := weft.Compare(model, config)
	try(t, err)
	best := 0
	for _, candidate := range candidates {
		if candidate.Best {
			best++
		}
	}
	if best != 1 || len(weft.Schedules()) < len(candidates)/2 {
		t.Error("the best candidates:", best, candidates)
	}
}

func TestSpeedsAreOnePerRank(t *testing.T) {
	model, _ := sine(t)
	for _, config := range []weft.PlanConfig{{Ranks: 2}, {Axes: []weft.Axis{{Name: "data", Size: 2}}}, {Ranks: 200000000}} {
		config.Speeds = []float64{1}
		if _, err := weft.NewPlan(model, config); !errors.Is(err, weft.EINVAL) {
			t.Error(err)
		}
	}
}

func TestLinearNodesGetAdapters(t *testing.T) {
	base, _, err := weft.NewPreset("gpt-nano:blocks=2,width=32,heads=2", 16, 1)
	try(t, err)
	defer base.Close()
	model, err := base.Adapt(weft.AdapterConfig{Rank: 2, Alpha: 4, Targets: []string{"c_fc", "1.attn.c_attn"}})
	try(t, err)
	defer model.Close()
	if added := model.Parameters() - base.Parameters(); added != 2*(2*(32+128))+2*(32+96) {
		t.Error("the adapters have", added, "elements")
	}
	if _, err := base.Adapt(weft.AdapterConfig{Targets: []string{"q_proj"}}); !errors.Is(err, weft.ENOENT) {
		t.Error(err)
	}
}

func TestAPackedSampleHasPositions(t *testing.T) {
	model, info, err := weft.NewPacked("gpt-nano:blocks=1,width=32,heads=2", 16, 1)
	try(t, err)
	defer model.Close()
	inputs := model.Items(weft.InputItem)
	if info.SeqLen != 16 || len(inputs) != 3 || inputs[2].Name != "positions" {
		t.Error(info, inputs)
	}
	if _, _, err := weft.NewPacked("mlp", 0, 1); !errors.Is(err, weft.EINVAL) {
		t.Error(err)
	}
}

func TestPresetsAndTheirData(t *testing.T) {
	model, info, err := weft.NewPreset("gpt-nano:blocks=1,width=32,heads=2", 16, 1)
	try(t, err)
	defer model.Close()
	data, err := weft.OpenData(info.Data())
	try(t, err)
	defer data.Close()
	batch, err := model.NewBatch(8)
	try(t, err)
	defer batch.Close()
	try(t, data.Sample(1, 0, batch[0], batch[1]))
	tokens, targets := batch[0].Int32(), batch[1].Int32()
	if !info.Tokens || len(tokens) != 8*16 || tokens[1] != targets[0] {
		t.Error("the target of a token is not the next one:", tokens[:16], targets[:16])
	}
	run := start(t, model, weft.PlanConfig{MicroBatches: 2}, 1)
	var losses []float64
	for step := 0; step < 10; step++ {
		loss, err := run.Step(background, weft.Train, batch...)
		try(t, err)
		losses = append(losses, loss)
	}
	if losses[9] >= losses[0] {
		t.Error("the loss does not fall:", losses)
	}
}

func TestAContextEndsTheWaitForRanks(t *testing.T) {
	model, _ := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	defer mesh.Close()
	if mesh.JoinEndpoint() != mesh.Endpoint() || !strings.HasPrefix(mesh.Endpoint(), "ipc://") {
		t.Error("endpoints:", mesh.JoinEndpoint(), mesh.Endpoint())
	}
	ctx, cancel := context.WithCancel(background)
	ended := make(chan error)
	go func() {
		_, err := weft.Start(ctx, plan, mesh, weft.RunConfig{})
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, weft.ECANCELED) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Two ranks in one process, over sockets.
func TestServe(t *testing.T) {
	model, batch := sine(t)
	expected := start(t, model, small, 1)
	steps(t, expected, batch, 3)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	secret, err := weft.NewKey()
	try(t, err)
	public, err := weft.PublicKey(secret)
	try(t, err)
	mesh, err := weft.Listen(weft.MeshConfig{Endpoint: "tcp://127.0.0.1:0", Key: secret})
	try(t, err)
	defer mesh.Close()
	if !strings.Contains(mesh.JoinEndpoint(), public) {
		t.Error("the join endpoint", mesh.JoinEndpoint(), "does not contain the public key of the mesh")
	}
	served := make(chan error)
	go func() {
		other, err := weft.Join(weft.MeshConfig{Endpoint: mesh.JoinEndpoint()})
		if err == nil {
			defer other.Close()
			err = other.Serve(background, nil, nil, weft.RunConfig{})
		}
		served <- err
	}()
	run, err := weft.Start(background, plan, mesh, weft.RunConfig{})
	try(t, err)
	steps(t, run, batch, 3)
	if digest(t, run) != digest(t, expected) {
		t.Error("the digest over sockets differs")
	}
	run.Close()
	if err := <-served; err != nil {
		t.Error("Serve after the end of the run:", err)
	}
}

// The rank that is lost is named by the error of the step, whose failure has the facts.
func TestALostRankIsAnError(t *testing.T) {
	model, batch := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	defer mesh.Close()
	other, err := weft.Join(weft.MeshConfig{Endpoint: mesh.JoinEndpoint()})
	try(t, err)
	defer other.Close()
	ctx, cancel := context.WithCancel(background)
	served := make(chan error)
	go func() { served <- other.Serve(ctx, plan, nil, weft.RunConfig{}) }()
	run, err := weft.Start(background, plan, mesh, weft.RunConfig{})
	try(t, err)
	defer run.Close()
	steps(t, run, batch, 1)
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error("the rank that left:", err)
	}
	for err == nil { // until rank 0 has noticed it
		_, err = run.Digest()
	}
	_, err = run.Step(background, weft.Train, batch...)
	var failure *weft.Error
	if !errors.As(err, &failure) || failure.Failure == nil || failure.Failure.Rank != 1 {
		t.Fatalf("%v: %+v", err, failure)
	}
	if text := failure.Failure.String(); text != failure.Text || !strings.Contains(text, "rank 1") {
		t.Errorf("the failure is %q, the error %q", text, failure.Text)
	}
	if event := expect(t, run, weft.FailedEvent); !errors.Is(event.Err, failure.Status) {
		t.Errorf("%+v", event)
	}
	expect(t, run, 0)
}
