package weft_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"weft"
)

// Cancels a step before its end, in a run without and with threads.
func TestACanceledStepIsFinishedByTheNextCall(t *testing.T) {
	for _, threads := range []int{0, 1} {
		model, batch := sine(t)
		run := start(t, model, small, threads)
		steps(t, run, batch, 3)
		expected := digest(t, run)

		run = start(t, model, small, threads)
		steps(t, run, batch, 1)
		ctx, cancel := context.WithCancel(background)
		stepped := make(chan error)
		go func() {
			_, err := run.Step(ctx, weft.Train, batch...)
			stepped <- err
		}()
		cancel()
		if err := <-stepped; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := run.Step(ctx, weft.Train, batch...); !errors.Is(err, context.Canceled) {
			t.Fatal("a step with a canceled context:", err)
		}
		for n := 0; digest(t, run) != expected; n++ { // the step was canceled before or after its submission, or not at all
			if n == 2 {
				t.Fatal("the steps are not those of a run without cancellation")
			}
			steps(t, run, batch, 1)
		}
	}
}

// Waits for a rank that does not join, and for the next event of an idle run.
func TestCancelAndCloseEndAWait(t *testing.T) {
	model, _ := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	defer plan.Close()
	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	defer mesh.Close()
	run, err := weft.StartNoWait(plan, mesh, weft.RunConfig{})
	try(t, err)
	ended := make(chan error)
	poll := func(ctx context.Context) {
		_, err := run.Poll(ctx)
		ended <- err
	}
	ctx, cancel := context.WithCancel(background)
	go poll(ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error("a poll with a canceled context:", err)
	}
	go poll(background)
	run.Close()
	if err := <-ended; !errors.Is(err, weft.ESTATE) {
		t.Error("a poll of a closed run:", err)
	}
	for _, threads := range []int{0, 1} {
		run := start(t, model, small, threads)
		events := run.Events(background)
		run.Close()
		if event, open := <-events; open {
			t.Error("an event of a closed run:", event)
		}
	}
}

func TestAPollOfAnIdleRunReturnsAtOnce(t *testing.T) {
	for _, threads := range []int{0, 1} {
		model, batch := sine(t)
		run := start(t, model, small, threads)
		try(t, run.Submit(weft.Train, 7, batch...))
		var last weft.Event
		for n := 0; ; n++ {
			event, err := run.Poll(background)
			try(t, err)
			if event.Kind == 0 {
				if n != small.MicroBatches+1 || last.Kind != weft.DoneEvent || last.Tag != 7 {
					t.Errorf("%d events, of which the last is %+v", n, last)
				}
				break
			}
			last = event
		}
	}
}

// Their memory is not that of the run.
func TestTheOutputsOfAnEventCanBeReadAfterTheRunIsClosed(t *testing.T) {
	for _, threads := range []int{0, 1} {
		model, batch := sine(t)
		run := start(t, model, small, threads)
		expected, err := run.Forward(background, batch[0], nil)
		try(t, err)
		try(t, run.Submit(weft.Forward, 1, batch[0], nil))
		var outputs []float32
		var kept []*weft.Tensor
		for event := expect(t, run, weft.MicroBatchEvent); event.Kind == weft.MicroBatchEvent; {
			kept = append(kept, event.Outputs...)
			event, err = run.Poll(background)
			try(t, err)
		}
		try(t, run.Close())
		for _, output := range kept {
			outputs = append(outputs, output.Float32()...)
		}
		if !reflect.DeepEqual(outputs, expected[0].Float32()) {
			t.Error("the outputs:", outputs)
		}
	}
}

// A canceled context counts before a run that no other goroutine uses.
func TestAStepWithACanceledContextIsNotSubmitted(t *testing.T) {
	model, batch := sine(t)
	run := start(t, model, small, 1)
	before := digest(t, run)
	ctx, cancel := context.WithCancel(background)
	cancel()
	for i := 0; i < 20; i++ {
		if _, err := run.Step(ctx, weft.Train, batch...); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if digest(t, run) != before {
		t.Error("a step with a canceled context has changed the parameters")
	}
}

// leaveStep starts a step, whose op waits for the end of release and then returns the error, and leaves it. calls has an element for each
// micro-batch.
func leaveStep(t *testing.T, failure error) (run *weft.Run, batch weft.Batch, release, calls chan bool) {
	entered := make(chan bool, 100)
	release, calls = make(chan bool), make(chan bool, 100)
	op := scaled(func() error {
		entered <- true
		<-release
		calls <- true
		return failure
	})
	_, batch = sine(t)
	run = start(t, withOp(t, &op), small, 1)
	ctx, cancel := context.WithCancel(background)
	left := make(chan error)
	go func() {
		_, err := run.Step(ctx, weft.Train, batch...)
		left <- err
	}()
	<-entered
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return run, batch, release, calls
}

// A step that was left ends before a save that was submitted later, whose event is not that of the step.
func TestAStepThatWasLeftDoesNotTakeTheEventOfASave(t *testing.T) {
	run, batch, release, _ := leaveStep(t, nil)
	try(t, run.SubmitSave(t.TempDir(), weft.SaveConfig{}, 9))
	close(release)
	if _, err := run.Step(background, weft.Train, batch...); !errors.Is(err, weft.ESTATE) {
		t.Error("a step while a save is not finished:", err)
	}
	if event := expect(t, run, weft.SavedEvent); event.Tag != 9 || event.Step != 1 {
		t.Errorf("%+v", event)
	}
	expect(t, run, 0)
	steps(t, run, batch, 1)
}

// Until then it reads the batch.
func TestAPollWaitsForAStepThatWasLeft(t *testing.T) {
	run, _, release, calls := leaveStep(t, nil)
	close(release)
	expect(t, run, 0)
	if n := len(calls); n != small.MicroBatches {
		t.Error("Poll has returned after", n, "micro-batches")
	}
}

// Saves are submitted at any moment of a step, also directly before its submission.
func TestAStepKeepsTheEventsOfSaves(t *testing.T) {
	model, batch := sine(t)
	run := start(t, model, small, 1)
	for tag := uint64(0); tag < 50; tag++ {
		submitted := make(chan error)
		directory := t.TempDir()
		go func() { submitted <- run.SubmitSave(directory, weft.SaveConfig{}, tag) }()
		_, err := run.Step(background, weft.Train, batch...)
		if err != nil && !errors.Is(err, weft.ESTATE) { // the save came first
			t.Error(err)
		}
		try(t, <-submitted)
		if event := expect(t, run, weft.SavedEvent); event.Tag != tag {
			t.Errorf("%+v", event)
		}
		expect(t, run, 0)
	}
}

func expect(t *testing.T, run *weft.Run, kind weft.EventKind) weft.Event {
	t.Helper()
	event, err := run.Poll(background)
	try(t, err)
	if event.Kind != kind {
		t.Errorf("expected an event of kind %d, got %+v", kind, event)
	}
	return event
}

func TestAChannelThatEndsLosesNoEvent(t *testing.T) {
	model, _ := sine(t)
	run := start(t, model, small, 1)
	ctx, cancel := context.WithCancel(background)
	events := run.Events(ctx)
	try(t, run.SubmitSave(t.TempDir(), weft.SaveConfig{}, 9))
	for {
		if _, err := run.Digest(); err == nil { // the event has been taken
			break
		}
	}
	cancel()
	if event := expect(t, run, weft.SavedEvent); event.Tag != 9 {
		t.Errorf("%+v", event)
	}
	if event, open := <-events; open {
		t.Error("the event was delivered twice:", event)
	}
}

func TestEventsArriveOnAChannel(t *testing.T) {
	for _, threads := range []int{0, 1} {
		model, batch := sine(t)
		run := start(t, model, small, threads)
		ctx, cancel := context.WithCancel(background)
		events := run.Events(ctx)
		for tag := uint64(0); tag < 3; tag++ {
			try(t, run.Submit(weft.Train, tag, batch...))
		}
		try(t, run.Submit(weft.Forward, 3, batch...))
		try(t, run.SubmitSave(t.TempDir(), weft.SaveConfig{}, 4))
		var final []uint64
		outputs := 0
		for len(final) < 5 {
			event := <-events
			try(t, event.Err)
			switch event.Kind {
			case weft.MicroBatchEvent:
				for _, output := range event.Outputs {
					outputs += len(output.Float32())
				}
			case weft.DoneEvent, weft.SavedEvent:
				final = append(final, event.Tag)
			}
		}
		if outputs != 64 || final[0] != 0 || final[4] != 4 {
			t.Error("outputs and final events:", outputs, final)
		}
		cancel()
		if event, open := <-events; open {
			t.Error("an event after the context has ended:", event)
		}
		steps(t, run, batch, 1)
		if err := run.Submit(weft.Train, ^uint64(0), batch...); !errors.Is(err, weft.EINVAL) {
			t.Error("the tag of Step:", err)
		}
	}
}

func TestStepRefusesToTakeTheEventsOfSubmit(t *testing.T) {
	model, batch := sine(t)
	run := start(t, model, small, 0)
	try(t, run.Submit(weft.Train, 7, batch...))
	if _, err := run.Step(background, weft.Train, batch...); !errors.Is(err, weft.ESTATE) {
		t.Error("a step while another is not finished:", err)
	}
	for {
		event, err := run.Poll(background)
		try(t, err)
		if event.Tag != 7 {
			t.Error("tag", event.Tag)
		}
		if event.Kind == weft.DoneEvent {
			break
		}
	}
	steps(t, run, batch, 1)
}

// A goroutine that waits needs no thread of the operating system.
func TestWaitsDoNotBlockThreads(t *testing.T) {
	model, _ := sine(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	before := threads(t)
	var all []<-chan weft.Event
	for i := 0; i < 100; i++ {
		all = append(all, start(t, model, small, 0).Events(ctx))
	}
	after := threads(t)
	cancel()
	for _, events := range all {
		<-events
	}
	if after > before+20 {
		t.Errorf("%d threads before and %d while 100 goroutines wait", before, after)
	}
}

func threads(t *testing.T) int {
	file, err := os.Open("/proc/self/status")
	try(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), ":"); name == "Threads" {
			n := 0
			for _, digit := range strings.TrimSpace(value) {
				n = 10*n + int(digit-'0')
			}
			return n
		}
	}
	t.Fatal("/proc/self/status has no Threads")
	return 0
}

func TestAStartReportsItsProgress(t *testing.T) {
	model, batch := sine(t)
	plan, err := weft.NewPlan(model, small)
	try(t, err)
	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	defer mesh.Close()
	var guard sync.Mutex
	var log strings.Builder
	run, err := weft.StartNoWait(plan, mesh, weft.RunConfig{LogLevel: weft.LogDebug, Log: func(level weft.LogLevel, text string) {
		guard.Lock()
		defer guard.Unlock()
		log.WriteString(text + "\n")
		panic("a panic of Log is contained")
	}})
	try(t, err)
	if _, err := run.Digest(); !errors.Is(err, weft.ESTATE) {
		t.Error("the digest of a run that has not started:", err)
	}
	other, err := weft.Join(weft.MeshConfig{Endpoint: mesh.JoinEndpoint()})
	try(t, err)
	defer other.Close()
	service, err := other.ServeNoWait(nil, nil, weft.RunConfig{})
	try(t, err)
	defer service.Close()
	events := run.Events(background)
	if event := <-events; event.Kind != weft.JoinedEvent || event.Rank != 1 || event.Missing != 0 || event.PID != os.Getpid() {
		t.Errorf("%+v", event)
	}
	if event := <-events; event.Kind != weft.StartedEvent || event.Ranks != 2 {
		t.Errorf("%+v", event)
	}
	try(t, run.Submit(weft.Train, 5, batch...))
	for event := range events {
		try(t, event.Err)
		if event.Kind == weft.DoneEvent {
			break
		}
	}
	run.Close()
	for _, kind := range []weft.EventKind{weft.JoinedEvent, weft.StartedEvent, weft.EndedEvent, 0} {
		expect(t, service, kind)
	}
	guard.Lock()
	defer guard.Unlock()
	if !strings.Contains(log.String(), "rank 1") {
		t.Error("the log:", log.String())
	}
}
