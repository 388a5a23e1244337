// Gpipe is the worked example of pipeline parallelism, checked number by number.
//
// Four layers of width 16 are cut into 1 to 4 stages; 8 micro-batches of 4 samples run through them. The program also computes the same loss
// and gradients itself, in double, and fails if weft's differ by more than rounding. The output after the first line is the same for any number
// of stages and any schedule. Every stage is a separate process, except with --in-process.
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

const microBatches = 8

var (
	stages    = flag.Int("stages", chain.Layers, "1 to 4")
	schedule  = flag.String("schedule", "gpipe", "gpipe or 1f1b")
	inProcess = flag.Bool("in-process", false, "run all stages in this process")
)

func main() {
	flag.Parse()
	if err := compute(context.Background()); err != nil {
		log.Fatal("gpipe: ", err)
	}
}

func compute(ctx context.Context) error {
	model := chain.Model()
	defer model.Close()
	plan, err := chain.Plan(model, weft.PlanConfig{Ranks: *stages, MicroBatches: microBatches, Schedule: *schedule}, *stages)
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
	plural := "s"
	if *stages == 1 {
		plural = ""
	}
	fmt.Printf("%d stage%s, schedule %s, %d micro-batches of %d samples\n", *stages, plural, *schedule, microBatches, chain.MicroBatchSize)
	low, high := result.WeightRange()
	good := chain.Check("loss", result.Loss, 5540.2947, 0.001)
	good = chain.Check("smallest weight gradient", low, -294.8231, 0.0003) && good
	good = chain.Check("largest weight gradient", high, 1527.5932, 0.0003) && good
	good = result.Compare(chain.ComputeExact(data)) && good
	fmt.Printf("parameters after one step of SGD: %s\n", result.Digest)
	if !good {
		return errors.New("the numbers differ")
	}
	return mesh.Close()
}
