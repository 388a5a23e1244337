package weft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// joinVariable has the endpoint of rank 0 in a process of Spawn.
const joinVariable = "WEFT_JOIN"

// Spawn runs all ranks of a plan in processes of this machine. It starts the program again with the same arguments, once for each rank except
// rank 0, and returns the mesh of rank 0 for Start. Each copy of the program makes the same plan and calls Spawn as well; there, Spawn serves
// until the run ends and returns a nil mesh. A program therefore begins with
//
//	mesh, err := weft.Spawn(ctx, plan, weft.MeshConfig{}, weft.RunConfig{})
//	if mesh == nil {
//		return err // of a copy that has served, or a failure
//	}
//	defer mesh.Close()
//
// Close of this mesh waits for the processes, and returns an error if one of them has failed. Ops in Go are those of the model of the plan.
func Spawn(ctx context.Context, plan *Plan, config MeshConfig, run RunConfig) (*Mesh, error) {
	if endpoint, is := os.LookupEnv(joinVariable); is {
		os.Unsetenv(joinVariable)
		config.Endpoint = endpoint
		return nil, joinAndServe(ctx, plan, config, run)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	mesh, err := Listen(config)
	if err != nil {
		return nil, err
	}
	for rank := 1; rank < plan.Info().Ranks; rank++ {
		process := exec.Command(program, os.Args[1:]...)
		process.Args[0] = os.Args[0]
		process.Env = append(os.Environ(), joinVariable+"="+mesh.JoinEndpoint())
		process.Stdout, process.Stderr = os.Stdout, os.Stderr
		if err := process.Start(); err != nil {
			mesh.Cancel()
			mesh.Close()
			return nil, fmt.Errorf("weft: rank %d cannot be started: %w", rank, err)
		}
		mesh.processes = append(mesh.processes, process)
	}
	return mesh, nil
}

func joinAndServe(ctx context.Context, plan *Plan, config MeshConfig, run RunConfig) error {
	mesh, err := Join(config)
	if err != nil {
		return err
	}
	defer mesh.Close()
	return mesh.Serve(ctx, plan, nil, run)
}

// wait waits for the processes and returns the first failure.
func wait(processes []*exec.Cmd) error {
	var first error
	for i, process := range processes {
		err := process.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("weft: rank %d: %w", i+1, err)
		}
		if first == nil {
			first = err
		}
	}
	return first
}
