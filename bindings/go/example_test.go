package weft_test

import (
	"context"
	"fmt"
	"log"

	"weft"
)

// Fits a line through two points.
func Example() {
	model := weft.NewModel()
	defer model.Close()
	x := model.Input("x", weft.F32, 1)
	y := model.Input("y", weft.F32, 1)
	model.Binary("mse", model.Linear("line", x, 1), y)
	plan, err := weft.NewPlan(model, weft.PlanConfig{
		MicroBatches: 1, MicroBatchSize: 2, Optimizer: weft.Optimizer{Rule: weft.SGD, Rate: 0.1, Clip: weft.None}})
	if err != nil {
		log.Fatal(err)
	}
	defer plan.Close()
	run, err := weft.Start(context.Background(), plan, nil, weft.RunConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	batch, err := model.NewBatch(2)
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	copy(batch[0].Float32(), []float32{-1, 1})
	copy(batch[1].Float32(), []float32{1, 4})
	for step := 0; step < 100; step++ {
		if _, err := run.Step(context.Background(), weft.Train, batch...); err != nil {
			log.Fatal(err)
		}
	}
	weight, _ := run.Read("line.weight", weft.Values)
	bias, err := run.Read("line.bias", weft.Values)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y = %.2f x + %.2f\n", weight[0], bias[0])
	// Output: y = 1.50 x + 2.50
}

// The first failure of a model is its error.
func ExampleModel_Err() {
	model := weft.NewModel()
	defer model.Close()
	x := model.Input("x", weft.F32, 3)
	model.Binary("matmul", x, x)
	fmt.Println(model.Err())
	// Output: weft: node 'matmul_1' (matmul): input 0 expects rank 3 or more (axis 0 is the batch), got f32[1,3]
}
