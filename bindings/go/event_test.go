package weft_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"weft"
)

// received returns the kinds of all events until the channel is closed, and the last error.
func received(events <-chan weft.Event) (kinds []weft.EventKind, err error) {
	for event := range events {
		kinds = append(kinds, event.Kind)
		if event.Err != nil {
			err = event.Err
		}
	}
	return kinds, err
}

func TestAChannelEndsWithAServiceAndWithAFailedStart(t *testing.T) {
	mesh, run := withMesh(t)
	defer mesh.Close()
	other, err := weft.Join(weft.MeshConfig{Endpoint: mesh.JoinEndpoint()})
	try(t, err)
	defer other.Close()
	service, err := other.ServeNoWait(nil, nil, weft.RunConfig{})
	try(t, err)
	served := service.Events(background)
	for event := (weft.Event{}); event.Kind != weft.StartedEvent; {
		event, err = run.Poll(background)
		try(t, err)
	}
	try(t, run.Close())
	if kinds, err := received(served); err != nil || kinds[len(kinds)-1] != weft.EndedEvent {
		t.Error("the events of a service:", kinds, err)
	}
	if kinds, err := received(service.Events(background)); len(kinds) != 0 || err != nil {
		t.Error("events after the last one:", kinds, err)
	}

	mesh, run = withMesh(t)
	defer mesh.Close()
	events := run.Events(background)
	mesh.Cancel()
	if kinds, err := received(events); len(kinds) != 1 || kinds[0] != weft.FailedEvent || !errors.Is(err, weft.ECANCELED) {
		t.Error("the events of a start:", kinds, err)
	}
}

func TestAChannelEndsWithTheStepsOfAFailedRun(t *testing.T) {
	for _, threads := range []int{0, 1} {
		_, batch := sine(t)
		op := scaled(func() error { return errChoice })
		run := start(t, withOp(t, &op), small, threads)
		try(t, run.Submit(weft.Train, 1, batch...))
		try(t, run.Submit(weft.Train, 2, batch...))
		kinds, err := received(run.Events(background))
		if len(kinds) != 2 || kinds[0] != weft.ErrorEvent || kinds[1] != weft.ErrorEvent || !errors.Is(err, errChoice) {
			t.Error("the events:", kinds, err)
		}
	}
}

// A call has left the step, so it has no event of its own.
func TestAChannelEndsWithTheFailureOfAStepThatWasLeft(t *testing.T) {
	run, _, release, _ := leaveStep(t, errChoice)
	close(release)
	if kinds, err := received(run.Events(background)); len(kinds) != 1 || kinds[0] != weft.FailedEvent || !errors.Is(err, errChoice) {
		t.Error("the events:", kinds, err)
	}
}

func TestAnotherChannelGetsTheEventsAfterTheFirst(t *testing.T) {
	model, batch := sine(t)
	run := start(t, model, small, 1)
	ctx, cancel := context.WithCancel(background)
	first, second := run.Events(ctx), run.Events(background)
	try(t, run.Submit(weft.Train, 1, batch...))
	for event := (weft.Event{}); event.Kind != weft.DoneEvent; {
		event = <-first
	}
	cancel()
	if kinds, _ := received(first); len(kinds) != 0 {
		t.Error("events after the end of the context:", kinds)
	}
	try(t, run.Submit(weft.Train, 2, batch...))
	for event := (weft.Event{}); event.Kind != weft.DoneEvent; {
		if event = <-second; event.Tag != 2 {
			t.Errorf("%+v", event)
		}
	}
	try(t, run.Close())
	if kinds, _ := received(second); len(kinds) != 0 {
		t.Error("events of a closed run:", kinds)
	}
}

func TestARequiredObjectIsNotNil(t *testing.T) {
	model, _ := sine(t)
	run := start(t, model, small, 1)
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, weft.EINVAL) {
			t.Errorf("a %s that is nil: %v", what, err)
		}
	}
	_, err := weft.NewPlan(nil, small)
	check("model", err)
	_, err = weft.Compare(nil, small)
	check("model", err)
	_, err = weft.NewProfile(nil, weft.ProfileConfig{})
	check("model", err)
	_, err = weft.Start(background, nil, nil, weft.RunConfig{})
	check("plan", err)
	check("checkpoint", run.Load(nil))
	_, err = run.Profile(nil)
	check("profile", err)
}

func TestARankIsPositive(t *testing.T) {
	for _, rank := range []int{-1, -2} {
		_, err := weft.Join(weft.MeshConfig{Endpoint: "ipc:///no/rank/0", Rank: rank})
		if !errors.Is(err, weft.EINVAL) || !strings.Contains(err.Error(), "rank is -") {
			t.Error("rank", rank, "is accepted:", err)
		}
	}
}
