//! Meshes: the processes of a run.
use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_sys as sys;

use crate::error::{attempt, c_string, initialized, nanoseconds, number, pointer_of, secret, text_of, Error, Result, Status};
use crate::plan::Plan;
use crate::run_builder::ServiceBuilder;
use crate::spawn::Processes;

/// The mesh of the library. Its owner and cancellers refer to it.
pub(crate) struct MeshHandle {
    raw: NonNull<sys::weft_mesh>,
    /// Runs that were not dropped.
    runs: AtomicUsize,
    /// The run has started.
    started: AtomicBool,
    /// The run has started, was canceled or has ended: a process that ends does not cancel the mesh.
    settled: AtomicBool,
    /// Why the mesh was canceled.
    lost: Mutex<Option<String>>,
}

// The functions of a mesh may be called on any thread, except for serve, which requires `&mut Mesh`, and free.
unsafe impl Send for MeshHandle {}
unsafe impl Sync for MeshHandle {}

impl Drop for MeshHandle {
    fn drop(&mut self) {
        unsafe { sys::weft_mesh_free(self.raw.as_ptr()) }
    }
}

impl MeshHandle {
    pub(crate) fn has_run(&self) -> bool {
        self.runs.load(SeqCst) > 0
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started.load(SeqCst)
    }

    /// Ends the time in which a process that ends cancels the mesh.
    pub(crate) fn settle(&self) {
        self.settled.store(true, SeqCst);
    }

    /// The run has started. The library now notices the end of a process.
    pub(crate) fn starts(&self) {
        self.started.store(true, SeqCst);
        self.settle();
    }

    /// Cancels the mesh, unless it is settled, and reports whether it does. The text is that of the failure of the start or the service.
    pub(crate) fn lose(&self, text: String) -> bool {
        if self.settled.swap(true, SeqCst) {
            return false;
        }
        *self.lost.lock().unwrap() = Some(text);
        unsafe { sys::weft_mesh_cancel(self.raw.as_ptr()) }
        true
    }

    /// The failure because of which the mesh was canceled, if that is the reason of `error`.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &*self.lost.lock().unwrap() {
            Some(text) if error.status() == Status::Canceled => Error::new(Status::Peer, text.as_str()),
            _ => error,
        }
    }
}

/// A mesh with its processes, which end with it. Only a [`Mesh`] and its runs refer to it.
pub(crate) struct MeshOwner {
    pub(crate) handle: Arc<MeshHandle>,
    /// Of [`Mesh::spawn`].
    pub(crate) processes: Processes,
}

impl MeshOwner {
    /// Ends the processes of a run that has not started, before they notice its end as a failure.
    pub(crate) fn kill_unstarted(&self) {
        self.handle.settle();
        if !self.handle.has_started() {
            self.processes.kill();
        }
    }
}

impl Drop for MeshOwner {
    fn drop(&mut self) {
        self.kill_unstarted();
        let _ = self.processes.end(self.handle.has_started()); // Mesh::wait returns failures
    }
}

/// The mesh of a run.
pub(crate) struct MeshOfRun(Arc<MeshOwner>);

impl MeshOfRun {
    pub(crate) fn new(mesh: &Mesh) -> MeshOfRun {
        mesh.owner.handle.runs.fetch_add(1, SeqCst);
        MeshOfRun(mesh.owner())
    }

    /// Before the run is freed.
    pub(crate) fn ends(&self) {
        self.0.kill_unstarted();
    }
}

impl std::ops::Deref for MeshOfRun {
    type Target = MeshHandle;

    fn deref(&self) -> &MeshHandle {
        &self.0.handle
    }
}

impl Drop for MeshOfRun {
    fn drop(&mut self) {
        self.runs.fetch_sub(1, SeqCst);
    }
}

/// The processes of a run. Rank 0, the controller, listens and starts the run; every other process joins and serves.
///
/// ```
/// use weft::{Desc, Mesh, Mode, Model, Plan, Run, Tensor};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 1]))?;
/// # let hidden = model.linear("hidden", x, 4)?;
/// # let out = model.linear("out", hidden, 1)?;
/// # model.binary("mse", out, x)?;
/// let plan = Plan::builder().ranks(2).build(&mut model)?;
/// let mesh = Mesh::builder().listen()?;
/// let endpoint = mesh.join_endpoint();
/// // Usually this is another process.
/// let other = std::thread::spawn(move || Mesh::builder().endpoint(&endpoint).join()?.serve(None));
/// let mut run = Run::builder(&plan).mesh(&mesh).start()?;
/// run.step(&[Tensor::from_vec([32, 1], vec![1.0f32; 32])?], Mode::Train)?;
/// drop(run);
/// other.join().unwrap()?;
/// # Ok::<(), weft::Error>(())
/// ```
pub struct Mesh {
    owner: Arc<MeshOwner>,
}

impl Mesh {
    /// Begins the settings of a mesh.
    pub fn builder() -> MeshBuilder {
        MeshBuilder {
            raw: unsafe { initialized(sys::weft_mesh_config_init) },
            rank: None,
            endpoint: Ok(None),
            listen: Ok(None),
            key: Ok(None),
            allow: Ok(None),
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::weft_mesh {
        self.owner.handle.raw.as_ptr()
    }

    pub(crate) fn handle(&self) -> Arc<MeshHandle> {
        self.owner.handle.clone()
    }

    pub(crate) fn owner(&self) -> Arc<MeshOwner> {
        self.owner.clone()
    }

    /// The endpoint of this process.
    pub fn endpoint(&self) -> String {
        unsafe { text_of(sys::weft_mesh_endpoint(self.raw())) }
    }

    /// Rank 0: the endpoint with which other processes join. Over tcp it contains keys; keep it secret.
    pub fn join_endpoint(&self) -> String {
        unsafe { text_of(sys::weft_mesh_join_endpoint(self.raw())) }
    }

    /// Cancels the run from any thread. A run of one rank can be cancelled if it has a mesh: `Mesh::builder().listen()`.
    pub fn canceller(&self) -> Canceller {
        Canceller { handle: self.handle() }
    }

    /// Any rank except 0: joins, receives a rank, model and plan, and serves until the run ends. `plan`: of a process that made the plan
    /// itself; if it differs from that of rank 0, the failure names the section. [`Mesh::service`] has more settings.
    pub fn serve<'a>(&'a mut self, plan: impl Into<Option<&'a Plan>>) -> Result<()> {
        self.service().plan(plan).serve()
    }

    /// Begins the settings of a process that serves.
    pub fn service(&mut self) -> ServiceBuilder<'_> {
        ServiceBuilder::new(self)
    }
}

/// Cancels the run of a mesh from any thread.
#[derive(Clone)]
pub struct Canceller {
    handle: Arc<MeshHandle>,
}

impl Canceller {
    /// Ends all present and future calls on the mesh in this process with [`Status::Canceled`](crate::Status::Canceled). The run ends on
    /// the other ranks as well.
    pub fn cancel(&self) {
        self.handle.settle();
        unsafe { sys::weft_mesh_cancel(self.handle.raw.as_ptr()) }
    }
}

/// The settings of a mesh. `man weft_mesh_listen` describes them.
#[must_use = "a mesh is made by `listen` or `join`"]
pub struct MeshBuilder {
    raw: sys::weft_mesh_config,
    rank: Option<u32>,
    endpoint: Result<Option<CString>>,
    listen: Result<Option<CString>>,
    key: Result<Option<CString>>,
    allow: Result<Option<CString>>,
}

impl MeshBuilder {
    /// listen: "ipc://", "ipc://PATH" or "tcp://ADDR:PORT". join: the result of [`Mesh::join_endpoint`] of rank 0. Default: "ipc://".
    pub fn endpoint(mut self, endpoint: &str) -> Self {
        self.endpoint = secret("the endpoint", endpoint).map(Some);
        self
    }

    /// join: where other ranks reach this process. Default: an address on the route to rank 0.
    pub fn listen_at(mut self, address: &str) -> Self {
        self.listen = c_string(address).map(Some);
        self
    }

    /// join: the requested rank, 1 or more. Default: rank 0 assigns one.
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Time until all ranks have joined. Default: 60 s.
    pub fn join_timeout(mut self, time: Duration) -> Self {
        self.raw.join_timeout_ns = nanoseconds(time);
        self
    }

    /// A rank that sends no frame for this time is lost. Default: 5 s.
    pub fn peer_timeout(mut self, time: Duration) -> Self {
        self.raw.peer_timeout_ns = nanoseconds(time);
        self
    }

    /// tcp: the secret key of this process. Default: a new key.
    pub fn key(mut self, key: &str) -> Self {
        self.key = secret("the secret key", key).map(Some);
        self
    }

    /// listen, tcp: public keys of processes that may join, one per line.
    pub fn allow(mut self, public_keys: &str) -> Self {
        self.allow = c_string(public_keys).map(Some);
        self
    }

    /// tcp without encryption: any process that reaches rank 0 may join. All ranks of the run require it.
    pub fn insecure(mut self) -> Self {
        self.raw.flags |= sys::WEFT_MESH_INSECURE;
        self
    }

    /// Rank 0: listens, on a thread of the library.
    pub fn listen(self) -> Result<Mesh> {
        self.make(sys::weft_mesh_listen)
    }

    /// Any other rank: opens its endpoint. [`Mesh::serve`] connects to rank 0.
    pub fn join(self) -> Result<Mesh> {
        self.make(sys::weft_mesh_join)
    }

    fn make(mut self, call: MakeMesh) -> Result<Mesh> {
        let (endpoint, listen, key, allow) = (self.endpoint?, self.listen?, self.key?, self.allow?);
        self.raw.endpoint = pointer_of(&endpoint);
        self.raw.listen = pointer_of(&listen);
        self.raw.key = pointer_of(&key);
        self.raw.allow = pointer_of(&allow);
        if let Some(rank) = self.rank {
            self.raw.rank = number("rank", rank)?;
        }
        let mut raw = null_mut();
        attempt(|err| unsafe { call(&self.raw, &mut raw, err) })?;
        let raw = NonNull::new(raw).expect("a call that succeeds makes a mesh");
        let handle = Arc::new(MeshHandle {
            raw,
            runs: AtomicUsize::new(0),
            started: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            lost: Mutex::new(None),
        });
        Ok(Mesh { owner: Arc::new(MeshOwner { handle, processes: Processes::default() }) })
    }
}

type MakeMesh =
    unsafe extern "C" fn(*const sys::weft_mesh_config, *mut *mut sys::weft_mesh, *mut sys::weft_error) -> sys::weft_status;

fn key(call: impl FnOnce(*mut c_char, *mut sys::weft_error) -> sys::weft_status) -> Result<String> {
    let mut text = [0 as c_char; sys::WEFT_KEY_SIZE as usize];
    attempt(|err| call(text.as_mut_ptr(), err))?;
    Ok(unsafe { text_of(text.as_ptr()) })
}

/// A new secret key.
pub fn new_key() -> Result<String> {
    key(|text, err| unsafe { sys::weft_key_new(text, err) })
}

/// The public key of a secret key.
pub fn public_key(secret: &str) -> Result<String> {
    let secret = crate::error::secret("the secret key", secret)?;
    key(|text, err| unsafe { sys::weft_key_public(secret.as_ptr(), text, err) })
}
