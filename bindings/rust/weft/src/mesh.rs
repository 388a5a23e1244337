//! Meshes: the processes of a run.
use std::ffi::CString;
use std::os::raw::c_char;
use std::process::{Child, Command};
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;
use std::time::Duration;

use weft_sys as sys;

use crate::error::{attempt, c_string, initialized, nanoseconds, number, pointer_of, text_of, Error, Result, Status};
use crate::plan::Plan;
use crate::run_builder::ServiceBuilder;

/// The mesh of the library. Runs and cancellers refer to it.
pub(crate) struct MeshHandle {
    raw: NonNull<sys::weft_mesh>,
}

// The functions of a mesh may be called on any thread, except for serve, which requires `&mut Mesh`, and free.
unsafe impl Send for MeshHandle {}
unsafe impl Sync for MeshHandle {}

impl Drop for MeshHandle {
    fn drop(&mut self) {
        unsafe { sys::weft_mesh_free(self.raw.as_ptr()) }
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
    handle: Arc<MeshHandle>,
    processes: Vec<Child>,
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

    /// Runs all ranks of a plan in processes of this machine, and returns the mesh of rank 0.
    ///
    /// The program is started again with the same arguments, once for each rank except rank 0. Each copy makes the same plan and calls this
    /// function as well; there, it serves until the run ends, and then exits. [`Mesh::wait`] waits for the copies.
    ///
    /// Call it before the program starts threads: a copy removes the variable `WEFT_JOIN` from its environment, which other threads must not
    /// read at the same time.
    ///
    /// ```no_run
    /// # fn main() -> weft::Result<()> {
    /// # let mut model = weft::Model::new()?;
    /// # let plan = weft::Plan::builder().ranks(4).build(&mut model)?;
    /// let mesh = weft::Mesh::spawn(&plan)?;
    /// let mut run = weft::Run::builder(&plan).mesh(&mesh).start()?;
    /// // ...
    /// drop(run);
    /// mesh.wait()
    /// # }
    /// ```
    pub fn spawn(plan: &Plan) -> Result<Mesh> {
        Mesh::builder().spawn(plan, |mesh| mesh.serve(plan))
    }

    /// Waits for the processes of [`Mesh::spawn`], which end with the run; drop it first.
    ///
    /// # Errors
    /// A process failed; it has written its error to the standard error.
    pub fn wait(mut self) -> Result<()> {
        let mut result = Ok(());
        for (index, mut process) in self.processes.drain(..).enumerate() {
            let text = match process.wait() {
                Ok(status) if status.success() => continue,
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            result = result.and(Err(Error::new(Status::Peer, format!("the process of rank {}: {text}", index + 1))));
        }
        result
    }

    pub(crate) fn raw(&self) -> *mut sys::weft_mesh {
        self.handle.raw.as_ptr()
    }

    pub(crate) fn handle(&self) -> Arc<MeshHandle> {
        self.handle.clone()
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
        self.endpoint = c_string(endpoint).map(Some);
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
    pub fn key(mut self, secret: &str) -> Self {
        self.key = c_string(secret).map(Some);
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

    /// [`Mesh::spawn`] with these settings. `serve` is what the copies of the program do, with the settings of their service:
    ///
    /// ```no_run
    /// # use weft::Mesh;
    /// # fn spawn(plan: &weft::Plan) -> weft::Result<Mesh> {
    /// Mesh::builder().spawn(plan, |mesh| mesh.service().plan(plan).threads(4).serve())
    /// # }
    /// ```
    pub fn spawn(self, plan: &Plan, serve: impl FnOnce(&mut Mesh) -> Result<()>) -> Result<Mesh> {
        if let Ok(endpoint) = std::env::var(JOIN) {
            std::env::remove_var(JOIN); // processes that this one starts are no ranks
            serve(&mut self.endpoint(&endpoint).join()?)?;
            std::process::exit(0);
        }
        let mut mesh = self.listen()?;
        for rank in 1..plan.describe()?.ranks {
            let process = std::env::current_exe().and_then(|program| {
                Command::new(program).args(std::env::args_os().skip(1)).env(JOIN, mesh.join_endpoint()).spawn()
            });
            let process = process.map_err(|error| {
                mesh.canceller().cancel();
                Error::new(Status::Io, format!("the process of rank {rank} cannot be started: {error}"))
            })?;
            mesh.processes.push(process);
        }
        Ok(mesh)
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
        Ok(Mesh { handle: Arc::new(MeshHandle { raw }), processes: Vec::new() })
    }
}

/// The endpoint of rank 0 in a process of [`Mesh::spawn`].
const JOIN: &str = "WEFT_JOIN";

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
    let secret = c_string(secret)?;
    key(|text, err| unsafe { sys::weft_key_public(secret.as_ptr(), text, err) })
}
