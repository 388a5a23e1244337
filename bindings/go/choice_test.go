package weft_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"weft"
)

var errChoice = errors.New("no rule for it")

func newGenerator(t *testing.T, run *weft.Run) *weft.Generator {
	t.Helper()
	generator, err := weft.NewGenerator(run)
	try(t, err)
	return generator
}

func onlyEven(choice *weft.Choice) error {
	for i := 1; i < len(choice.Logits); i += 2 {
		choice.Logits[i] = float32(math.Inf(-1))
	}
	return nil
}

// polled returns the tokens of each sequence, and the failures, until the generator has no sequence.
func polled(generator *weft.Generator) (tokens map[uint64][]int32, failed map[uint64]error) {
	tokens, failed = map[uint64][]int32{}, map[uint64]error{}
	for {
		token, found, err := generator.Poll(-1)
		switch {
		case err != nil:
			failed[token.Sequence] = err
			if token.Sequence == 0 {
				return tokens, failed
			}
		case !found:
			return tokens, failed
		default:
			tokens[token.Sequence] = append(tokens[token.Sequence], token.Token)
		}
	}
}

func TestTokensAreExcludedFromOneSequence(t *testing.T) {
	for _, threads := range []int{0, 1} {
		generator := newGenerator(t, decoder(t, threads))
		single, err := generator.Add([]int32{7}, weft.SequenceConfig{Limit: 8})
		try(t, err)
		expected, _ := polled(generator)
		even, err := generator.Add([]int32{1, 2, 3}, weft.SequenceConfig{Limit: 8, Choose: onlyEven})
		try(t, err)
		other, err := generator.Add([]int32{7}, weft.SequenceConfig{Limit: 8})
		try(t, err)
		tokens, failed := polled(generator)
		if len(tokens[even]) != 8 || len(failed) != 0 {
			t.Error(tokens, failed)
		}
		for _, token := range tokens[even] {
			if token%2 != 0 {
				t.Error("an excluded token:", tokens[even])
			}
		}
		if !reflect.DeepEqual(tokens[other], expected[single]) {
			t.Error("another sequence:", tokens[other], expected[single])
		}
	}
}

func TestAChoiceHasTheLogitsFromWhichTheTokenIsChosen(t *testing.T) {
	generator := newGenerator(t, decoder(t, 1))
	var seen []string
	var kept []*weft.Choice
	choose := func(choice *weft.Choice) error {
		largest := 0
		for i, logit := range choice.Logits {
			if logit > choice.Logits[largest] {
				largest = i
			}
		}
		seen = append(seen, fmt.Sprint(choice.Sequence, choice.Index, choice.Tokens, largest))
		kept = append(kept, choice)
		return nil
	}
	sequence, err := generator.Add([]int32{1, 2, 3}, weft.SequenceConfig{Temperature: weft.Float(0), Limit: 4, First: 10, Choose: choose})
	try(t, err)
	tokens, _ := polled(generator)
	if len(tokens[sequence]) != 4 || len(seen) != 4 {
		t.Fatal(tokens, seen)
	}
	text := []int32{1, 2, 3}
	for i, token := range tokens[sequence] {
		if expected := fmt.Sprint(sequence, uint64(10+i), text, token); seen[i] != expected {
			t.Errorf("choice %d is %q, expected %q", i, seen[i], expected)
		}
		text = append(text, token)
	}
	for _, choice := range kept {
		if choice.Tokens != nil || choice.Logits != nil {
			t.Error("slices of the library after the call")
		}
	}
}

func TestErrorsAndPanicsOfChooseEndTheirSequence(t *testing.T) {
	for _, threads := range []int{0, 1} {
		run := decoder(t, threads)
		generator := newGenerator(t, run)
		for _, fail := range []func() error{func() error { return errChoice }, func() error { panic(errChoice) }} {
			fail := fail
			failing, err := generator.Add([]int32{1, 2}, weft.SequenceConfig{Limit: 4, Choose: func(choice *weft.Choice) error {
				if choice.Index == 2 {
					return fail()
				}
				return nil
			}})
			try(t, err)
			other, err := generator.Add([]int32{7}, weft.SequenceConfig{Limit: 4, Choose: onlyEven})
			try(t, err)
			tokens, failed := polled(generator)
			err = failed[failing]
			if len(failed) != 1 || !errors.Is(err, weft.EUSER) || !errors.Is(err, errChoice) || strings.Count(err.Error(), errChoice.Error()) != 1 {
				t.Error("Choose that fails:", failed)
			}
			var panicked *weft.PanicError
			if errors.As(err, &panicked) && (len(panicked.Stack) == 0 || !strings.Contains(err.Error(), "panic in Choose: ")) {
				t.Error("Choose that panics:", err)
			}
			if len(tokens[failing]) != 2 || len(tokens[other]) != 4 {
				t.Error("the tokens:", tokens)
			}
		}
		again, err := generator.Add([]int32{1}, weft.SequenceConfig{Limit: 4, Choose: onlyEven})
		try(t, err)
		if tokens, failed := polled(generator); len(tokens[again]) != 4 || len(failed) != 0 {
			t.Error("the generator does not go on:", tokens, failed)
		}
		generator.Close()
		_, err = run.Digest()
		try(t, err)
	}
}

func TestChooseCannotUseItsRunAndGenerator(t *testing.T) {
	mesh, err := weft.Listen(weft.MeshConfig{})
	try(t, err)
	defer mesh.Close()
	run := decoderOf(t, mesh, 1)
	generator := newGenerator(t, run)
	var found []error
	sequence, err := generator.Add([]int32{1}, weft.SequenceConfig{Limit: 1, Choose: func(choice *weft.Choice) error {
		_, adds := generator.Add([]int32{1}, weft.SequenceConfig{})
		_, _, polls := generator.Poll(0)
		_, reads := run.Digest()
		_, steps := run.Forward(background)
		_, takes := run.Poll(background)
		found = []error{adds, generator.Remove(choice.Sequence), polls, reads, steps, takes, generator.Close(), run.Close(), mesh.Close()}
		return nil
	}})
	try(t, err)
	if tokens, failed := polled(generator); len(tokens[sequence]) != 1 || len(failed) != 0 || len(found) != 9 {
		t.Error(tokens, failed, found)
	}
	for _, err := range found {
		if !errors.Is(err, weft.ESTATE) || !strings.Contains(err.Error(), "Choose must not use its run and generator") {
			t.Error("a call in Choose:", err)
		}
	}
}

func TestCallsOfOtherGoroutinesWaitForChoose(t *testing.T) {
	for _, threads := range []int{0, 1} {
		generator := newGenerator(t, decoder(t, threads))
		entered, release := make(chan bool), make(chan bool)
		first, err := generator.Add([]int32{1}, weft.SequenceConfig{Limit: 2, Choose: func(choice *weft.Choice) error {
			if choice.Index == 0 {
				close(entered)
				<-release
			}
			return nil
		}})
		try(t, err)
		ended := make(chan map[uint64][]int32)
		go func() {
			tokens, failed := polled(generator)
			if len(failed) != 0 {
				t.Error(failed)
			}
			ended <- tokens
		}()
		<-entered
		calls := make(chan error, 2)
		go func() {
			_, err := generator.Add([]int32{2}, weft.SequenceConfig{Limit: 2})
			calls <- err
		}()
		go func() { calls <- generator.Remove(first + 100) }()
		for len(calls) == 0 && !(waits("(*Generator).Add(") && waits("(*Generator).Remove(")) { // until the deadline of the test
			runtime.Gosched()
		}
		if len(calls) != 0 {
			t.Error("a call did not wait for Choose")
		}
		close(release)
		for n := 0; n < 2; n++ {
			if err := <-calls; err != nil && !errors.Is(err, weft.ENOENT) {
				t.Error("a call beside Poll:", err)
			}
		}
		tokens := <-ended
		rest, _ := polled(generator) // the last token may have been taken before the call added a sequence
		if len(tokens[first]) != 2 || len(tokens[first+1])+len(rest[first+1]) != 2 {
			t.Error(tokens, rest)
		}
	}
}

// waits reports whether a goroutine waits for a lock in a function.
func waits(function string) bool {
	stacks := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, function) && strings.Contains(stack, "(*Mutex).Lock") {
			return true
		}
	}
	return false
}

func TestAFunctionIsFreedWithItsSequence(t *testing.T) {
	poll := func(generator *weft.Generator, _ uint64) { polled(generator) }
	for what, end := range map[string]struct {
		fails bool
		end   func(*weft.Generator, uint64)
	}{
		"ended":   {false, poll},
		"failed":  {true, poll},
		"removed": {false, func(generator *weft.Generator, sequence uint64) { try(t, generator.Remove(sequence)) }},
		"closed":  {false, func(generator *weft.Generator, _ uint64) { generator.Close() }},
		"refused": {false, nil},
	} {
		generator := newGenerator(t, decoder(t, 1))
		freed := make(chan bool)
		func() {
			kept := new([100]byte)
			runtime.SetFinalizer(kept, func(*[100]byte) { close(freed) })
			config := weft.SequenceConfig{Limit: 2, Choose: func(*weft.Choice) error {
				if kept[0]++; end.fails {
					return errChoice
				}
				return nil
			}}
			if end.end == nil {
				if _, err := generator.Add(nil, config); !errors.Is(err, weft.EINVAL) {
					t.Error("a sequence without tokens:", err)
				}
				return
			}
			sequence, err := generator.Add([]int32{1}, config)
			try(t, err)
			end.end(generator, sequence)
		}()
		t.Log(what)
		untilFreed(freed)
		runtime.KeepAlive(generator)
	}
}

func TestAFunctionIsFreedWithAnUnreachableRun(t *testing.T) {
	freed := make(chan bool)
	func() {
		kept := new([100]byte)
		runtime.SetFinalizer(kept, func(*[100]byte) { close(freed) })
		generator := newGenerator(t, openRun(t))
		_, err := generator.Add([]int32{1}, weft.SequenceConfig{Choose: func(*weft.Choice) error { kept[0]++; return nil }})
		try(t, err)
		_, _, err = generator.Poll(-1)
		try(t, err)
	}()
	untilFreed(freed)
}
