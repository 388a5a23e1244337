// Fine_tune trains adapters of low rank (LoRA) for a model of Hugging Face's Transformers in two processes, and generates text with them.
//
//	fine_tune MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]
//
// MODEL is a directory that Transformers wrote, TOKENIZER a file tokenizer.json. SAMPLES is a file NAME.jsonl with lines
// {"prompt": "...", "completion": "..."}. DIRECTORY gets the checkpoint, and DIRECTORY-adapters/ the adapters, which PEFT loads.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"weft"
)

const (
	steps                        = 100
	microBatches, microBatchSize = 4, 4
	generated                    = 3
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: fine_tune MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]")
		os.Exit(2)
	}
	inProcess := len(os.Args) > 5 && os.Args[5] == "--in-process"
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4], inProcess); err != nil {
		log.Fatal("fine_tune: ", err)
	}
}

func run(ctx context.Context, base, tokens, samples, directory string, inProcess bool) error {
	checkpoint, err := weft.OpenCheckpoint(base)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	model, info, err := weft.NewPreset(checkpoint.Info().Model+",lora_rank=8,lora_alpha=16,lora_targets=all-linear", 0, 2)
	if err != nil {
		return err
	}
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: 2, MicroBatches: microBatches, MicroBatchSize: microBatchSize,
		Steps: weft.TrainSteps, Optimizer: weft.Optimizer{Rate: 0.02},
		Groups: []weft.ParameterGroup{{Pattern: "*", Frozen: true}, {Pattern: "*.lora_?.weight"}}})
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
	tokenizer, err := weft.OpenTokenizer(tokens)
	if err != nil {
		return err
	}
	defer tokenizer.Close()
	config := info.Data()
	config.Path, config.Tokenizer = samples, tokenizer
	data, err := weft.OpenData(config)
	if err != nil {
		return err
	}
	defer data.Close()
	training, err := weft.Start(ctx, plan, mesh, weft.RunConfig{})
	if err != nil {
		return err
	}
	defer training.Close()
	if err := training.LoadWeights(checkpoint); err != nil {
		return err
	}
	if err := train(ctx, training, model, data); err != nil {
		return err
	}
	if err := training.Save(ctx, directory, weft.SaveConfig{Model: info.Text}); err != nil {
		return err
	}
	training.Close()
	if err := generate(ctx, directory, tokenizer); err != nil {
		return err
	}
	return mesh.Close()
}

func train(ctx context.Context, run *weft.Run, model *weft.Model, data *weft.Data) error {
	batch, err := model.NewBatch(microBatches * microBatchSize)
	if err != nil {
		return err
	}
	defer batch.Close()
	for step := uint64(0); step < steps; step++ {
		if err := data.Sample(1, step, batch[0], batch[1]); err != nil {
			return err
		}
		loss, err := run.Step(ctx, weft.Train, batch...)
		if err != nil {
			return err
		}
		if step%25 == 24 {
			fmt.Printf("step %d  loss %.4f\n", step+1, loss)
		}
	}
	return nil
}

func generate(ctx context.Context, directory string, tokenizer *weft.Tokenizer) error {
	tuned, err := weft.OpenCheckpoint(directory)
	if err != nil {
		return err
	}
	defer tuned.Close()
	if err := tuned.Export(directory + "-adapters/"); err != nil {
		return err
	}
	decoder, _, err := weft.NewDecoder(tuned.Info().Model, weft.DecoderConfig{})
	if err != nil {
		return err
	}
	defer decoder.Close()
	plan, err := weft.NewPlan(decoder, weft.PlanConfig{MicroBatches: 1})
	if err != nil {
		return err
	}
	defer plan.Close()
	run, err := weft.Start(ctx, plan, nil, weft.RunConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	if err := run.LoadWeights(tuned); err != nil {
		return err
	}
	for _, prompt := range []string{"abc=", "klm="} {
		if err := answer(run, tokenizer, prompt); err != nil {
			return err
		}
	}
	return nil
}

func answer(run *weft.Run, tokenizer *weft.Tokenizer, prompt string) error {
	ids, err := tokenizer.Encode(prompt, weft.AddSpecials)
	if err != nil {
		return err
	}
	generator, err := weft.NewGenerator(run)
	if err != nil {
		return err
	}
	defer generator.Close()
	if _, err := generator.Add(ids, weft.SequenceConfig{Temperature: weft.Float(0), Limit: generated}); err != nil {
		return err
	}
	var made []int32
	for {
		token, found, err := generator.Poll(-1)
		if err != nil || !found {
			return err
		}
		made = append(made, token.Token)
		if token.End != 0 {
			break
		}
	}
	text, err := tokenizer.Decode(made, false)
	fmt.Println(prompt + text)
	return err
}
