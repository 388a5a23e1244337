// Mesh_2d is a pipeline with replicas, checked number by number: the model of gpipe on a mesh of data x stage.
//
// The 4 micro-batches of a step are divided among the replicas; each replica is a separate pipeline. Their gradients are added in two groups,
// for any number of replicas, so the output after the first line is the same for one replica and for two, for any number of stages and any
// schedule. Every rank is a separate process, except with --in-process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"weft"
	"weft/examples/chain"
)

const microBatches = 4

var (
	replicas  = flag.Int("data", 2, "replicas, 1 or 2")
	stages    = flag.Int("stages", chain.Layers, "1 to 4")
	schedule  = flag.String("schedule", "1f1b", "gpipe or 1f1b")
	inProcess = flag.Bool("in-process", false, "run all ranks in this process")
)

func main() {
	flag.Parse()
	if err := compute(context.Background()); err != nil {
		log.Fatal("mesh_2d: ", err)
	}
}

func compute(ctx context.Context) error {
	model := chain.Model()
	defer model.Close()
	plan, err := chain.Plan(model, weft.PlanConfig{MicroBatches: microBatches, Schedule: *schedule, GradientGroups: 2,
		Axes: []weft.Axis{{Name: "data", Size: *replicas}, {Name: "stage", Size: *stages}}}, *stages)
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
	data := chain.Draw(microBatches * chain.MicroBatchSize)
	result, err := chain.Compute(ctx, model, plan, mesh, data)
	if err != nil {
		return err
	}
	fmt.Printf("data=%d x stage=%d, schedule %s, %d micro-batches of %d samples\n", *replicas, *stages, *schedule, microBatches,
		chain.MicroBatchSize)
	good := chain.Check("loss", result.Loss, 3828.785, 0.001)
	good = result.Compare(chain.ComputeExact(data)) && good
	fmt.Printf("parameters after one step of SGD: %s\n", result.Digest)
	if !good {
		return errors.New("the numbers differ")
	}
	return mesh.Close()
}
