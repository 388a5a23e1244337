package weft

/*
#include <weft.h>
*/
import "C"

import (
	"runtime"
	"time"
)

// SequenceConfig says how a sequence is continued. The filters apply after the temperature: TopK, then TopP, then MinP.
type SequenceConfig struct {
	Temperature       float64 // of the random choice; 0: always the most likely token
	TopK              int     // choose among that many of the most likely tokens; 0: all
	TopP              float64 // choose among the fewest most likely tokens that together have this probability
	MinP              float64 // choose among tokens of at least this part of the probability of the most likely one
	RepetitionPenalty float64 // divides positive logits of tokens of the sequence, and multiplies others
	Seed, Number      uint64  // of random choices, with the index of the token
	First             uint64  // index of the first token that is added
	Limit             uint64  // tokens to add; 0: as many as the cache has positions for
	Stops             []int32 // tokens that end the sequence
}

// DefaultSequenceConfig returns the defaults.
func DefaultSequenceConfig() SequenceConfig {
	var c C.weft_sequence_config
	C.weft_sequence_config_init(&c, C.sizeof_weft_sequence_config)
	return SequenceConfig{
		Temperature: float64(c.temperature), TopK: int(c.top_k), TopP: float64(c.top_p), MinP: float64(c.min_p),
		RepetitionPenalty: float64(c.repetition_penalty), Seed: uint64(c.seed), Number: uint64(c.number), First: uint64(c.first),
		Limit: uint64(c.limit),
	}
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

// Generator continues sequences of tokens with the run of a decoder. It is used by one goroutine at a time; until it is closed, no other call
// uses the run.
type Generator struct {
	c   *C.weft_generator
	run *Run
}

// NewGenerator creates a generator of a run whose model is of NewDecoder. The run is idle.
func NewGenerator(run *Run) (*Generator, error) {
	g, err := &Generator{run: run}, newError()
	run.mu.Lock()
	defer run.mu.Unlock()
	if err := failed(C.weft_generator_new(run.c, &g.c, err), err); err != nil {
		return nil, err
	}
	runtime.KeepAlive(run)
	return g, nil
}

// Close ends the generator, after a step in progress. It is called before the run is closed.
func (g *Generator) Close() {
	if g == nil {
		return
	}
	C.weft_generator_free(g.c)
	g.c = nil
}

// Add adds a sequence that begins with tokens, 1 to the number of positions of the cache, and returns its identifier.
func (g *Generator) Add(tokens []int32, config SequenceConfig) (uint64, error) {
	var own memory
	defer own.free()
	var c C.weft_sequence_config
	C.weft_sequence_config_init(&c, C.sizeof_weft_sequence_config)
	c.temperature, c.top_k, c.top_p, c.min_p = C.double(config.Temperature), count(config.TopK), C.double(config.TopP), C.double(config.MinP)
	c.repetition_penalty, c.seed, c.number = C.double(config.RepetitionPenalty), C.uint64_t(config.Seed), C.uint64_t(config.Number)
	c.first, c.limit = C.uint64_t(config.First), C.uint64_t(config.Limit)
	c.stops, c.n_stops = array(&own, config.Stops, toToken), count(len(config.Stops))
	var id C.uint64_t
	err := newError()
	status := C.weft_generator_add(g.c, array(&own, tokens, toToken), C.size_t(len(tokens)), &c, &id, err)
	return uint64(id), failed(status, err)
}

func toToken(token int32) C.int32_t { return C.int32_t(token) }

// Remove ends a sequence. Its tokens that have not been polled are dropped.
func (g *Generator) Remove(sequence uint64) error {
	err := newError()
	return failed(C.weft_generator_remove(g.c, C.uint64_t(sequence), err), err)
}

// Poll waits for the next token, at most for that time; a negative time is no limit. The second result is false if the time has passed or the
// generator has no sequence.
func (g *Generator) Poll(timeout time.Duration) (Token, bool, error) {
	c, err := C.weft_token{size: C.sizeof_weft_token}, newError()
	status := C.weft_generator_poll(g.c, &c, C.int64_t(timeout), err)
	if status <= 0 {
		return Token{}, false, failed(status, err)
	}
	return Token{SequenceEnd(c.end), uint64(c.sequence), uint64(c.index), int32(c.token)}, true, nil
}
