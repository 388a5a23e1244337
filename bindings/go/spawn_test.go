package weft_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft"
)

// programVariable has the name of a program. Spawn starts this test again, which is that program then.
const programVariable = "WEFT_TEST_PROGRAM"

// The programs print what a test expects. No process of them would end before the test is ended, if it waited for its join timeout.
var programs = map[string]func(*weft.Plan, weft.Batch) error{
	"trains":                      trains,
	"is canceled":                 isCanceled,
	"loses a rank":                losesARank,
	"is not used":                 isNotUsed,
	"is stopped":                  isStopped,
	"spawns again in a copy":      spawnsAgain,
	"closes a run of three ranks": closesARun,
	"loses one of three ranks":    losesOneOfThree,
	"ends early":                  endsEarly,
}

func TestMain(m *testing.M) {
	program, is := programs[os.Getenv(programVariable)]
	if !is {
		os.Exit(m.Run())
	}
	ranks := 2
	if strings.HasSuffix(os.Getenv(programVariable), "three ranks") {
		ranks = 3
	}
	if err := runProgram(program, ranks); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func runProgram(program func(*weft.Plan, weft.Batch) error, ranks int) error {
	model := weft.NewModel()
	x := model.Input("x", weft.F32, 1)
	model.Binary("mse", model.Linear("c", model.Linear("b", model.Linear("a", x, 4), 4), 1), x)
	plan, err := weft.NewPlan(model, weft.PlanConfig{Ranks: ranks, MicroBatches: 1, MicroBatchSize: 2})
	if err != nil {
		return err
	}
	batch, err := model.NewBatch(2)
	if err != nil {
		return err
	}
	return program(plan, batch)
}

func spawn(ctx context.Context, plan *weft.Plan) (*weft.Mesh, error) {
	return weft.Spawn(ctx, plan, weft.MeshConfig{JoinTimeout: time.Hour}, weft.RunConfig{})
}

func isRank0() bool { return os.Getenv("WEFT_JOIN") == "" }

func trains(plan *weft.Plan, batch weft.Batch) error {
	mesh, err := spawn(background, plan)
	if err != nil {
		return err
	}
	run, err := weft.Start(background, plan, mesh, weft.RunConfig{})
	if err != nil {
		return err
	}
	if _, err := run.Step(background, weft.Train, batch...); err != nil {
		return err
	}
	fmt.Println("trained")
	return mesh.Close()
}

func isCanceled(plan *weft.Plan, _ weft.Batch) error {
	ctx, cancel := context.WithCancel(background)
	cancel()
	if mesh, err := spawn(ctx, plan); mesh != nil || !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Spawn with a canceled context: %v", err)
	}
	fmt.Println("was canceled")
	return nil
}

func losesARank(plan *weft.Plan, _ weft.Batch) error {
	if !isRank0() {
		os.Exit(3)
	}
	mesh, err := spawn(background, plan)
	if err != nil {
		return err
	}
	_, err = weft.Start(background, plan, mesh, weft.RunConfig{})
	var exit *exec.ExitError
	fmt.Println(errors.Is(err, weft.EPEER), errors.As(err, &exit), err)
	fmt.Println(mesh.Close())
	return nil
}

func spawnsAgain(plan *weft.Plan, _ weft.Batch) error {
	if !isRank0() {
		_, err := weft.Spawn(background, plan, weft.MeshConfig{}, weft.RunConfig{Threads: -1})
		if errors.Is(err, weft.EINVAL) {
			_, err = spawn(background, plan)
		}
		fmt.Println(err)
		os.Exit(3)
	}
	mesh, err := spawn(background, plan)
	if err != nil {
		return err
	}
	_, err = weft.Start(background, plan, mesh, weft.RunConfig{})
	fmt.Println(errors.Is(err, weft.EPEER), mesh.Close())
	return nil
}

func isNotUsed(plan *weft.Plan, _ weft.Batch) error {
	mesh, err := spawn(background, plan)
	if err != nil {
		return err
	}
	fmt.Println("closed:", mesh.Close())
	return nil
}

// The process of rank 1 does not end with its run.
func isStopped(plan *weft.Plan, _ weft.Batch) error {
	mesh, err := spawn(background, plan)
	if err != nil {
		return err
	}
	run, err := weft.StartNoWait(plan, mesh, weft.RunConfig{})
	if err != nil {
		return err
	}
	pid := 0
	for event := (weft.Event{}); event.Kind != weft.StartedEvent; {
		if event, err = run.Poll(background); err != nil {
			return err
		}
		if event.Kind == weft.JoinedEvent {
			pid = event.PID
		}
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	*weft.EndTime = time.Nanosecond
	fmt.Println(mesh.Close())
	return nil
}

// controlVariable is where copies of a program connect to rank 0.
const controlVariable = "WEFT_TEST_CONTROL"

// listen is for rank 0, before it spawns processes.
func listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return listener, os.Setenv(controlVariable, listener.Addr().String())
}

// joinIfReleased connects a copy to rank 0. If rank 0 closes the connection, the copy does not join.
func joinIfReleased() {
	rank0, err := net.Dial("tcp", os.Getenv(controlVariable))
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(rank0, os.Getpid())
	if n, _ := rank0.Read(make([]byte, 1)); n == 0 {
		os.Exit(7)
	}
}

// joining is a run of three ranks, of which rank 1 joins, with the connections of the processes.
type joining struct {
	mesh  *weft.Mesh
	run   *weft.Run
	rank1 net.Conn
	rank2 net.Conn
}

func beginJoining(plan *weft.Plan) (*joining, error) {
	if !isRank0() {
		joinIfReleased()
		if _, err := spawn(background, plan); err != nil {
			fmt.Println("rank 1 fails")
		}
		os.Exit(1)
	}
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	mesh, err := spawn(background, plan)
	if err != nil {
		return nil, err
	}
	var copies [2]net.Conn
	var pids [2]int
	for i := range copies {
		if copies[i], err = listener.Accept(); err != nil {
			return nil, err
		}
		if _, err := fmt.Fscanln(copies[i], &pids[i]); err != nil {
			return nil, err
		}
	}
	if pids[0] > pids[1] {
		copies[0], copies[1] = copies[1], copies[0]
	}
	if _, err := copies[0].Write([]byte{0}); err != nil {
		return nil, err
	}
	run, err := weft.StartNoWait(plan, mesh, weft.RunConfig{})
	if err != nil {
		return nil, err
	}
	for event := (weft.Event{}); event.Kind != weft.JoinedEvent; {
		if event, err = run.Poll(background); err != nil {
			return nil, err
		}
	}
	return &joining{mesh, run, copies[0], copies[1]}, nil
}

// untilEnd waits for the end of the process at the other end of a connection.
func untilEnd(copy net.Conn) { _, _ = io.Copy(io.Discard, copy) }

func closesARun(plan *weft.Plan, _ weft.Batch) error {
	j, err := beginJoining(plan)
	if err != nil {
		return err
	}
	j.run.Close()
	untilEnd(j.rank1)
	untilEnd(j.rank2)
	fmt.Println("closed:", j.mesh.Close())
	return nil
}

func losesOneOfThree(plan *weft.Plan, _ weft.Batch) error {
	j, err := beginJoining(plan)
	if err != nil {
		return err
	}
	j.rank2.Close()
	for event := (weft.Event{}); event.Kind != weft.FailedEvent; {
		if event, err = j.run.Poll(background); err != nil {
			return err
		}
	}
	untilEnd(j.rank1) // it fails because the mesh is canceled
	fmt.Println(j.mesh.Close())
	return nil
}

// The process of rank 1 has the output of this one, which therefore ends with both.
func endsEarly(plan *weft.Plan, _ weft.Batch) error {
	if _, err := spawn(background, plan); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

func TestProcessesOfSpawn(t *testing.T) {
	for name, expected := range map[string]string{
		"trains":                      "trained\n",
		"is canceled":                 "was canceled\n",
		"loses a rank":                "true true weft: the process of rank 1 has ended: exit status 3\nweft: rank 1: exit status 3\n",
		"spawns again in a copy":      "weft: this process is a rank of Spawn, and starts no ranks; its service has failed\ntrue weft: rank 1: exit status 3\n",
		"is not used":                 "closed: <nil>\n",
		"is stopped":                  "weft: rank 1: the process was killed, because it did not end after its run\n",
		"closes a run of three ranks": "closed: <nil>\n",
		"loses one of three ranks":    "rank 1 fails\nweft: rank 2: exit status 7\n",
		"ends early":                  "failed: weft: the process of rank 0 has ended\n",
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			var output bytes.Buffer
			program := exec.Command(os.Args[0])
			program.Env = append(os.Environ(), programVariable+"="+name)
			program.Stdout, program.Stderr = &output, &output
			err := program.Run()
			if err != nil || output.String() != expected {
				t.Errorf("%v, output: %q, expected %q", err, output.String(), expected)
			}
		})
	}
}
