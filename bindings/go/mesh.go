package weft

/*
#include <weft.h>
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// AnyRank lets rank 0 assign a rank.
const AnyRank = 0

// MeshConfig configures a mesh. weft_mesh_listen(3) describes the fields.
type MeshConfig struct {
	Insecure bool // tcp without encryption: any process that reaches rank 0 may join. All ranks of the run need it
	// Endpoint is, for Listen, "ipc://", "ipc://PATH" or "tcp://ADDR:PORT" (port 0: any); default: "ipc://". For Join, the JoinEndpoint of
	// rank 0.
	Endpoint    string
	Listen      string        // Join: where other ranks reach this process; default: an address on the route to rank 0
	Rank        int           // Join: the requested rank, 1 or more, or AnyRank
	JoinTimeout time.Duration // until all ranks have joined; default: 60 s
	PeerTimeout time.Duration // a rank that sends no frame for this time is lost; default: 5 s
	Key         string        // tcp: secret key of this process
	Allow       string        // Listen, tcp: public keys of processes that may join without the keys of the join endpoint, one per line
}

func (m *MeshConfig) fill(c *C.weft_mesh_config, own *memory) {
	C.weft_mesh_config_init(c, C.sizeof_weft_mesh_config)
	if m.Insecure {
		c.flags = C.WEFT_MESH_INSECURE
	}
	setText(&c.endpoint, own.secret("the endpoint", m.Endpoint))
	setText(&c.listen, own.str(m.Listen))
	setText(&c.key, own.secret("the secret key", m.Key))
	setText(&c.allow, own.str(m.Allow))
	if m.Rank != AnyRank {
		own.checkRange("rank", int64(m.Rank), 1, math.MaxInt32)
		c.rank = C.int32_t(m.Rank)
	}
	if m.JoinTimeout != 0 {
		c.join_timeout_ns = C.int64_t(m.JoinTimeout)
	}
	if m.PeerTimeout != 0 {
		c.peer_timeout_ns = C.int64_t(m.PeerTimeout)
	}
}

// Mesh is the processes of a run. Rank 0 listens and starts the run; every other process joins and serves.
type Mesh struct {
	*meshMemory
	mu       sync.RWMutex // Close waits for other calls
	runs     sync.Map     // keys: each *Run that is not closed
	children []*child     // of Spawn
	started  atomic.Bool  // its run
	settled  atomic.Bool  // its run has started, was canceled or is closed: a process that ends does not cancel it
	lost     atomic.Pointer[Error]
}

// meshMemory is what the library allocates for a mesh, see runMemory.
type meshMemory struct {
	c *C.weft_mesh
	_ *byte // objects without pointers of Go share their memory, and with it the time at which they are finalized
}

func (m *meshMemory) free() { C.weft_mesh_free(m.c) }

// Listen makes the mesh of rank 0, which listens on a thread of the library.
func Listen(config MeshConfig) (*Mesh, error) {
	return open(&config, func(config *C.weft_mesh_config, mesh **C.weft_mesh, err *C.weft_error) C.weft_status {
		return C.weft_mesh_listen(config, mesh, err)
	})
}

// Join makes the mesh of any other rank and opens its endpoint. Serve connects to rank 0.
func Join(config MeshConfig) (*Mesh, error) {
	return open(&config, func(config *C.weft_mesh_config, mesh **C.weft_mesh, err *C.weft_error) C.weft_status {
		return C.weft_mesh_join(config, mesh, err)
	})
}

func open(config *MeshConfig, function func(*C.weft_mesh_config, **C.weft_mesh, *C.weft_error) C.weft_status) (*Mesh, error) {
	mesh := &Mesh{meshMemory: &meshMemory{}}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		var c C.weft_mesh_config
		config.fill(&c, own)
		return function(&c, &mesh.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(mesh.meshMemory, (*meshMemory).free)
	return mesh, nil
}

// Close closes the run of the mesh and frees the mesh. If Spawn started processes, Close waits for them, see Spawn.
func (m *Mesh) Close() error {
	if m == nil {
		return nil
	}
	if err := m.refuseInChoose(); err != nil {
		return err
	}
	m.endUnstarted()
	m.mu.Lock()
	closed, children := *m.meshMemory, m.children
	m.c, m.children = nil, nil
	m.mu.Unlock()
	m.runs.Range(func(run, _ any) bool {
		run.(*Run).Close()
		return true
	})
	closed.free()
	return endAll(children, m.started.Load())
}

// refuseInChoose returns an error in Choose of the run of the mesh, which the library uses then.
func (m *Mesh) refuseInChoose() (err error) {
	m.runs.Range(func(run, _ any) bool {
		err = run.(*Run).choosing.refuse()
		return err == nil
	})
	return err
}

// begins notes a run, which Close then closes. The call that has started it still borrows the mesh.
func (m *Mesh) begins(run *Run) {
	if m != nil {
		m.runs.Store(run, true)
	}
}

func (m *Mesh) ended(run *Run) {
	if m != nil {
		m.runs.Delete(run)
	}
}

// settle ends the time in which a process that ends cancels the mesh.
func (m *Mesh) settle() {
	if m != nil {
		m.settled.Store(true)
	}
}

// starts notes that the run has started. The library then notices the end of a process.
func (m *Mesh) starts() {
	if m != nil {
		m.started.Store(true)
		m.settled.Store(true)
	}
}

// endUnstarted ends the processes of a run that has not started, before they notice its end as a failure.
func (m *Mesh) endUnstarted() {
	if m == nil {
		return
	}
	m.settle()
	if m.started.Load() {
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, c := range m.children {
		_ = c.command.Process.Kill() // it may have ended
	}
}

// lose cancels the mesh, unless it is settled, and reports whether it does. The error is that of the start or the service.
func (m *Mesh) lose(err *Error) bool {
	if m.settled.Swap(true) {
		return false
	}
	m.lost.Store(err)
	m.cancel()
	return true
}

// explain returns the error because of which the mesh was canceled, if that is the reason of err.
func (m *Mesh) explain(err error) error {
	if m == nil {
		return err
	}
	lost := m.lost.Load()
	if lost == nil || !errors.Is(err, ECANCELED) {
		return err
	}
	own := *lost
	return &own
}

// Cancel ends all present and future calls on the mesh in this process with ECANCELED. The run ends on the other ranks as well.
func (m *Mesh) Cancel() {
	if m == nil {
		return
	}
	m.settle()
	m.cancel()
}

func (m *Mesh) cancel() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	C.weft_mesh_cancel(m.c)
}

// Endpoint returns the endpoint of this process.
func (m *Mesh) Endpoint() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return C.GoString(C.weft_mesh_endpoint(m.c))
}

// JoinEndpoint returns the endpoint with which other processes join rank 0. Over tcp it contains two keys: keep it secret. It is "" for a
// mesh of Join.
func (m *Mesh) JoinEndpoint() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return C.GoString(C.weft_mesh_join_endpoint(m.c))
}

// borrow returns NULL for a nil mesh.
func (m *Mesh) borrow(own *memory) *C.weft_mesh {
	if m == nil {
		return nil
	}
	return borrow(own, m.mu.RLocker(), &m.c, "mesh")
}

// Serve joins the run of rank 0 and serves until the run ends. It returns nil after a normal end. plan is for a process that made the plan
// itself, and may be nil. ops is a model whose ops in Go are available here, and may be nil. If ctx ends, the rank leaves, the run fails on the
// other ranks, and Serve returns the error of ctx.
func (m *Mesh) Serve(ctx context.Context, plan *Plan, ops *Model, config RunConfig) error {
	run, err := m.ServeNoWait(plan, ops, config)
	if err != nil {
		return err
	}
	defer run.Close()
	return run.waitFor(ctx, EndedEvent)
}

// ServeNoWait is Serve that returns at once. The events of the run are JoinedEvent with the rank of this process, StartedEvent, and finally
// EndedEvent or FailedEvent. Only Poll, Events and Close of the run are possible.
func (m *Mesh) ServeNoWait(plan *Plan, ops *Model, config RunConfig) (*Run, error) {
	run := newRun(m, EndedEvent)
	return run.open(plan, config, func(own *memory, plan *C.weft_plan, c *C.weft_run_config, err *C.weft_error) C.weft_status {
		var model *C.weft_model
		if ops != nil {
			model = ops.borrow(own)
			run.ops = append(run.ops[:len(run.ops):len(run.ops)], ops.ops...)
		}
		return C.weft_run_join(m.borrow(own), plan, model, c, &run.c, err)
	})
}

// NewKey returns a new secret key for MeshConfig.Key.
func NewKey() (string, error) {
	var secret [C.WEFT_KEY_SIZE]C.char
	err := newError()
	if err := failed(C.weft_key_new(&secret[0], err), err); err != nil {
		return "", err
	}
	return C.GoString(&secret[0]), nil
}

// PublicKey returns the public key of a secret key.
func PublicKey(secret string) (string, error) {
	var public [C.WEFT_KEY_SIZE]C.char
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_key_public(own.secret("the secret key", secret), &public[0], err)
	})
	return C.GoString(&public[0]), err
}
