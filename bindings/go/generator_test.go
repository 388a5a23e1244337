package weft_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"weft"
)

// decoder starts a run with a cache of 2 sequences of 20 positions.
func decoder(t *testing.T, threads int) *weft.Run {
	t.Helper()
	return decoderOf(t, nil, threads)
}

func decoderOf(t *testing.T, mesh *weft.Mesh, threads int) *weft.Run {
	t.Helper()
	model, info, err := weft.NewDecoder("gpt-nano:blocks=2,width=32,heads=2,context=20", weft.DecoderConfig{Sequences: 2})
	try(t, err)
	defer model.Close()
	if info.SeqLen != 20 {
		t.Error("the cache has", info.SeqLen, "positions")
	}
	return startOf(t, mesh, model, weft.PlanConfig{MicroBatches: 1, MicroBatchSize: 8, ShortSize: 2}, threads)
}

func TestADecoderContinuesSequences(t *testing.T) {
	run := decoder(t, 1)
	generator, err := weft.NewGenerator(run)
	try(t, err)
	defer generator.Close()
	config := weft.SequenceConfig{Limit: 3, Stops: []int32{300}}
	first, err := generator.Add([]int32{1, 2, 3}, config)
	try(t, err)
	second, err := generator.Add([]int32{7}, config)
	try(t, err)
	if _, err := generator.Add([]int32{7}, config); err == nil {
		t.Error("a third sequence has a place")
	}
	try(t, generator.Remove(second))
	for i := uint64(0); i < 3; i++ {
		token, ok, err := generator.Poll(-1)
		try(t, err)
		if !ok || token.Sequence != first || token.Index != i || (token.End == weft.SequenceLimit) != (i == 2) {
			t.Error("token", i, "is", token)
		}
	}
}

func TestAGeneratorWithoutSequencesHasNoTokens(t *testing.T) {
	for _, threads := range []int{0, 1} {
		run := decoder(t, threads)
		generator, err := weft.NewGenerator(run)
		try(t, err)
		config := weft.SequenceConfig{}
		for _, timeout := range []time.Duration{0, -1, time.Hour} {
			if token, found, err := generator.Poll(timeout); err != nil || found {
				t.Error("a token of no sequence:", token, err)
			}
			id, err := generator.Add([]int32{1, 2, 3}, config)
			try(t, err)
			ended := false
			for !ended {
				token, found, err := generator.Poll(timeout)
				try(t, err)
				ended = found && token.Sequence == id && token.End == weft.SequenceContext
			}
		}
		config.TopK = -1
		if _, err := generator.Add([]int32{1}, config); !errors.Is(err, weft.EINVAL) {
			t.Error("a negative number of tokens:", err)
		}
		if _, err := run.Forward(background); !errors.Is(err, weft.ESTATE) {
			t.Error("a step of a run with a generator:", err)
		}
		generator.Close()
		again, err := weft.NewGenerator(run)
		try(t, err)
		_, err = again.Add([]int32{1}, weft.SequenceConfig{})
		try(t, err)
	}
}

func TestASequenceConfigHasTheDefaultsOfTheLibrary(t *testing.T) {
	run := decoder(t, 1)
	generator, err := weft.NewGenerator(run)
	try(t, err)
	made := func(config weft.SequenceConfig) (out string) {
		config.Limit = 10
		_, err := generator.Add([]int32{1, 2, 3}, config)
		try(t, err)
		for {
			token, found, err := generator.Poll(-1)
			try(t, err)
			if !found {
				return out
			}
			out += fmt.Sprint(token.Token, " ")
		}
	}
	if zero, one := made(weft.SequenceConfig{}), made(weft.SequenceConfig{Temperature: weft.Float(1), TopP: 1, RepetitionPenalty: 1}); zero != one {
		t.Error("the defaults:", zero, one)
	}
	likely, other := weft.SequenceConfig{Temperature: weft.Float(0)}, weft.SequenceConfig{Temperature: weft.Float(0), Seed: 5}
	if a, b := made(likely), made(other); a != b || a == made(weft.SequenceConfig{}) {
		t.Error("the most likely tokens:", a, b)
	}
	for what, config := range map[string]weft.SequenceConfig{
		"temperature": {Temperature: weft.Float(-1)}, "top_p": {TopP: -1}, "min_p": {MinP: -1}, "repetition_penalty": {RepetitionPenalty: -1},
		"repetition": {RepetitionPenalty: weft.None},
	} {
		if _, err := generator.Add([]int32{1}, config); !errors.Is(err, weft.EINVAL) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s that is out of range: %v", what, err)
		}
	}
}

func TestASequenceWhoseLogitsAreNaNEnds(t *testing.T) {
	for _, threads := range []int{0, 1} {
		run := decoder(t, threads)
		gamma := make([]float32, 32)
		gamma[3] = float32(math.NaN())
		try(t, run.Write("ln_f.weight", weft.Values, gamma))
		generator, err := weft.NewGenerator(run)
		try(t, err)
		for n := 0; n < 2; n++ {
			_, err = generator.Add([]int32{1, 2, 3}, weft.SequenceConfig{})
			try(t, err)
		}
		for n := uint64(1); n <= 2; n++ {
			if token, _, err := generator.Poll(-1); !errors.Is(err, weft.EDATA) || token.Sequence != n {
				t.Error("a sequence whose logits are NaN:", token, err)
			}
		}
		if token, found, err := generator.Poll(-1); err != nil || found {
			t.Error("a token of no sequence:", token, err)
		}
	}
}

// Both end in the same step.
func TestASequenceThatHasEndedIsRemovedWithItsTokens(t *testing.T) {
	run := decoder(t, 1)
	generator, err := weft.NewGenerator(run)
	try(t, err)
	first, err := generator.Add([]int32{1}, weft.SequenceConfig{Limit: 1})
	try(t, err)
	second, err := generator.Add([]int32{2}, weft.SequenceConfig{Limit: 1})
	try(t, err)
	token, _, err := generator.Poll(-1)
	try(t, err)
	try(t, generator.Remove(first+second-token.Sequence))
	if token, found, err := generator.Poll(-1); err != nil || found {
		t.Error("a token of no sequence:", token, err)
	}
}

// The last generator is not closed, and ends with its run.
func TestCloseEndsAGenerator(t *testing.T) {
	if _, err := weft.NewGenerator(nil); !errors.Is(err, weft.EINVAL) {
		t.Error("a generator of no run:", err)
	}
	for _, threads := range []int{0, 1} {
		run := decoder(t, threads)
		for _, closeIt := range []func(*weft.Generator) error{(*weft.Generator).Close, func(*weft.Generator) error { return run.Close() }} {
			generator, err := weft.NewGenerator(run)
			try(t, err)
			polled, ended := make(chan bool), make(chan error, 1)
			go func() { ended <- generate(generator, polled) }()
			<-polled
			try(t, closeIt(generator))
			if err := <-ended; !errors.Is(err, weft.ESTATE) {
				t.Error("a poll of a closed generator:", err)
			}
			if _, err := generator.Add([]int32{1}, weft.SequenceConfig{}); !errors.Is(err, weft.ESTATE) {
				t.Error("a sequence of a closed generator:", err)
			}
			if err := generator.Remove(1); !errors.Is(err, weft.ESTATE) {
				t.Error("the removal from a closed generator:", err)
			}
			if _, _, err := generator.Poll(-1); !errors.Is(err, weft.ESTATE) {
				t.Error("a poll of a closed generator:", err)
			}
			generator.Close()
		}
		if _, err := weft.NewGenerator(run); !errors.Is(err, weft.ESTATE) {
			t.Error("a generator of a closed run:", err)
		}
	}
}

// generate adds sequences and polls their tokens until there is an error. It closes polled after the first token.
func generate(generator *weft.Generator, polled chan bool) error {
	for n := 0; ; n++ {
		if _, err := generator.Add([]int32{1, 2, 3}, weft.SequenceConfig{}); err != nil {
			return err
		}
		for found := true; found; {
			var err error
			if _, found, err = generator.Poll(-1); err != nil {
				return err
			}
			if n == 0 && polled != nil {
				close(polled)
				polled = nil
			}
		}
	}
}

// openRun starts a run of a decoder that no test closes.
func openRun(t *testing.T) *weft.Run {
	t.Helper()
	model, _, err := weft.NewDecoder("gpt-nano:blocks=1,width=32,heads=2,context=20", weft.DecoderConfig{})
	try(t, err)
	plan, err := weft.NewPlan(model, weft.PlanConfig{MicroBatches: 1})
	try(t, err)
	run, err := weft.Start(background, plan, nil, weft.RunConfig{Threads: 1})
	try(t, err)
	return run
}

func TestUnreachableGeneratorsAreFreedWithTheirRuns(t *testing.T) {
	before := descriptors(t)
	func() {
		for i := 0; i < 20; i++ {
			generator, err := weft.NewGenerator(openRun(t))
			try(t, err)
			_, err = generator.Add([]int32{1}, weft.SequenceConfig{})
			try(t, err)
			_, _, err = generator.Poll(-1)
			try(t, err)
		}
	}()
	for descriptors(t) > before+5 { // until the deadline of the test
		runtime.GC()
	}
}
