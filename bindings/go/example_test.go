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
	// Output: weft: node 'matmul_1' (matmul): input 0 expects 3 or more dimensions (axis 0 is the batch), got f32[1,3]
}

// An op in Go: the cube of a number.
func ExampleModel_AddOp() {
	model := weft.NewModel()
	defer model.Close()
	model.AddOp(weft.Op{
		Name: "cube",
		Shape: func(inputs, params []weft.Desc) (output, stash weft.Desc, err error) {
			return inputs[0], weft.Desc{}, nil
		},
		Forward: func(call *weft.OpCall) error {
			y := call.Output.Float32()
			for i, x := range call.Inputs[0].Float32() {
				y[i] = x * x * x
			}
			return nil
		},
	})
	x := model.Input("x", weft.F32)
	model.Output(model.Add(weft.Node{Op: "cube", Inputs: []weft.Value{x}}))
	plan, err := weft.NewPlan(model, weft.PlanConfig{MicroBatches: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer plan.Close()
	run, err := weft.Start(context.Background(), plan, nil, weft.RunConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	numbers, err := weft.TensorOf([]float32{1, 2, 3, 4}, 4)
	if err != nil {
		log.Fatal(err)
	}
	defer numbers.Close()
	outputs, err := run.Forward(context.Background(), numbers)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outputs[0].Float32())
	// Output: [1 8 27 64]
}

// The order of actions of two ranks: F0 is the forward action of micro-batch 0, B0 its backward action.
func ExamplePlan_Timetable() {
	model, _, err := weft.NewPreset("mlp:layers=2,width=8", 0, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: 2, MicroBatches: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer plan.Close()
	fmt.Print(plan.Timetable())
	// Output:
	// 0F0 0F1 0B0 0F2 0B1 0B2
	// 1F0 1B0 1F1 1B1 1F2 1B2
}
