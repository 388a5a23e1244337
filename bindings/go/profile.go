package weft

/*
#include <weft.h>
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
)

// ProfileConfig configures NewProfile.
type ProfileConfig struct {
	MicroBatchSize int    // samples, that of the plans which use the profile; default: 4
	Repeats        int    // micro-batches that are measured; default: 10
	Threads        int    // default: 1
	Precision      string // "f32" or "bf16", that of the plans which use the profile; default: "f32"
	F32Nodes       string // as in PlanConfig, that of the plans which use the profile
}

// Profile is measured times of the kernels of each node of a model.
type Profile struct {
	mu sync.RWMutex // Close waits for other calls
	c  *C.weft_profile
}

// NewProfile runs every kernel of the model on random data. The model cannot be changed afterwards.
func NewProfile(model *Model, config ProfileConfig) (*Profile, error) {
	profile := &Profile{}
	err := model.call(func(own *memory, m *C.weft_model, err *C.weft_error) C.weft_status {
		var c C.weft_profile_config
		C.weft_profile_config_init(&c, C.sizeof_weft_profile_config)
		own.setCount(&c.micro_batch_size, "micro_batch_size", config.MicroBatchSize)
		own.setCount(&c.repeats, "repeats", config.Repeats)
		own.setCount(&c.threads, "threads", config.Threads)
		setText(&c.precision, own.str(config.Precision))
		setText(&c.f32_nodes, own.str(config.F32Nodes))
		return C.weft_profile_new(m, &c, &profile.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(profile, (*Profile).Close)
	return profile, nil
}

// LoadProfile reads a file of Profile.Save.
func LoadProfile(path string) (*Profile, error) {
	profile := &Profile{}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_profile_load(own.text(path), &profile.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(profile, (*Profile).Close)
	return profile, nil
}

func (p *Profile) borrow(own *memory) *C.weft_profile {
	if p == nil {
		own.refuse(errNil("profile"))
	}
	return borrow(own, p.mu.RLocker(), &p.c, "profile")
}

// Close frees the profile.
func (p *Profile) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	C.weft_profile_free(p.c)
	p.c = nil
	runtime.SetFinalizer(p, nil)
	return nil
}

// Save writes the profile as JSON and replaces the file at path.
func (p *Profile) Save(path string) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_profile_save(p.borrow(own), own.text(path), err)
	})
}

// NodeTimes is the medians of a node for one micro-batch, and the size of its results.
type NodeTimes struct {
	Name                    string
	Forward, Input, Weight  time.Duration // forward pass, gradients of the inputs, gradients of the parameters
	OutputBytes, StashBytes uint64
}

// Nodes describes the nodes of the model, without its inputs.
func (p *Profile) Nodes() []NodeTimes {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]NodeTimes, C.weft_profile_nodes(p.c))
	c := C.weft_node_times{size: C.sizeof_weft_node_times}
	for i := range out {
		C.weft_profile_node(p.c, count(i), &c)
		out[i] = NodeTimes{C.GoString(c.name), time.Duration(c.forward_ns), time.Duration(c.input_ns), time.Duration(c.weight_ns),
			uint64(c.output_bytes), uint64(c.stash_bytes)}
	}
	return out
}

// Cluster is a description of machines and links, which need not be this machine. weft-plan(1) describes the file.
type Cluster struct {
	mu sync.RWMutex // Close waits for other calls
	c  *C.weft_cluster
}

// LoadCluster reads a cluster file.
func LoadCluster(path string) (*Cluster, error) {
	cluster := &Cluster{}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_cluster_load(own.text(path), &cluster.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(cluster, (*Cluster).Close)
	return cluster, nil
}

// Close frees the cluster.
func (k *Cluster) Close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	C.weft_cluster_free(k.c)
	k.c = nil
	runtime.SetFinalizer(k, nil)
	return nil
}

// Ranks returns the number of ranks.
func (k *Cluster) Ranks() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return int(C.weft_cluster_ranks(k.c))
}
