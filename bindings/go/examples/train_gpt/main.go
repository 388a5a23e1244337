// Train_gpt trains a small GPT on a file in two processes, saves it, and generates text from the checkpoint.
//
//	train_gpt FILE DIRECTORY [--in-process]
//
// Each byte of FILE is a token. DIRECTORY gets the checkpoint and may not contain a newer one.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"weft"
)

const (
	steps                        = 40
	microBatches, microBatchSize = 4, 4
	window, generated            = 64, 60
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: train_gpt FILE DIRECTORY [--in-process]")
		os.Exit(2)
	}
	inProcess := len(os.Args) > 3 && os.Args[3] == "--in-process"
	if err := run(context.Background(), os.Args[1], os.Args[2], inProcess); err != nil {
		log.Fatal("train_gpt: ", err)
	}
}

func run(ctx context.Context, path, directory string, inProcess bool) error {
	model, info, err := weft.NewPreset("gpt-nano", window, 2)
	if err != nil {
		return err
	}
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: 2, MicroBatches: microBatches, MicroBatchSize: microBatchSize,
		Steps: weft.TrainSteps})
	if err != nil {
		return err
	}
	defer plan.Close()
	var mesh *weft.Mesh
	if !inProcess {
		if mesh, err = weft.Spawn(ctx, plan, weft.MeshConfig{}, weft.RunConfig{}); err != nil {
			return err
		}
	}
	if err := train(ctx, model, plan, mesh, info, path, directory); err != nil {
		return err
	}
	if err := generate(ctx, directory); err != nil {
		return err
	}
	return mesh.Close()
}

func train(ctx context.Context, model *weft.Model, plan *weft.Plan, mesh *weft.Mesh, info weft.PresetInfo, path, directory string) error {
	config := info.Data()
	config.Path = path
	data, err := weft.OpenData(config)
	if err != nil {
		return err
	}
	defer data.Close()
	batch, err := model.NewBatch(microBatches * microBatchSize)
	if err != nil {
		return err
	}
	defer batch.Close()
	run, err := weft.Start(ctx, plan, mesh, weft.RunConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	for step := uint64(0); step < steps; step++ {
		if err := data.Sample(1, step, batch[0], batch[1]); err != nil {
			return err
		}
		loss, err := run.Step(ctx, weft.Train, batch...)
		if err != nil {
			return err
		}
		if step%10 == 9 {
			fmt.Printf("step %d  loss %.4f\n", step+1, loss)
		}
	}
	return run.Save(ctx, directory, weft.SaveConfig{Model: info.Text})
}

func generate(ctx context.Context, directory string) error {
	checkpoint, err := weft.OpenCheckpoint(directory)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	model, info, err := weft.NewPreset(checkpoint.Info().Model, window, 1)
	if err != nil {
		return err
	}
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{MicroBatches: 1, MicroBatchSize: 1, Steps: weft.ForwardSteps})
	if err != nil {
		return err
	}
	defer plan.Close()
	run, err := weft.Start(ctx, plan, nil, weft.RunConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	if err := run.LoadWeights(checkpoint); err != nil {
		return err
	}
	batch, err := model.NewBatch(1)
	if err != nil {
		return err
	}
	defer batch.Close()
	tokens := batch[0].Int32()
	text := []byte{'T'}
	for len(text) <= generated {
		tokens[len(text)-1] = int32(text[len(text)-1])
		outputs, err := run.Forward(ctx, batch[0], nil) // outputs do not need targets
		if err != nil {
			return err
		}
		text = append(text, mostLikely(outputs[0].Float32()[(len(text)-1)*info.Vocabulary:][:info.Vocabulary]))
	}
	fmt.Printf("%s\n", text)
	return nil
}

func mostLikely(logits []float32) byte {
	best := 0
	for token, logit := range logits {
		if logit > logits[best] {
			best = token
		}
	}
	return byte(best)
}
