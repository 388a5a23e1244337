package weft

/*
#include <weft.h>
*/
import "C"

import (
	"context"
	"runtime"
	"sort"
	"sync"
	"unsafe"
)

// SaveConfig configures Run.Save and Run.SubmitSave.
type SaveConfig struct {
	Model   string            // the text of a preset, from which a reader can make the model
	Options map[string]string // stored with the checkpoint
}

// Save writes parameters, optimizer state, seed, settings and the number of steps as a checkpoint in a directory, and waits for its end. The
// checkpoint appears complete or not at all. A failure does not affect the run or earlier checkpoints. Only between steps, see Step.
func (r *Run) Save(ctx context.Context, directory string, config SaveConfig) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.release()
	if err := r.settle(ctx); err != nil {
		return err
	}
	if err := r.submitSave(directory, config, ownTag); err != nil {
		return err
	}
	for {
		event, err := r.takeOwn(ctx)
		if err != nil {
			r.leave()
			return err
		}
		if event.Kind == SavedEvent || event.Kind == ErrorEvent {
			return event.Err
		}
	}
}

// SubmitSave queues a save, also during steps: the checkpoint contains the steps that were submitted before it and none that were submitted
// later. Exactly one SavedEvent with this tag follows.
func (r *Run) SubmitSave(directory string, config SaveConfig, tag uint64) error {
	if tag == ownTag {
		return errTag
	}
	return r.submitSave(directory, config, tag)
}

func (r *Run) submitSave(directory string, config SaveConfig, tag uint64) error {
	keys := make([]string, 0, len(config.Options))
	for key := range config.Options {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return r.call(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		var c C.weft_save_config
		C.weft_save_config_init(&c, C.sizeof_weft_save_config)
		c.directory, c.model, c.n_options = own.text(directory), own.str(config.Model), count(len(keys))
		c.options = array(own, keys, func(key string) C.weft_pair {
			return C.weft_pair{key: own.text(key), value: own.text(config.Options[key])}
		})
		c.flags, c.tag = C.WEFT_SAVE_QUEUE, C.uint64_t(tag)
		status := C.weft_run_save(run, &c, err)
		if status >= 0 {
			r.unfinished++
		}
		return status
	})
}

// Export writes all parameters as one safetensors file. Only between steps, see Step.
func (r *Run) Export(path string) error {
	return r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_export(run, own.text(path), err)
	})
}

// Load loads parameters, optimizer state and the number of steps by name. The run then continues bit for bit with any number of ranks, if its
// plan has the seed, optimizer, micro-batches, gradient groups and tensor pieces of the run that was saved. Only between steps, see Step.
func (r *Run) Load(checkpoint *Checkpoint) error { return r.load(checkpoint, C.WEFT_LOAD_ALL) }

// LoadWeights loads only the parameters.
func (r *Run) LoadWeights(checkpoint *Checkpoint) error {
	return r.load(checkpoint, C.WEFT_LOAD_WEIGHTS)
}

// LoadExcept loads only the parameters, but not those whose names match a pattern: these keep their values, and the checkpoint may lack them
// or have other shapes. Patterns are separated by commas; "*" is any text, "?" any character.
func (r *Run) LoadExcept(checkpoint *Checkpoint, kept string) error {
	return r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_load_except(run, checkpoint.borrow(own), own.text(kept), err)
	})
}

func (r *Run) load(checkpoint *Checkpoint, what C.weft_load) error {
	return r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_load(run, checkpoint.borrow(own), what, err)
	})
}

// Digest returns 32 hex digits, a hash over all parameters: runs with the same parameters have the same digest. It is not a cryptographic hash.
// Only between steps, see Step.
func (r *Run) Digest() (string, error) {
	var digest [33]C.char
	err := r.between(func(_ *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_digest(run, &digest[0], err)
	})
	return C.GoString(&digest[0]), err
}

// OptimizerDigest is Digest over the optimizer state.
func (r *Run) OptimizerDigest() (string, error) {
	var digest [33]C.char
	err := r.between(func(_ *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_optimizer_digest(run, &digest[0], err)
	})
	return C.GoString(&digest[0]), err
}

// Resident returns the bytes of the tensors of a rank that are in memory; compare Plan.Bytes. Only between steps, see Step.
func (r *Run) Resident(rank int) (int64, error) {
	var bytes C.int64_t
	err := r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_resident(run, own.unsigned("rank", rank), &bytes, err)
	})
	return int64(bytes), err
}

// Trace makes every rank record the times of its next jobs; 0: stop. Only between steps, see Step.
func (r *Run) Trace(jobs int) error {
	return r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_trace(run, own.unsigned("jobs", jobs), err)
	})
}

// SaveTrace writes the records as a Chrome trace (JSON, for Perfetto). Only between steps, see Step.
func (r *Run) SaveTrace(path string) error {
	return r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_save_trace(run, own.text(path), err)
	})
}

// Profile returns a profile with the times that the run has recorded since Trace, in at least five training steps. Only between steps, see Step.
func (r *Run) Profile(profile *Profile) (*Profile, error) {
	out := &Profile{}
	err := r.between(func(own *memory, run *C.weft_run, err *C.weft_error) C.weft_status {
		return C.weft_run_profile(run, profile.borrow(own), &out.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(out, (*Profile).Close)
	return out, nil
}

// Checkpoint is an open checkpoint or safetensors file.
type Checkpoint struct {
	mu sync.Mutex
	c  *C.weft_checkpoint
}

// OpenCheckpoint opens a checkpoint, a safetensors file, the latest intact checkpoint of a directory, or a directory that Transformers or PEFT
// wrote.
func OpenCheckpoint(path string) (*Checkpoint, error) {
	checkpoint := &Checkpoint{}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_checkpoint_open(own.text(path), &checkpoint.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(checkpoint, (*Checkpoint).Close)
	return checkpoint, nil
}

func (k *Checkpoint) borrow(own *memory) *C.weft_checkpoint {
	if k == nil {
		own.refuse(errNil("checkpoint"))
	}
	return borrow(own, &k.mu, &k.c, "checkpoint")
}

// Close frees the checkpoint.
func (k *Checkpoint) Close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	C.weft_checkpoint_free(k.c)
	k.c = nil
	runtime.SetFinalizer(k, nil)
	return nil
}

// CheckpointInfo describes a checkpoint.
type CheckpointInfo struct {
	WeightsOnly bool   // a safetensors file, or a directory of Transformers or PEFT; Seed and Step are 0
	Path        string // of the checkpoint that was opened
	Model       string // SaveConfig.Model; of a directory of Transformers, a text for NewPreset
	Seed, Step  uint64
	Options     map[string]string
	Params      int // tensors: parameters
	States      int // tensors: optimizer state, after the parameters
	Warning     string
	Source      string  // the directory of KeepSource, or a directory of Transformers itself; "": there is none
	Ends        []int32 // tokens that end a text, for SequenceConfig.Stops
	Adapters    string  // of a directory of PEFT: the keys of a preset that has them
}

// Info describes the checkpoint; zeros after Close.
func (k *Checkpoint) Info() CheckpointInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := C.weft_checkpoint_info{size: C.sizeof_weft_checkpoint_info}
	if C.weft_checkpoint_describe(k.c, &c) < 0 {
		return CheckpointInfo{}
	}
	info := CheckpointInfo{
		c.weights_only != 0, C.GoString(c.path), C.GoString(c.model), uint64(c.seed), uint64(c.step), make(map[string]string),
		int(c.n_params), int(c.n_states), C.GoString(c.warning), C.GoString(c.source), nil, C.GoString(c.adapters),
	}
	for _, end := range unsafe.Slice(c.ends, c.n_ends) {
		info.Ends = append(info.Ends, int32(end))
	}
	for _, pair := range unsafe.Slice(c.options, c.n_options) {
		info.Options[C.GoString(pair.key)] = C.GoString(pair.value)
	}
	return info
}

// Tensor returns the name and shape of a tensor, and the name of its type in the file. If weft has no such type, Desc.DType is 0. The name is
// "" if index is out of range.
func (k *Checkpoint) Tensor(index int) (name string, desc Desc, dtype string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var c C.weft_desc
	var stored *C.char
	name = C.GoString(C.weft_checkpoint_tensor(k.c, count(index), &c, &stored))
	return name, fromDesc(&c), C.GoString(stored)
}

// Digest returns the hash of a tensor; index -1: of all parameters, as Run.Digest.
func (k *Checkpoint) Digest(index int) (string, error) {
	var digest [33]C.char
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_checkpoint_digest(k.borrow(own), C.int64_t(index), &digest[0], err)
	})
	return C.GoString(&digest[0]), err
}

// Export writes the parameters as one safetensors file. If the path ends with '/', it writes a directory that Transformers loads, with the
// files of KeepSource.
func (k *Checkpoint) Export(path string) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_checkpoint_export(k.borrow(own), own.text(path), err)
	})
}

// ExportConfig configures Checkpoint.ExportAs.
type ExportConfig struct {
	DType      string // type of the parameters in the files: "f32", or "bf16", to which they are rounded; default: "f32"
	ShardBytes uint64 // of a directory: bytes of the tensors in a file, which may have more only if it has one tensor; default: 5000000000
	Merge      bool   // add the adapters of the model to the weights, not write only the adapters
	Adapters   string // directory of PEFT, whose adapters are added to the model; "": none
}

// ExportAs is Export with another type or size of files, or with adapters.
func (k *Checkpoint) ExportAs(path string, config ExportConfig) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		var c C.weft_export_config
		C.weft_export_config_init(&c, C.sizeof_weft_export_config)
		setText(&c.dtype, own.str(config.DType))
		if config.ShardBytes != 0 {
			c.shard_bytes = C.uint64_t(config.ShardBytes)
		}
		c.merge = flag(config.Merge)
		setText(&c.adapters, own.str(config.Adapters))
		return C.weft_checkpoint_export_as(k.borrow(own), own.text(path), &c, err)
	})
}

// KeepSource copies the files of a model that are neither weights nor checkpoints into the directory "source" of a directory of checkpoints,
// for exports of its checkpoints: the files of a tokenizer and of special tokens. source is a directory of Transformers, or
// CheckpointInfo.Source; "": none. tokenizer is a file tokenizer.json, or its directory, which replaces that of source; "": none. The copies
// appear together, and replace earlier ones.
func KeepSource(directory, source, tokenizer string) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_checkpoint_keep_source(own.text(directory), own.str(source), own.str(tokenizer), err)
	})
}
