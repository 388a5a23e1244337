package weft

/*
#include <weft.h>

int32_t weft_go_choose(weft_choice *choice);

static void weft_go_set_choose(weft_sequence_config *config, void *payload) {
	config->choose = (int32_t(*)(const weft_choice *))weft_go_choose;
	config->payload = payload;
}
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// SequenceConfig says how a sequence is continued. The filters apply after the temperature: TopK, then TopP, then MinP.
type SequenceConfig struct {
	Temperature       *float64 // of the random choice, see Float; 0: always the most likely token; nil: 1
	TopK              int      // choose among that many of the most likely tokens; 0: all
	TopP              float64  // choose among the fewest most likely tokens that together have this probability; default: 1
	MinP              float64  // choose among tokens of at least this part of the probability of the most likely one
	RepetitionPenalty float64  // divides positive logits of tokens of the sequence, and multiplies others; default: 1
	Seed, Number      uint64   // of random choices, with the index of the token
	First             uint64   // index of the first token that is added
	Limit             uint64   // tokens to add; 0: as many as the cache has positions for
	Stops             []int32  // tokens that end the sequence
	// Choose reads, and may change, the logits of each next token, before the penalty and the temperature. Poll calls it. Calls on the run and the
	// generator, and Close of their mesh, return ESTATE there; those of other goroutines wait for the end of Choose, which must not wait for them. It
	// must not call runtime.Goexit. An error or a panic of it ends the sequence with EUSER; errors.Is and errors.As find it, and a
	// panic is a [*PanicError]. It and what it refers to are kept until the sequence has ended or the generator is closed.
	Choose func(choice *Choice) error
}

func (s *SequenceConfig) fill(c *C.weft_sequence_config, own *memory) {
	C.weft_sequence_config_init(c, C.sizeof_weft_sequence_config)
	if s.Temperature != nil {
		c.temperature = C.double(*s.Temperature)
	}
	setNumber(&c.top_p, s.TopP)
	setNumber(&c.min_p, s.MinP)
	setNumber(&c.repetition_penalty, s.RepetitionPenalty)
	c.top_k, c.seed, c.number = own.unsigned("top_k", s.TopK), C.uint64_t(s.Seed), C.uint64_t(s.Number)
	c.first, c.limit = C.uint64_t(s.First), C.uint64_t(s.Limit)
	c.stops, c.n_stops = array(own, s.Stops, toToken), count(len(s.Stops))
}

// SequenceEnd is the reason why a sequence ends with a token.
type SequenceEnd uint32

const (
	SequenceContinues SequenceEnd = C.WEFT_SEQUENCE_CONTINUES
	SequenceLimit     SequenceEnd = C.WEFT_SEQUENCE_LIMIT   // Limit tokens were added
	SequenceStop      SequenceEnd = C.WEFT_SEQUENCE_STOP    // the token is one of Stops
	SequenceContext   SequenceEnd = C.WEFT_SEQUENCE_CONTEXT // the cache has no position for the token
)

// Token is a token that was added to a sequence.
type Token struct {
	End      SequenceEnd // if it is not SequenceContinues, the sequence has left the generator
	Sequence uint64      // as Add returned it
	Index    uint64      // among the tokens that are added, from First
	Token    int32
}

// Generator continues sequences of tokens with the run of a decoder. Until it is closed, no other call makes steps of the run. Close of the run
// also closes the generator.
//
// Goroutines may share it. While Poll waits, Add, Remove and Close are possible, and the next step includes what they change; while it computes or
// calls Choose, they wait. Of several calls of Poll, each token is the result of one.
type Generator struct {
	run *Run
	c   *C.weft_generator // valid while it is that of the run; guarded by run.mu
	ctx context.Context   // ends with Close
	end context.CancelFunc
}

// NewGenerator creates a generator of a run whose model is of NewDecoder. The run is idle.
func NewGenerator(run *Run) (*Generator, error) {
	if run == nil {
		return nil, errNil("run")
	}
	g := &Generator{run: run}
	err := run.between(func(_ *memory, c *C.weft_run, err *C.weft_error) C.weft_status {
		status := C.weft_generator_new(c, &g.c, err)
		if status >= 0 {
			run.generator, run.choosers, run.sequences = g.c, map[uint64]unsafe.Pointer{}, 0
		}
		return status
	})
	if err != nil {
		return nil, err
	}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g, nil
}

// Close ends the generator, after a step in progress.
func (g *Generator) Close() error {
	if g == nil {
		return nil
	}
	if err := g.run.choosing.refuse(); err != nil {
		return err
	}
	g.end()
	g.run.mu.Lock()
	defer g.run.mu.Unlock()
	if g.c == g.run.generator {
		g.run.freeGenerator()
		g.run.sequences = 0
	}
	g.c = nil
	return nil
}

// freeGenerator frees the generator of the run, if there is one.
func (m *runMemory) freeGenerator() {
	C.weft_generator_free(m.generator)
	for sequence := range m.choosers {
		_ = m.freeChooser(sequence)
	}
	m.generator = nil
}

// freeChooser frees the function of a sequence that has ended, if it has one, and returns its last error.
func (m *runMemory) freeChooser(sequence uint64) error {
	payload, is := m.choosers[sequence]
	if !is {
		return nil
	}
	err := chooserOf(payload).err
	destroy(payload)
	delete(m.choosers, sequence)
	return err
}

// call makes a call with the generator, unless it or its run is closed.
func (g *Generator) call(function func(own *memory, generator *C.weft_generator, err *C.weft_error) C.weft_status) error {
	return g.run.call(func(own *memory, _ *C.weft_run, err *C.weft_error) C.weft_status {
		if g.c == nil {
			own.refuse(errGeneratorClosed())
		}
		return function(own, g.c, err)
	})
}

func errGeneratorClosed() error { return &Error{Status: ESTATE, Text: "the generator is closed"} }

// Add adds a sequence that begins with tokens, 1 to the number of positions of the cache, and returns its identifier.
func (g *Generator) Add(tokens []int32, config SequenceConfig) (uint64, error) {
	var id C.uint64_t
	err := g.call(func(own *memory, generator *C.weft_generator, err *C.weft_error) C.weft_status {
		var c C.weft_sequence_config
		config.fill(&c, own)
		if config.Choose != nil {
			C.weft_go_set_choose(&c, newPayload(&chooser{choose: config.Choose, thread: g.run.choosing}))
		}
		status := C.weft_generator_add(generator, array(own, tokens, toToken), C.size_t(len(tokens)), &c, &id, err)
		if config.Choose != nil {
			g.run.choosers[uint64(id)] = c.payload
		}
		if status < 0 {
			_ = g.run.freeChooser(0) // id is not set
			return status
		}
		g.run.sequences++
		return status
	})
	return uint64(id), err
}

func toToken(token int32) C.int32_t { return C.int32_t(token) }

// Remove ends a sequence. Its tokens that have not been polled are dropped.
func (g *Generator) Remove(sequence uint64) error {
	return g.call(func(_ *memory, generator *C.weft_generator, err *C.weft_error) C.weft_status {
		status := C.weft_generator_remove(generator, C.uint64_t(sequence), err)
		if status >= 0 {
			g.run.sequences--
			_ = g.run.freeChooser(sequence)
		}
		return status
	})
}

// Poll waits for the next token, at most for that time; a negative time is no limit. The second result is false if the time has passed or the
// generator has no sequence. EDATA: a logit is NaN, or the largest one is not finite. EUSER: Choose has failed. Then Token.Sequence has ended, and
// the others continue.
func (g *Generator) Poll(timeout time.Duration) (token Token, found bool, err error) {
	ctx := g.ctx
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	poll := func() (done bool, err error) {
		token, found, done, err = g.poll(ctx)
		return done, err
	}
	if done, err := poll(); done || err != nil || timeout == 0 {
		return token, found, err
	}
	if err = g.run.acquire(ctx); err == nil {
		defer g.run.release()
		err = g.run.await(ctx, poll)
	}
	switch err {
	case context.DeadlineExceeded:
		err = nil
	case context.Canceled:
		err = errGeneratorClosed()
	}
	return token, found, err
}

// poll takes a token, if there is one. done: there is one, or the generator has no sequence.
func (g *Generator) poll(ctx context.Context) (token Token, found, done bool, err error) {
	limit := time.Duration(0)
	if g.run.computes {
		limit = computeTime
		if end, is := ctx.Deadline(); is && time.Until(end) < limit {
			limit = 0 // computes one job at a time
		}
	}
	var cause error
	err = g.call(func(_ *memory, generator *C.weft_generator, err *C.weft_error) C.weft_status {
		c := C.weft_token{size: C.sizeof_weft_token}
		status := C.weft_generator_poll(generator, &c, C.int64_t(limit), err)
		found = status > 0
		failed := (status == C.WEFT_EDATA || status == C.WEFT_EUSER) && c.sequence != 0 // its sequence has ended
		if found || failed {
			token = Token{SequenceEnd(c.end), uint64(c.sequence), uint64(c.index), int32(c.token)}
		}
		if token.End != SequenceContinues || failed {
			g.run.sequences--
			cause = g.run.freeChooser(token.Sequence)
		}
		done = found || g.run.sequences == 0
		return status
	})
	if e, ok := err.(*Error); ok && cause != nil {
		e.Cause = cause
	}
	return token, found, done, err
}
