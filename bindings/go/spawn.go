package weft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// Variables of a process of Spawn: the endpoint of rank 0, and the descriptor of a pipe that ends with the process of rank 0.
const (
	joinVariable   = "WEFT_JOIN"
	parentVariable = "WEFT_JOIN_PARENT"
)

// endTime is how long Mesh.Close waits for the processes of Spawn after the end of their run.
var endTime = 10 * time.Second

// isCopy: this process is a copy of the program.
var isCopy atomic.Bool

// Spawn runs all ranks of a plan in processes of this machine. It starts the program again with the same arguments, once for each rank except
// rank 0, and returns the mesh of rank 0 for Start. Each copy of the program makes the same plan and calls Spawn as well; there, Spawn serves
// until the run ends, and then ends the process with os.Exit(0), which calls no deferred functions. It returns only if the service has failed.
// In a copy, ctx is that of Serve. Call Spawn once per program: a copy serves only the first call, and returns ESTATE from another one.
//
// If a process ends before the run has started, Start fails with EPEER. Close of this mesh waits for the processes, and returns an error if one
// of them has failed; if the run has not started, that is only the one because of which Start has failed. Close of the mesh or of the run ends
// processes whose run has not started, and Close of the mesh those that have not ended within 10 s after their run. A process whose rank 0 has
// ended leaves its run, and fails. Ops in Go are those of the model of the plan.
func Spawn(ctx context.Context, plan *Plan, config MeshConfig, run RunConfig) (*Mesh, error) {
	if isCopy.Load() {
		return nil, &Error{Status: ESTATE, Text: "this process is a rank of Spawn, and starts no ranks; its service has failed"}
	}
	if endpoint, is := os.LookupEnv(joinVariable); is {
		isCopy.Store(true)
		config.Endpoint = endpoint
		if err := joinAndServe(ctx, plan, config, run); err != nil {
			return nil, err
		}
		os.Exit(0)
	}
	if err := ctx.Err(); err != nil {
		return nil, canceled(err)
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
		if err := mesh.spawn(program, rank); err != nil {
			mesh.Close()
			return nil, fmt.Errorf("weft: rank %d cannot be started: %w", rank, err)
		}
	}
	return mesh, nil
}

func joinAndServe(ctx context.Context, plan *Plan, config MeshConfig, run RunConfig) error {
	parent, watches := os.LookupEnv(parentVariable)
	os.Unsetenv(joinVariable)
	os.Unsetenv(parentVariable)
	mesh, err := Join(config)
	if err != nil {
		return err
	}
	defer mesh.Close()
	if watches {
		pipe, err := openPipe(parent)
		if err != nil {
			return err
		}
		defer pipe.Close()
		go func() {
			_, err := pipe.Read(make([]byte, 1))
			if !errors.Is(err, os.ErrClosed) {
				mesh.lose(&Error{Status: EPEER, Text: "the process of rank 0 has ended"})
			}
		}()
	}
	return mesh.Serve(ctx, plan, nil, run)
}

// openPipe opens a descriptor of this process for the poller of Go.
func openPipe(number string) (*os.File, error) {
	descriptor := 0
	if _, err := fmt.Sscan(number, &descriptor); err != nil {
		return nil, fmt.Errorf("weft: %s is %q, expected a descriptor", parentVariable, number)
	}
	syscall.CloseOnExec(descriptor)
	if err := syscall.SetNonblock(descriptor, true); err != nil {
		return nil, fmt.Errorf("weft: %s is descriptor %d: %w", parentVariable, descriptor, err)
	}
	return os.NewFile(uintptr(descriptor), parentVariable), nil
}

// child is a process of Spawn.
type child struct {
	rank    int
	command *exec.Cmd
	parent  *os.File // the end of a pipe whose other end the process reads
	ended   chan struct{}
	err     error // of Wait, after ended
	cancels bool  // it has canceled the mesh; after ended
}

// spawn starts the process of a rank.
func (m *Mesh) spawn(program string, rank int) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	command := exec.Command(program, os.Args[1:]...)
	command.Args[0] = os.Args[0]
	command.ExtraFiles = []*os.File{theirs} // descriptor 3
	command.Env = append(os.Environ(), joinVariable+"="+m.JoinEndpoint(), parentVariable+"=3")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		ours.Close()
		return err
	}
	c := &child{rank: rank, command: command, parent: ours, ended: make(chan struct{})}
	m.children = append(m.children, c)
	go c.wait(m)
	return nil
}

// wait waits for the end of the process. If the run of the mesh has not started, it cannot start any more.
func (c *child) wait(mesh *Mesh) {
	c.err = c.command.Wait()
	c.parent.Close()
	cause := c.err
	if cause == nil {
		cause = errors.New(c.command.ProcessState.String())
	}
	c.cancels = mesh.lose(&Error{Status: EPEER, Text: fmt.Sprintf("the process of rank %d has ended", c.rank), Cause: cause})
	close(c.ended)
}

// end waits for the end of the process, which it ends at that time.
func (c *child) end(limit <-chan time.Time) error {
	select {
	case <-c.ended:
		return c.failure()
	case <-limit:
	}
	err := c.command.Process.Kill()
	<-c.ended
	if err != nil || !isKilled(c.err) { // it had ended
		return c.failure()
	}
	return fmt.Errorf("weft: rank %d: %w", c.rank, errKilled)
}

func (c *child) failure() error {
	if c.err == nil {
		return nil
	}
	return fmt.Errorf("weft: rank %d: %w", c.rank, c.err)
}

var errKilled = errors.New("the process was killed, because it did not end after its run")

func isKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, is := exit.Sys().(syscall.WaitStatus)
	return is && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// endAll waits for the end of processes and returns the first failure. Those whose run has not started end at once, and only one that canceled the
// mesh has failed.
func endAll(children []*child, started bool) error {
	limit := time.Now()
	if started {
		limit = limit.Add(endTime)
	}
	var first error
	for _, c := range children {
		err := c.end(time.After(time.Until(limit)))
		if first == nil && (started || c.cancels) {
			first = err
		}
	}
	return first
}
