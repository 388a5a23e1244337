// Package chain is the worked example of gpipe and mesh_2d: four layers (linear, ReLU) of width 16 and the mean squared error, with weft and
// by hand, in double precision, for a comparison.
package chain

import (
	"context"
	"fmt"
	"math"

	"weft"
)

// The sizes of the example.
const (
	Layers         = 4
	Width          = 16
	MicroBatchSize = 4
)

// Data is the parameters and the samples.
type Data struct {
	Weight, Bias  [Layers][]float32 // weight: [in, out]
	Input, Target []float32
	samples       int
}

// Draw draws the data of some samples.
func Draw(samples int) *Data {
	random := NewRandom(42)
	d := &Data{samples: samples, Input: make([]float32, samples*Width), Target: make([]float32, samples*Width)}
	for l := range d.Weight {
		d.Weight[l] = make([]float32, Width*Width)
		random.Fill(d.Weight[l])
	}
	for l := range d.Bias {
		d.Bias[l] = make([]float32, Width)
		random.Fill(d.Bias[l])
	}
	random.Fill(d.Input)
	random.Fill(d.Target)
	return d
}

// Model builds the model.
func Model() *weft.Model {
	model := weft.NewModel()
	x := model.InputWithGrad("x", weft.F32, Width)
	target := model.Input("target", weft.F32, Width)
	for l := 0; l < Layers; l++ {
		x = model.Unary("relu", model.Linear(fmt.Sprintf("layer%d", l), x, Width))
	}
	model.Binary("mse", x, target)
	return model
}

// Plan makes a plan. Each stage gets as many layers as the others, or one more.
func Plan(model *weft.Model, config weft.PlanConfig, stages int) (*weft.Plan, error) {
	for s := 1; s < stages; s++ {
		config.Cuts = append(config.Cuts, fmt.Sprintf("layer%d", s*Layers/stages))
	}
	config.MicroBatchSize = MicroBatchSize
	config.Optimizer = weft.Optimizer{Rule: weft.SGD, Rate: 1e-6, Clip: weft.None}
	return weft.NewPlan(model, config)
}

// Result is what weft computes.
type Result struct {
	Loss         float64
	Weight, Bias [Layers][]float32 // gradients
	Input        []float32         // gradient
	Digest       string            // after one step of SGD
}

// Compute runs the model on the data.
func Compute(ctx context.Context, model *weft.Model, plan *weft.Plan, mesh *weft.Mesh, d *Data) (*Result, error) {
	run, err := weft.Start(ctx, plan, mesh, weft.RunConfig{})
	if err != nil {
		return nil, err
	}
	defer run.Close()
	batch, err := model.NewBatch(d.samples)
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	copy(batch[0].Float32(), d.Input)
	copy(batch[1].Float32(), d.Target)
	r := &Result{}
	for l := 0; l < Layers && err == nil; l++ {
		if err = run.Write(fmt.Sprintf("layer%d.weight", l), weft.Values, d.Weight[l]); err == nil {
			err = run.Write(fmt.Sprintf("layer%d.bias", l), weft.Values, d.Bias[l])
		}
	}
	if err != nil {
		return nil, err
	}
	if r.Loss, err = run.Step(ctx, weft.NoUpdate, batch...); err != nil {
		return nil, err
	}
	for l := 0; l < Layers && err == nil; l++ {
		if r.Weight[l], err = run.Read(fmt.Sprintf("layer%d.weight", l), weft.Gradient); err == nil {
			r.Bias[l], err = run.Read(fmt.Sprintf("layer%d.bias", l), weft.Gradient)
		}
	}
	if err != nil {
		return nil, err
	}
	if r.Input, err = run.Read("x", weft.Gradient); err != nil {
		return nil, err
	}
	if _, err = run.Step(ctx, weft.Train, batch...); err != nil { // so that the digest depends on every gradient
		return nil, err
	}
	r.Digest, err = run.Digest()
	return r, err
}

// Exact is the same computation by hand.
type Exact struct {
	Loss         float64
	Weight, Bias [Layers][]float64
	Input        []float64
}

// ComputeExact computes it layer after layer.
func ComputeExact(d *Data) *Exact {
	n := d.samples * Width
	e := &Exact{}
	values := [Layers + 1][]float64{doubles(d.Input)} // after each layer
	for l := 0; l < Layers; l++ {
		values[l+1] = layer(values[l], d.Weight[l], d.Bias[l])
	}
	grad := make([]float64, n)
	for i, value := range values[Layers] {
		off := value - float64(d.Target[i])
		e.Loss += off * off / float64(n)
		grad[i] = 2 * off / float64(n)
	}
	for l := Layers - 1; l >= 0; l-- {
		e.Weight[l], e.Bias[l] = make([]float64, Width*Width), make([]float64, Width)
		below := make([]float64, n)
		for at, g := range grad {
			if values[l+1][at] <= 0 { // the gradient of ReLU is 0
				continue
			}
			row, o := at/Width*Width, at%Width
			e.Bias[l][o] += g
			for i := 0; i < Width; i++ {
				e.Weight[l][i*Width+o] += values[l][row+i] * g
				below[row+i] += float64(d.Weight[l][i*Width+o]) * g
			}
		}
		grad = below
	}
	e.Input = grad
	return e
}

func doubles(from []float32) []float64 {
	out := make([]float64, len(from))
	for i, x := range from {
		out[i] = float64(x)
	}
	return out
}

func layer(in []float64, weight, bias []float32) []float64 {
	out := make([]float64, len(in))
	for at := range out {
		row, o := at/Width*Width, at%Width
		sum := float64(bias[o])
		for i := 0; i < Width; i++ {
			sum += in[row+i] * float64(weight[i*Width+o])
		}
		out[at] = math.Max(sum, 0)
	}
	return out
}
