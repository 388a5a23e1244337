// Inference makes forward passes through a pipeline, checked against plain loops.
//
// Four layers (linear without bias, ReLU) of width 16 are in as many stages. The batch has 8 micro-batches of 4 samples. Every stage is a
// separate process, except with --in-process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"

	"weft"
	"weft/examples/chain"
)

const (
	layers, width                = 4, 16
	microBatches, microBatchSize = 8, 4
	samples                      = microBatches * microBatchSize
)

var inProcess = flag.Bool("in-process", false, "run all stages in this process")

func main() {
	flag.Parse()
	if err := infer(context.Background()); err != nil {
		log.Fatal("inference: ", err)
	}
}

func build() *weft.Model {
	model := weft.NewModel()
	x := model.Input("x", weft.F32, width)
	for l := 0; l < layers; l++ {
		weight := model.Param(fmt.Sprintf("weight%d", l), weft.Init{}, width, width)
		x = model.Unary("relu", model.Add(weft.Node{Op: "linear", Inputs: []weft.Value{x}, Params: []weft.Param{weight}}))
	}
	model.Output(x)
	return model
}

func infer(ctx context.Context) error {
	model := build()
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: layers, MicroBatches: microBatches, MicroBatchSize: microBatchSize})
	if err != nil {
		return err
	}
	defer plan.Close()
	var mesh *weft.Mesh
	if !*inProcess {
		if mesh, err = weft.Spawn(ctx, plan, weft.MeshConfig{}, weft.RunConfig{}); err != nil {
			return err
		}
	}
	run, err := weft.Start(ctx, plan, mesh, weft.RunConfig{})
	if err != nil {
		return err
	}
	defer run.Close()

	random := chain.NewRandom(42)
	var weights [layers][]float32
	for l := range weights {
		weights[l] = make([]float32, width*width)
		random.Fill(weights[l])
		if err := run.Write(fmt.Sprintf("weight%d", l), weft.Values, weights[l]); err != nil {
			return err
		}
	}
	batch, err := model.NewBatch(samples)
	if err != nil {
		return err
	}
	defer batch.Close()
	random.Fill(batch[0].Float32())
	outputs, err := run.Forward(ctx, batch...)
	if err != nil {
		return err
	}
	if err := compare(outputs[0].Float32(), plainly(weights, batch[0].Float32())); err != nil {
		return err
	}
	run.Close()
	return mesh.Close()
}

// plainly computes in float32, as weft does, but the order of the sums differs.
func plainly(weights [layers][]float32, in []float32) []float32 {
	for _, weight := range weights {
		out := make([]float32, len(in))
		for at := range out {
			row, o := at/width*width, at%width
			for i := 0; i < width; i++ {
				out[at] += in[row+i] * weight[i*width+o]
			}
			if !(out[at] > 0) {
				out[at] = 0
			}
		}
		in = out
	}
	return in
}

func compare(found, expected []float32) error {
	low, high, off := math.Inf(1), math.Inf(-1), 0.0
	for i := range found {
		low, high = math.Min(low, float64(found[i])), math.Max(high, float64(found[i]))
		here := math.Abs(float64(found[i]) - float64(expected[i]))
		if here > off || math.IsNaN(here) {
			off = here
		}
	}
	good := low == 0 && math.Abs(high-417.7554) <= 1e-4 && off <= 1e-4
	word := "ok"
	if !good {
		word = "WRONG"
	}
	fmt.Printf("outputs from %.4f to %.4f, expected 0 to 417.7554\n", low, high)
	fmt.Printf("largest difference to plain loops %.3e, expected at most 1e-4\n%s\n", off, word)
	if !good {
		return errors.New("the outputs differ")
	}
	return nil
}
