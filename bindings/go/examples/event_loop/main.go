// Event_loop trains the network of README in two processes, and waits for the run, its steps and the other process at one place.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"

	"weft"
)

const steps, samples = 500, 64

func main() {
	err := error(nil)
	if len(os.Args) > 1 {
		err = serve(context.Background(), os.Args[1])
	} else {
		err = control(context.Background())
	}
	if err != nil {
		log.Fatal("event_loop: ", err)
	}
}

func serve(ctx context.Context, endpoint string) error {
	mesh, err := weft.Join(weft.MeshConfig{Endpoint: endpoint})
	if err != nil {
		return err
	}
	defer mesh.Close()
	return mesh.Serve(ctx, nil, nil, weft.RunConfig{})
}

func build() *weft.Model {
	model := weft.NewModel()
	x, y := model.Input("x", weft.F32, 1), model.Input("y", weft.F32, 1)
	out := model.Linear("out", model.Unary("gelu", model.Linear("hidden", x, 32)), 1)
	model.Binary("mse", out, y)
	return model
}

func control(ctx context.Context) error {
	model := build()
	defer model.Close()
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: 2, MicroBatches: 4, MicroBatchSize: 16,
		Optimizer: weft.Optimizer{Rate: 0.02, Curve: weft.Cosine, Total: steps, Clip: weft.None}})
	if err != nil {
		return err
	}
	defer plan.Close()
	batch, err := model.NewBatch(samples)
	if err != nil {
		return err
	}
	defer batch.Close()
	x, y := batch[0].Float32(), batch[1].Float32()
	for i := range x {
		x[i] = float32(i)/10 - 3.2
		y[i] = float32(math.Sin(float64(x[i])))
	}
	mesh, err := weft.Listen(weft.MeshConfig{})
	if err != nil {
		return err
	}
	defer mesh.Close()
	run, err := weft.StartNoWait(plan, mesh, weft.RunConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	exited, err := spawn(mesh.JoinEndpoint())
	if err != nil {
		return err
	}
	return loop(run, batch, run.Events(ctx), exited)
}

// spawn starts this program again, as rank 1. The channel gets its end.
func spawn(endpoint string) (<-chan error, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	other := exec.Command(program, endpoint)
	other.Stderr = os.Stderr
	exited := make(chan error, 1)
	if err := other.Start(); err != nil {
		return nil, err
	}
	go func() { exited <- other.Wait() }()
	return exited, nil
}

func loop(run *weft.Run, batch weft.Batch, events <-chan weft.Event, exited <-chan error) error {
	for step := uint64(0); ; {
		select {
		case err := <-exited:
			status := 0
			if err != nil {
				status = 1
			}
			fmt.Printf("rank 1 has ended with status %d\n", status)
			return err
		case event, open := <-events:
			switch {
			case !open: // the run is closed, and rank 1 ends
				events = nil
			case event.Err != nil:
				return event.Err
			case event.Kind == weft.JoinedEvent:
				fmt.Printf("rank %d has joined, %d are missing\n", event.Rank, event.Missing)
			case event.Kind == weft.StartedEvent:
				fmt.Printf("started with %d ranks\n", event.Ranks)
				if err := run.Submit(weft.Train, step, batch...); err != nil {
					return err
				}
			case event.Kind == weft.DoneEvent:
				if step%100 == 0 {
					fmt.Printf("step %3d  loss %.6f\n", step, event.Loss)
				}
				if step++; step > steps {
					run.Close()
				} else if err := run.Submit(weft.Train, step, batch...); err != nil {
					return err
				}
			}
		}
	}
}
