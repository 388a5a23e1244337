package weft

/*
#include <weft.h>
*/
import "C"

import (
	"runtime"
	"sync"
)

// LongSamples is what is done with a sample of NAME.jsonl that has more than SeqLen + 1 tokens.
type LongSamples uint32

const (
	RefuseLong LongSamples = C.WEFT_LONG_REFUSE // the data is refused
	CutLong    LongSamples = C.WEFT_LONG_CUT    // its end is cut off; it is left out if it has no target before the cut
	SkipLong   LongSamples = C.WEFT_LONG_SKIP   // it is left out
)

// DataConfig configures the data of a preset.
type DataConfig struct {
	Path               string      // bytes, ids (NAME.u16 or NAME.u32), or with Tokenizer a text or samples (NAME.jsonl); "": synthetic data
	EvalPath           string      // a file of held-out data
	EvalShare          float64     // without EvalPath: this share at the end of Path is held out
	Vocabulary, SeqLen int         // of tokens; 0: rows of numbers, and Path is ""
	Width              int         // of rows
	Tokenizer          *Tokenizer  // for text; used only by OpenData
	EndToken           *int32      // NAME.jsonl: the token after each completion and text that does not end with it; nil: none
	Packed             bool        // NAME.jsonl: a window may have several samples, for NewPacked
	LongSamples        LongSamples // NAME.jsonl: what is done with samples that are too long; default: RefuseLong
}

// Data returns the data configuration of a preset; a program adds the paths.
func (p PresetInfo) Data() DataConfig {
	return DataConfig{Vocabulary: p.Vocabulary, SeqLen: p.SeqLen, Width: p.Width}
}

// Data is training data of a preset.
type Data struct {
	mu sync.RWMutex // Close waits for other calls
	c  *C.weft_data
}

// OpenData opens training data. A file is refused if it is too short or contains an id that is not in the vocabulary.
func OpenData(config DataConfig) (*Data, error) {
	data := &Data{}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		var c C.weft_data_config
		C.weft_data_config_init(&c, C.sizeof_weft_data_config)
		c.path, c.eval_path, c.eval_share = own.str(config.Path), own.str(config.EvalPath), C.double(config.EvalShare)
		c.vocabulary, c.seq_len, c.width = C.int64_t(config.Vocabulary), C.int64_t(config.SeqLen), C.int64_t(config.Width)
		c.packed, c.long_samples = flag(config.Packed), C.weft_long_samples(config.LongSamples)
		if config.EndToken != nil {
			c.end_token = C.int32_t(*config.EndToken)
		}
		if config.Tokenizer != nil {
			c.tokenizer = config.Tokenizer.borrow(own)
		}
		return C.weft_data_open(&c, &data.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(data, (*Data).Close)
	return data, nil
}

func (d *Data) borrow(own *memory) *C.weft_data { return borrow(own, d.mu.RLocker(), &d.c, "data") }

// Close frees the data.
func (d *Data) Close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	C.weft_data_free(d.c)
	d.c = nil
	runtime.SetFinalizer(d, nil)
	return nil
}

// Sample fills the two inputs of a preset with samples, drawn for (seed, step, sample).
func (d *Data) Sample(seed, step uint64, x, target *Tensor) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_data_sample(d.borrow(own), C.uint64_t(seed), C.uint64_t(step), x.borrow(own), target.borrow(own), err)
	})
}

// Positions fills the third input of NewPacked for the windows of Sample: the position of each token in its sequence.
func (d *Data) Positions(seed, step uint64, positions *Tensor) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_data_positions(d.borrow(own), C.uint64_t(seed), C.uint64_t(step), positions.borrow(own), err)
	})
}

// EvalPositions fills the third input of NewPacked for the windows of Eval.
func (d *Data) EvalPositions(first int, positions *Tensor) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_data_eval_positions(d.borrow(own), C.int64_t(first), positions.borrow(own), err)
	})
}

// Windows returns the number of windows of an epoch; 0: there is no file for training.
func (d *Data) Windows() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int(C.weft_data_windows(d.c))
}

// EvalWindows returns the number of consecutive windows of held-out data; 0: there is none.
func (d *Data) EvalWindows() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int(C.weft_data_eval_windows(d.c))
}

// CutSamples returns the number of samples, training and held out, of which CutLong has cut the end off.
func (d *Data) CutSamples() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int(C.weft_data_cut_samples(d.c))
}

// SkippedSamples returns the number of samples, training and held out, that CutLong and SkipLong have left out.
func (d *Data) SkippedSamples() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int(C.weft_data_skipped_samples(d.c))
}

// Eval fills the two inputs with held-out windows, starting at first.
func (d *Data) Eval(first int, x, target *Tensor) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_data_eval(d.borrow(own), C.int64_t(first), x.borrow(own), target.borrow(own), err)
	})
}
