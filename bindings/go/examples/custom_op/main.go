// Custom_op trains an op in Go, with parameters and a stash, in a pipeline over three processes.
//
// low_rank adds a correction to x [n, width]: y = x + h B with h = x A, A [width, rank] and B [rank, width]. h is its stash. With --in-process
// the ranks are in one process; the output is the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"weft"
)

const in, width, rank, samples = 4, 16, 2, 32

var lowRank = weft.Op{
	Name:                "low_rank",
	Shape:               shape,
	Forward:             forward,
	Backward:            backward,
	BackwardParams:      backwardParams,
	BackwardReads:       weft.ReadsParams, // less memory than with the default, which is everything
	BackwardParamsReads: weft.ReadsInputs | weft.ReadsParams | weft.ReadsStash,
}

func shape(inputs, params []weft.Desc) (output, stash weft.Desc, err error) {
	x := inputs[0]
	if len(params) != 2 || params[0].Dims[0] != x.Dims[1] || params[1].Dims[0] != params[0].Dims[1] || params[1].Dims[1] != x.Dims[1] {
		return output, stash, errors.New("expected x [n, width], A [width, rank], B [rank, width]")
	}
	return x, weft.Desc{DType: weft.F32, Dims: []int{x.Dims[0], params[0].Dims[1]}}, nil
}

func forward(call *weft.OpCall) error {
	x, a, b, y, h := call.Inputs[0].Float32(), call.Params[0].Float32(), call.Params[1].Float32(), call.Output.Float32(), call.Stash.Float32()
	width, rank := call.Output.Desc().Dims[1], call.Stash.Desc().Dims[1]
	for ; len(x) > 0; x, y, h = x[width:], y[width:], h[rank:] {
		for k := 0; k < rank; k++ {
			h[k] = 0
			for i := 0; i < width; i++ {
				h[k] += float32(x[i] * a[i*rank+k])
			}
		}
		for i := 0; i < width; i++ {
			y[i] = x[i]
			for k := 0; k < rank; k++ {
				y[i] += float32(h[k] * b[k*width+i])
			}
		}
	}
	return nil
}

// gradientOfH returns the gradient of h[k] for one sample.
func gradientOfH(dy, b []float32, width, k int) (sum float32) {
	for i := 0; i < width; i++ {
		sum += float32(dy[i] * b[k*width+i])
	}
	return sum
}

func backward(call *weft.OpCall) error {
	a, b, dy := call.Params[0].Float32(), call.Params[1].Float32(), call.GradOutput.Float32()
	dx := call.GradInputs[0].Float32()
	width, rank := call.Params[0].Desc().Dims[0], call.Params[0].Desc().Dims[1]
	for ; len(dy) > 0; dx, dy = dx[width:], dy[width:] {
		copy(dx[:width], dy)
		for k := 0; k < rank; k++ {
			dh := gradientOfH(dy, b, width, k)
			for i := 0; i < width; i++ {
				dx[i] += float32(dh * a[i*rank+k])
			}
		}
	}
	return nil
}

func backwardParams(call *weft.OpCall) error {
	x, h, b, dy := call.Inputs[0].Float32(), call.Stash.Float32(), call.Params[1].Float32(), call.GradOutput.Float32()
	da, db := call.GradParams[0].Float32(), call.GradParams[1].Float32() // zeros, or empty if not asked for
	width, rank := call.Output.Desc().Dims[1], call.Stash.Desc().Dims[1]
	for ; len(x) > 0; x, h, dy = x[width:], h[rank:], dy[width:] {
		for k := 0; k < rank; k++ {
			dh := gradientOfH(dy, b, width, k)
			for i := 0; i < width; i++ {
				if da != nil {
					da[i*rank+k] += float32(x[i] * dh)
				}
				if db != nil {
					db[k*width+i] += float32(h[k] * dy[i])
				}
			}
		}
	}
	return nil
}

func addLowRank(model *weft.Model, name string, x weft.Value) weft.Value {
	a := model.Param(name+".a", weft.Normal(0.25), width, rank)
	b := model.Param(name+".b", weft.Normal(0.25), rank, width)
	return model.Add(weft.Node{Name: name, Op: "low_rank", Inputs: []weft.Value{x}, Params: []weft.Param{a, b}})
}

func build() *weft.Model {
	model := weft.NewModel()
	model.AddOp(lowRank)
	x, y := model.Input("x", weft.F32, in), model.Input("y", weft.F32, 1)
	x = addLowRank(model, "first", model.Linear("in", x, width))
	x = addLowRank(model, "second", model.Unary("tanh", x))
	model.Binary("mse", model.Linear("out", x, 1), y)
	return model
}

var inProcess = flag.Bool("in-process", false, "run all ranks in this process")

func main() {
	flag.Parse()
	if err := train(context.Background()); err != nil {
		log.Fatal("custom_op: ", err)
	}
}

func train(ctx context.Context) error {
	model := build()
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: 3, MicroBatches: 4, MicroBatchSize: samples / 4,
		Optimizer: weft.Optimizer{Rate: 0.02}})
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
	batch, err := model.NewBatch(samples)
	if err != nil {
		return err
	}
	defer batch.Close()
	x, y := batch[0].Float32(), batch[1].Float32()
	for i := range x {
		x[i] = float32(i*37%101)/50 - 1
	}
	for s := range y {
		y[s] = x[s*in] * x[s*in+1]
	}
	for step := 0; step <= 300; step++ {
		loss, err := run.Step(ctx, weft.Train, batch...)
		if err != nil {
			return err
		}
		if step%100 == 0 {
			fmt.Printf("step %3d  loss %.6f\n", step, loss)
		}
	}
	run.Close()
	return mesh.Close()
}
