//! Ranks as processes of this machine, which are copies of the program.
use std::env::{args_os, current_exe, remove_var, var, var_os};
use std::io::{self, Read};
use std::os::raw::{c_int, c_uint};
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, Status};
use crate::mesh::{Mesh, MeshBuilder, MeshHandle};
use crate::plan::Plan;

/// The endpoint of rank 0 in a process of [`Mesh::spawn`].
const JOIN: &str = "WEFT_JOIN";
/// The descriptor of a socket of such a process that ends with the process of rank 0.
const PARENT: &str = "WEFT_JOIN_PARENT";

/// How long the end of a mesh waits for its processes after the end of their run.
const END_TIME: Duration = Duration::from_secs(10);

const SIGKILL: i32 = 9;
const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;
const P_PID: c_int = 1;
const WEXITED: c_int = 4;
const WNOWAIT: c_int = 0x0100_0000;

/// `siginfo_t` of Linux, which has 128 bytes.
type SignalInfo = [u64; 16];

extern "C" {
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn waitid(kind: c_int, id: c_uint, info: *mut SignalInfo, options: c_int) -> c_int;
}

/// Whether programs that this process starts inherit a descriptor.
fn set_close_on_exec(fd: RawFd, flag: c_int) -> io::Result<()> {
    if unsafe { fcntl(fd, F_SETFD, flag) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Mesh {
    /// Runs all ranks of a plan in processes of this machine, and returns the mesh of rank 0.
    ///
    /// The program is started again with the same arguments, once for each rank except rank 0. Each copy makes the same plan and calls this
    /// function as well; there, it serves until the run ends, and then exits. [`Mesh::wait`] waits for the copies. Call it once per program:
    /// a copy serves only the first call, and returns [`Status::State`] from another one.
    ///
    /// If a copy ends before the run has started, the start fails with [`Status::Peer`]. To drop the mesh and its run ends the copies, also if
    /// a [`Canceller`](crate::Canceller) is left. A copy whose rank 0 has ended leaves its run, and fails.
    ///
    /// Call it before the program starts threads: a copy removes the variables `WEFT_JOIN` and `WEFT_JOIN_PARENT` from its environment, which
    /// other threads must not read at the same time.
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

    /// Waits for the processes of [`Mesh::spawn`], which end with the run; drop it first. The call ends processes whose run has not started,
    /// and those that have not ended within 10 s after their run.
    ///
    /// # Errors
    /// [`Status::State`]: the run was not dropped. It is canceled. [`Status::Peer`]: a process failed; it has written its error to the
    /// standard error. If the run has not started, only a process that ended before the others were ended has failed.
    pub fn wait(self) -> Result<()> {
        let owner = self.owner();
        let mut result = Ok(());
        owner.kill_unstarted();
        if owner.handle.has_run() && !owner.processes.is_empty() {
            self.canceller().cancel();
            result = Err(Error::new(Status::State, "the run of the mesh is still in use; drop it before Mesh::wait"));
        }
        result.and(owner.processes.end(owner.handle.has_started()))
    }
}

/// This process is a copy of the program.
static IS_COPY: AtomicBool = AtomicBool::new(false);

impl MeshBuilder {
    /// [`Mesh::spawn`] with these settings. `serve` is what the copies of the program do, with the settings of their service:
    ///
    /// ```no_run
    /// # use weft::Mesh;
    /// # fn spawn(plan: &weft::Plan) -> weft::Result<Mesh> {
    /// Mesh::builder().spawn(plan, |mesh| mesh.service().plan(plan).threads(4).serve())
    /// # }
    /// ```
    pub fn spawn(self, plan: &Plan, serve: impl FnOnce(&mut Mesh) -> Result<()>) -> Result<Mesh> {
        if IS_COPY.load(SeqCst) {
            return Err(Error::new(
                Status::State,
                "this process is a rank of Mesh::spawn, and starts no ranks; its service has failed",
            ));
        }
        if let Ok(endpoint) = var(JOIN) {
            IS_COPY.store(true, SeqCst);
            let parent = var_os(PARENT);
            remove_var(JOIN); // processes that this one starts are no ranks
            remove_var(PARENT);
            let mut mesh = self.endpoint(&endpoint).join()?;
            if let Some(parent) = parent {
                watch_parent(&mesh, parent.to_str().and_then(|text| text.parse().ok()).unwrap_or(-1))?;
            }
            serve(&mut mesh)?;
            std::process::exit(0);
        }
        let mesh = self.listen()?;
        for rank in 1..plan.describe()?.ranks {
            let started = start(&mesh, rank);
            started.map_err(|error| Error::new(Status::Io, format!("the process of rank {rank} cannot be started: {error}")))?;
        }
        Ok(mesh)
    }
}

/// In a copy of the program: ends its run when the process of rank 0 has ended.
fn watch_parent(mesh: &Mesh, fd: RawFd) -> Result<()> {
    let failed = |error| Error::new(Status::Io, format!("{PARENT} is descriptor {fd}: {error}"));
    set_close_on_exec(fd, FD_CLOEXEC).map_err(failed)?;
    let socket = unsafe { UnixStream::from_raw_fd(fd) };
    let handle = Arc::downgrade(&mesh.handle());
    let watch = move || {
        until_closed(socket);
        lose(&handle, "the process of rank 0 has ended".into());
    };
    thread::Builder::new().name("weft-parent".into()).spawn(watch).map(drop).map_err(failed)
}

/// Waits until the process at the other end has closed the socket or has ended. It sends nothing.
fn until_closed(mut socket: UnixStream) {
    while matches!(socket.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::Interrupted) {}
}

/// Cancels the mesh, and reports whether it was not settled.
fn lose(handle: &Weak<MeshHandle>, text: String) -> bool {
    handle.upgrade().map_or(false, |handle| handle.lose(text))
}

/// Waits for the end of a process. Only then it locks the process, which can be killed before, and releases its identifier.
fn wait(child: &Mutex<Child>) -> io::Result<ExitStatus> {
    let id = child.lock().unwrap().id();
    let mut info = SignalInfo::default();
    while unsafe { waitid(P_PID, id, &mut info, WEXITED | WNOWAIT) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    child.lock().unwrap().wait()
}

/// A process of [`Mesh::spawn`].
struct Process {
    rank: u32,
    child: Arc<Mutex<Child>>,
    /// The process reads the other end.
    _parent: UnixStream,
    /// Gets one element.
    ended: Receiver<End>,
}

/// The end of a process.
struct End {
    status: io::Result<ExitStatus>,
    /// It canceled the mesh.
    cancels: bool,
}

/// Starts the process of a rank.
fn start(mesh: &Mesh, rank: u32) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let inherited = theirs.as_raw_fd();
    let mut command = Command::new(current_exe()?);
    command.args(args_os().skip(1)).env(JOIN, mesh.join_endpoint()).env(PARENT, inherited.to_string());
    unsafe { command.pre_exec(move || set_close_on_exec(inherited, 0)) };
    let child = Arc::new(Mutex::new(command.spawn()?));
    drop(theirs);
    let (send, ended) = channel();
    mesh.owner().processes.0.lock().unwrap().push(Process { rank, child: child.clone(), _parent: ours, ended });
    let handle = Arc::downgrade(&mesh.handle());
    let watch = move || {
        let status = wait(&child);
        let text = format!("the process of rank {rank} has ended: {}", text_of(&status));
        let cancels = lose(&handle, text);
        let _ = send.send(End { status, cancels });
    };
    thread::Builder::new().name("weft-child".into()).spawn(watch).map(drop)
}

fn text_of(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// The processes of a mesh.
#[derive(Default)]
pub(crate) struct Processes(Mutex<Vec<Process>>);

impl Processes {
    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    /// Ends all processes, and does not wait.
    pub(crate) fn kill(&self) {
        for process in &*self.0.lock().unwrap() {
            let _ = process.child.lock().unwrap().kill(); // it may have ended
        }
    }

    /// Waits for the end of all, and returns the first failure. Processes whose run has not started end at once, and only one that canceled the
    /// mesh has failed.
    pub(crate) fn end(&self, started: bool) -> Result<()> {
        let limit = Instant::now() + if started { END_TIME } else { Duration::ZERO };
        let processes = std::mem::take(&mut *self.0.lock().unwrap());
        processes.into_iter().map(|process| process.end(limit, started)).fold(Ok(()), Result::and)
    }
}

impl Process {
    fn end(self, limit: Instant, started: bool) -> Result<()> {
        let mut killed = false;
        let time = limit.saturating_duration_since(Instant::now());
        let end = self.ended.recv_timeout(time).unwrap_or_else(|_| {
            killed = self.child.lock().unwrap().kill().is_ok();
            // Without the thread, which could not be started, nothing else waits for the process.
            self.ended.recv().unwrap_or_else(|_| End { status: self.child.lock().unwrap().wait(), cancels: false })
        });
        let text = match &end.status {
            Ok(status) if status.success() => return Ok(()),
            _ if !started && !end.cancels => return Ok(()),
            Ok(status) if killed && status.signal() == Some(SIGKILL) => {
                "it was killed, because it did not end after its run".into()
            }
            status => text_of(status),
        };
        Err(Error::new(Status::Peer, format!("the process of rank {}: {text}", self.rank)))
    }
}
