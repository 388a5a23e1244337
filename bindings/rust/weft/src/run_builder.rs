//! The settings of runs.
use std::ffi::CString;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use weft_sys as sys;

use crate::error::{attempt, initialized, pointer_of, text_of, Result};
use crate::mesh::Mesh;
use crate::model::Model;
use crate::panic::contain;
use crate::path_text;
use crate::plan::{Plan, Shapes};
use crate::run::Run;

/// How detailed a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Refused processes, long waits, failures.
    Warning,
    /// Also the start and the end of a run over processes, its ranks, checkpoints.
    Info,
    /// Also every connection.
    Debug,
}

impl LogLevel {
    fn raw(self) -> sys::weft_log_level {
        match self {
            LogLevel::Warning => sys::WEFT_LOG_WARNING,
            LogLevel::Info => sys::WEFT_LOG_INFO,
            LogLevel::Debug => sys::WEFT_LOG_DEBUG,
        }
    }

    fn from_raw(raw: sys::weft_log_level) -> LogLevel {
        match raw {
            sys::WEFT_LOG_WARNING => LogLevel::Warning,
            sys::WEFT_LOG_INFO => LogLevel::Info,
            _ => LogLevel::Debug,
        }
    }
}

type LogClosure = Box<dyn FnMut(LogLevel, &str) + Send>;

/// A closure to which a run refers. The library calls it on one thread at a time.
pub(crate) struct Log {
    level: LogLevel,
    closure: *mut LogClosure,
}

unsafe impl Send for Log {}

impl Log {
    fn new(level: LogLevel, closure: LogClosure) -> Log {
        Log { level, closure: Box::into_raw(Box::new(closure)) }
    }

    unsafe extern "C" fn call(level: sys::weft_log_level, text: *const c_char, closure: *mut c_void) {
        let _ = contain(|| (*(closure as *mut LogClosure))(LogLevel::from_raw(level), &text_of(text)));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(unsafe { Box::from_raw(self.closure) });
    }
}

fn config(threads: u32, log: &Option<Log>, flags: u32) -> sys::weft_run_config {
    let mut config = unsafe { initialized(sys::weft_run_config_init) };
    config.threads = threads;
    config.flags = flags;
    if let Some(log) = log {
        config.log_level = log.level.raw();
        config.log = Some(Log::call);
        config.log_payload = log.closure.cast();
    }
    config
}

/// The settings of a run.
#[must_use = "a run is started by `start` or `begin`"]
pub struct RunBuilder<'a> {
    plan: &'a Plan,
    mesh: Option<&'a Mesh>,
    threads: u32,
    log: Option<Log>,
}

impl<'a> RunBuilder<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        RunBuilder { plan, mesh: None, threads: 0, log: None }
    }

    /// Compute threads per rank. Without a mesh, 0 means that [`Run::poll`] computes; with a mesh, 0 counts as 1. Default: 0.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// The processes of the run. Default: this process hosts all ranks.
    pub fn mesh(mut self, mesh: impl Into<Option<&'a Mesh>>) -> Self {
        self.mesh = mesh.into();
        self
    }

    /// Gets the log lines of the run, up to this level, on any thread. It must return soon and must not call weft. The panic hook reports a
    /// panic in it, and the run goes on.
    ///
    /// ```
    /// # use weft::{Desc, LogLevel, Model, Plan, Run};
    /// # let mut model = Model::new()?;
    /// # let x = model.input("x", &Desc::f32([1, 1]))?;
    /// # let out = model.unary("relu", x)?;
    /// # model.output(out)?;
    /// # let plan = Plan::builder().build(&mut model)?;
    /// let run = Run::builder(&plan).log(LogLevel::Info, |level, line| eprintln!("{level:?}: {line}")).start()?;
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn log(mut self, level: LogLevel, log: impl FnMut(LogLevel, &str) + Send + 'static) -> Self {
        self.log = Some(Log::new(level, Box::new(log)));
        self
    }

    /// Allocates the planned memory, initializes the parameters, and waits until every other rank has joined.
    pub fn start(self) -> Result<Run> {
        self.make(0)
    }

    /// The same, but returns at once. [`Run::poll`] delivers [`Event::Joined`](crate::Event::Joined), `Left` and `Refused`, and then
    /// either `Started` or `RunFailed`. Other calls on the run fail until it has started.
    pub fn begin(self) -> Result<Run> {
        self.make(sys::WEFT_RUN_NOWAIT)
    }

    fn make(self, flags: u32) -> Result<Run> {
        let config = config(self.threads, &self.log, flags);
        let mut raw = null_mut();
        let mesh = self.mesh.map_or(null_mut(), Mesh::raw);
        let started = attempt(|err| unsafe { sys::weft_run_start(self.plan.raw(), mesh, &config, &mut raw, err) });
        started.map_err(|error| self.mesh.map_or(error.clone(), |mesh| mesh.handle().explain(error)))?;
        let mut run = Run::from_raw(raw, self.plan.shapes().clone(), self.mesh, self.log);
        run.starts = flags == sys::WEFT_RUN_NOWAIT;
        if let (false, Some(mesh)) = (run.starts, run.mesh()) {
            mesh.starts();
        }
        run.computes_in_poll = self.threads == 0 && self.mesh.is_none();
        Ok(run)
    }
}

/// The settings of a process that serves a run: any rank except 0.
#[must_use = "a service is started by `serve` or `begin`"]
pub struct ServiceBuilder<'a> {
    mesh: &'a mut Mesh,
    plan: Option<&'a Plan>,
    ops: Option<&'a Model>,
    threads: u32,
    log: Option<Log>,
    weights_dir: Result<Option<CString>>,
}

impl<'a> ServiceBuilder<'a> {
    pub(crate) fn new(mesh: &'a mut Mesh) -> Self {
        ServiceBuilder { mesh, plan: None, ops: None, threads: 1, log: None, weights_dir: Ok(None) }
    }

    /// The plan, if the process made it itself. If it differs from that of rank 0, the failure names the section. Default: it is received.
    pub fn plan(mut self, plan: impl Into<Option<&'a Plan>>) -> Self {
        self.plan = plan.into();
        self
    }

    /// A model whose user ops are available here. Default: none.
    pub fn ops(mut self, model: impl Into<Option<&'a Model>>) -> Self {
        self.ops = model.into();
        self
    }

    /// Compute threads. Default: 1.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// As [`RunBuilder::log`].
    pub fn log(mut self, level: LogLevel, log: impl FnMut(LogLevel, &str) + Send + 'static) -> Self {
        self.log = Some(Log::new(level, Box::new(log)));
        self
    }

    /// A directory: this rank reads its part of safetensors files below it itself when rank 0 loads them from the same path. Default: rank 0
    /// sends all weights.
    pub fn weights_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.weights_dir = path_text(directory).map(Some);
        self
    }

    /// Joins, receives a rank, model and plan, and serves until the run ends.
    pub fn serve(self) -> Result<()> {
        let (plan, ops, config) = self.raw()?;
        let served = attempt(|err| unsafe { sys::weft_run_serve(self.mesh.raw(), plan, ops, &config, err) });
        served.map(drop).map_err(|error| self.mesh.handle().explain(error))
    }

    /// The same, but returns at once. [`Run::poll`] delivers [`Event::Joined`](crate::Event::Joined), `Started`, and finally `Ended` or
    /// `RunFailed`; other calls on the run fail. To drop the run before means to leave: it then fails on the other ranks.
    pub fn begin(self) -> Result<Run> {
        let (plan, ops, config) = self.raw()?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_run_join(self.mesh.raw(), plan, ops, &config, &mut raw, err) })?;
        let mut run = Run::from_raw(raw, Arc::new(Shapes::default()), Some(self.mesh), self.log);
        run.serves = true;
        Ok(run)
    }

    fn raw(&self) -> Result<(*const sys::weft_plan, *const sys::weft_model, sys::weft_run_config)> {
        let plan = self.plan.map_or(null(), |plan| plan.raw() as *const _);
        let ops = self.ops.map_or(null(), |ops| ops.raw() as *const _);
        let mut config = config(self.threads, &self.log, 0);
        config.weights_dir = pointer_of(self.weights_dir.as_ref().map_err(Clone::clone)?);
        Ok((plan, ops, config))
    }
}
