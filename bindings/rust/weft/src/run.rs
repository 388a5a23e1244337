//! Runs: plans being executed.
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::raw::c_char;
use std::os::unix::io::BorrowedFd;
use std::path::Path;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;
use std::time::Duration;

use weft_sys as sys;

use crate::error::{array, attempt, c_string, initialized, nanoseconds, pointer_of, text_of, Error, Result, Status};
use crate::event::{Event, Events};
use crate::failure::Failure;
use crate::mesh::{Mesh, MeshHandle, MeshOfRun};
use crate::path_text;
use crate::plan::{Plan, Shapes};
use crate::profile::Profile;
use crate::run_builder::{Log, RunBuilder};
use crate::tensor::{Desc, Tensor};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forward, backward, update.
    Train,
    /// Forward, backward. The weights do not change, and gradients can be read.
    NoUpdate,
    /// Forward to the loss.
    Eval,
    /// Forward to the outputs. Inputs that they do not require may be `None`.
    Forward,
    /// Forward to the state of nodes, as the caches of a decoder, and no further. There are no outputs.
    Fill,
}

impl Mode {
    pub(crate) fn raw(self) -> sys::weft_step_mode {
        match self {
            Mode::Train => sys::WEFT_TRAIN,
            Mode::NoUpdate => sys::WEFT_NO_UPDATE,
            Mode::Eval => sys::WEFT_EVAL,
            Mode::Forward => sys::WEFT_FORWARD,
            Mode::Fill => sys::WEFT_FILL,
        }
    }
}

/// Tensors of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The value.
    Value,
    /// The gradient of the last step with a backward pass, before clipping. Also of an input that was added with a gradient.
    Grad,
    /// State of sgd with momentum.
    Momentum,
    /// State of adam and adamw: mean of the gradients.
    ExpAvg,
    /// State of adam and adamw: mean of their squares.
    ExpAvgSq,
}

impl Part {
    fn raw(self) -> sys::weft_part {
        match self {
            Part::Value => sys::WEFT_VALUE,
            Part::Grad => sys::WEFT_GRAD,
            Part::Momentum => sys::WEFT_MOMENTUM,
            Part::ExpAvg => sys::WEFT_EXP_AVG,
            Part::ExpAvgSq => sys::WEFT_EXP_AVG_SQ,
        }
    }
}

/// An input of a step: a [`Tensor`], a reference to one, or an `Option` of one.
pub trait Input {
    /// The tensor.
    fn tensor(&self) -> Option<&Tensor>;
}

impl Input for Tensor {
    fn tensor(&self) -> Option<&Tensor> {
        Some(self)
    }
}

impl<T: Input> Input for &T {
    fn tensor(&self) -> Option<&Tensor> {
        (**self).tensor()
    }
}

impl<T: Input> Input for Option<T> {
    fn tensor(&self) -> Option<&Tensor> {
        self.as_ref().and_then(Input::tensor)
    }
}

/// A plan being executed. To drop a run ends it on every rank and discards steps that are not finished.
///
/// ```
/// # use weft::{Desc, Mode, Model, Part, Plan, Run, Tensor};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 1]))?;
/// # let y = model.input("y", &Desc::f32([1, 1]))?;
/// # let out = model.linear("out", x, 1)?;
/// # model.binary("mse", out, y)?;
/// # let batch = [Tensor::from_vec([4, 1], vec![1.0f32; 4])?, Tensor::from_vec([4, 1], vec![2.0f32; 4])?];
/// let plan = Plan::builder().micro_batches(1).build(&mut model)?;
/// let mut run = Run::builder(&plan).threads(2).start()?;
/// let first = run.step(&batch, Mode::Train)?;
/// assert!(run.step(&batch, Mode::Train)? < first);
/// let weight = run.read("out.weight", Part::Value)?;
/// println!("{:?}, digest {}", weight.as_slice::<f32>()?, run.digest()?);
/// # Ok::<(), weft::Error>(())
/// ```
///
/// A run belongs to one thread at a time:
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<weft::Run>();
/// ```
pub struct Run {
    raw: NonNull<sys::weft_run>,
    shapes: Arc<Shapes>,
    /// Tags and inputs of steps that are not finished, so that their content cannot be changed.
    submitted: VecDeque<(u64, Vec<Option<Tensor>>)>,
    /// Of the last step.
    samples: usize,
    /// Final events of steps and saves that will follow.
    finals: usize,
    /// Until it has started or failed.
    pub(crate) starts: bool,
    /// Until it has ended or failed.
    pub(crate) serves: bool,
    pub(crate) computes_in_poll: bool,
    /// Of a stream.
    #[cfg(feature = "tokio")]
    pub(crate) watch: Option<crate::stream::Watch>,
    /// The run refers to it.
    _log: Option<Log>,
    /// The run keeps the mesh.
    mesh: Option<MeshOfRun>,
    _owner: PhantomData<*mut ()>,
}

// The owner of a run may be any thread, but only one at a time; so it is Send and not Sync.
unsafe impl Send for Run {}

impl Drop for Run {
    fn drop(&mut self) {
        #[cfg(feature = "tokio")]
        drop(self.watch.take()); // before its descriptor is closed
        if let Some(mesh) = &self.mesh {
            mesh.ends();
        }
        unsafe { sys::weft_run_free(self.raw()) }
    }
}

impl Run {
    /// Starts a run in this process, without threads: [`Run::step`] and [`Run::poll`] compute.
    pub fn start(plan: &Plan) -> Result<Run> {
        Run::builder(plan).start()
    }

    /// Begins the settings of a run.
    pub fn builder(plan: &Plan) -> RunBuilder<'_> {
        RunBuilder::new(plan)
    }

    pub(crate) fn from_raw(raw: *mut sys::weft_run, shapes: Arc<Shapes>, mesh: Option<&Mesh>, log: Option<Log>) -> Run {
        Run {
            raw: NonNull::new(raw).expect("a call that succeeds makes a run"),
            shapes,
            submitted: VecDeque::new(),
            samples: 0,
            finals: 0,
            starts: false,
            serves: false,
            computes_in_poll: false,
            #[cfg(feature = "tokio")]
            watch: None,
            _log: log,
            mesh: mesh.map(MeshOfRun::new),
            _owner: PhantomData,
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::weft_run {
        self.raw.as_ptr()
    }

    pub(crate) fn mesh(&self) -> Option<&MeshHandle> {
        self.mesh.as_deref()
    }

    /// Sets the learning rate of all steps submitted after this call, in place of that of the plan.
    pub fn set_rate(&mut self, rate: f64) -> Result<()> {
        attempt(|err| unsafe { sys::weft_run_set_rate(self.raw(), rate, err) }).map(drop)
    }

    /// Makes one step and returns its loss. The inputs have all samples, in the order in which the inputs were added to the model.
    pub fn step<I: Input>(&mut self, inputs: &[I], mode: Mode) -> Result<f64> {
        self.make_step(inputs, mode, &[])
    }

    /// Makes one forward step and returns its outputs for all samples, in the order in which they were added to the model.
    pub fn forward<I: Input>(&mut self, inputs: &[I]) -> Result<Vec<Tensor>> {
        Ok(self.step_outputs(inputs, Mode::Forward)?.1)
    }

    /// Makes one step and returns its loss and outputs. In training and evaluation, [`StepKind`](crate::StepKind) adds the outputs.
    pub fn step_outputs<I: Input>(&mut self, inputs: &[I], mode: Mode) -> Result<(f64, Vec<Tensor>)> {
        let samples = samples_of(inputs);
        let shape = |output: &Desc| {
            let mut desc = output.clone();
            desc.dims[0] = desc.dims[0].saturating_mul(samples);
            Tensor::zeros(&desc)
        };
        let outputs = self.shapes.outputs.iter().map(shape).collect::<Result<Vec<_>>>()?;
        let loss = self.make_step(inputs, mode, &outputs)?;
        Ok((loss, outputs))
    }

    fn make_step<I: Input>(&mut self, inputs: &[I], mode: Mode, outputs: &[Tensor]) -> Result<f64> {
        let inputs = references(inputs);
        let raw = pointers(&inputs);
        let outputs: Vec<_> = outputs.iter().map(Tensor::raw).collect();
        let mut loss = 0.0;
        let ((inputs_at, n_inputs), (outputs_at, n_outputs)) = (array("inputs", &raw)?, array("outputs", &outputs)?);
        // The library takes the events of the step, also if the run fails.
        attempt(|err| unsafe {
            sys::weft_run_step(self.raw(), inputs_at, n_inputs, mode.raw(), outputs_at, n_outputs, &mut loss, err)
        })?;
        self.samples = samples_of(&inputs);
        Ok(loss)
    }

    /// Submits one step and returns at once. [`Run::poll`] then delivers an event per micro-batch, and exactly one final event, with this
    /// tag.
    ///
    /// # Errors
    /// [`Status::Again`]: 16 steps and saves are not finished.
    pub fn submit<I: Input>(&mut self, inputs: &[I], mode: Mode, tag: u64) -> Result<()> {
        let inputs = references(inputs);
        let raw = pointers(&inputs);
        let (pointer, count) = array("inputs", &raw)?;
        attempt(|err| unsafe { sys::weft_run_submit(self.raw(), pointer, count, mode.raw(), tag, err) })?;
        self.samples = samples_of(&inputs);
        self.submitted.push_back((tag, inputs));
        self.finals += 1;
        Ok(())
    }

    fn release(&mut self, tag: u64) {
        if let Some(at) = self.submitted.iter().position(|step| step.0 == tag) {
            self.submitted.remove(at);
        }
    }

    /// The next event. `None`: the time has passed, or nothing is in progress. Without a timeout, the call waits. In a run without threads,
    /// the call computes.
    ///
    /// The event borrows the run, because its outputs are valid until the next call; [`Run::poll_owned`] copies them.
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Option<Event<'_>>> {
        Ok(self.poll_raw(timeout)?.map(|raw| unsafe { Event::from_raw(&raw) }.explained(self.mesh())))
    }

    /// The same with copies of outputs.
    pub fn poll_owned(&mut self, timeout: Option<Duration>) -> Result<Option<Event<'static>>> {
        let event = self.poll_raw(timeout)?.map(|raw| unsafe { Event::copied(&raw) }).transpose()?;
        Ok(event.map(|event| event.explained(self.mesh())))
    }

    fn poll_raw(&mut self, timeout: Option<Duration>) -> Result<Option<sys::weft_event>> {
        let timeout = timeout.map_or(-1, nanoseconds);
        let mut raw: sys::weft_event = unsafe { std::mem::zeroed() };
        raw.size = std::mem::size_of::<sys::weft_event>() as u32;
        let found = attempt(|err| unsafe { sys::weft_run_poll(self.raw(), &mut raw, timeout, err) });
        if found.is_err() {
            // An event may be lost, perhaps the last one, so no other event is waited for.
            (self.finals, self.starts, self.serves) = (0, false, false);
        }
        if found? == 0 {
            return Ok(None);
        }
        match raw.kind {
            sys::WEFT_EVENT_DONE | sys::WEFT_EVENT_ERROR => {
                self.release(raw.tag);
                self.finals = self.finals.saturating_sub(1);
            }
            sys::WEFT_EVENT_SAVED => self.finals = self.finals.saturating_sub(1),
            sys::WEFT_EVENT_STARTED => {
                self.starts = false;
                if let Some(mesh) = self.mesh() {
                    mesh.starts();
                }
            }
            sys::WEFT_EVENT_FAILED | sys::WEFT_EVENT_ENDED => {
                self.starts = false;
                self.serves = false;
            }
            _ => {}
        }
        Ok(Some(raw))
    }

    /// Events will follow.
    #[cfg(feature = "tokio")]
    pub(crate) fn in_progress(&self) -> bool {
        self.starts || self.serves || self.has_steps()
    }

    /// Final events of steps or saves will follow.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_steps(&self) -> bool {
        self.finals > 0
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn computes_in_poll(&self) -> bool {
        self.computes_in_poll
    }

    /// All events until every submitted step is finished, with their own copies of outputs.
    ///
    /// ```
    /// # use weft::{Desc, Event, Mode, Model, Plan, Run, Tensor};
    /// # let mut model = Model::new()?;
    /// # let x = model.input("x", &Desc::f32([1, 1]))?;
    /// # let y = model.input("y", &Desc::f32([1, 1]))?;
    /// # let out = model.linear("out", x, 1)?;
    /// # model.binary("mse", out, y)?;
    /// # let batch = [Tensor::from_vec([4, 1], vec![1.0f32; 4])?, Tensor::from_vec([4, 1], vec![2.0f32; 4])?];
    /// # let plan = Plan::builder().micro_batches(2).micro_batch_size(2).build(&mut model)?;
    /// # let mut run = Run::start(&plan)?;
    /// run.submit(&batch, Mode::Train, 7)?;
    /// run.submit(&batch, Mode::Eval, 8)?;
    /// let mut done = Vec::new();
    /// for event in run.events() {
    ///     if let Event::Done { tag, .. } = event? {
    ///         done.push(tag);
    ///     }
    /// }
    /// assert_eq!(done, [7, 8]);
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn events(&mut self) -> Events<'_> {
        Events::new(self)
    }

    /// The failure of the run, if it has failed.
    pub fn failure(&self) -> Option<Failure> {
        let mut out: sys::weft_failure = unsafe { std::mem::zeroed() };
        out.size = std::mem::size_of::<sys::weft_failure>() as u32;
        let failed = unsafe { sys::weft_run_failure(self.raw(), &mut out) } == 1;
        failed.then(|| unsafe { Failure::from_raw(&out) })
    }

    /// A descriptor that is readable while [`Run::poll`] has something to do: level-triggered, for `poll(2)` and event loops. Do not read
    /// from it. `None`: the process had no descriptor left when the run started.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = unsafe { sys::weft_run_fd(self.raw()) };
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Bytes of the tensors of a rank that are in memory; compare [`Plan::bytes`].
    pub fn resident(&mut self, rank: u32) -> Result<u64> {
        let mut bytes = 0;
        attempt(|err| unsafe { sys::weft_run_resident(self.raw(), rank, &mut bytes, err) })?;
        Ok(bytes as u64)
    }

    /// A copy of a tensor of a parameter, or of the gradient of an input. Only between steps.
    pub fn read(&mut self, name: &str, part: Part) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(&self.shape(name)?)?;
        self.read_into(name, part, &mut tensor)?;
        Ok(tensor)
    }

    /// The same into a tensor of the program.
    pub fn read_into(&mut self, name: &str, part: Part, tensor: &mut Tensor) -> Result<()> {
        let name = c_string(name)?;
        let tensor = tensor.writable_raw()?;
        attempt(|err| unsafe { sys::weft_run_read(self.raw(), name.as_ptr(), part.raw(), tensor, err) }).map(drop)
    }

    /// Copies a tensor into a tensor of a parameter, except its gradient, which can only be read. Only between steps.
    pub fn write(&mut self, name: &str, part: Part, tensor: &Tensor) -> Result<()> {
        let name = c_string(name)?;
        attempt(|err| unsafe { sys::weft_run_write(self.raw(), name.as_ptr(), part.raw(), tensor.raw(), err) }).map(drop)
    }

    fn shape(&self, name: &str) -> Result<Desc> {
        if let Some(desc) = self.shapes.params.get(name) {
            return Ok(desc.clone());
        }
        let input = self.shapes.inputs.get(name);
        let input = input.ok_or_else(|| Error::new(Status::NotFound, format!("the model has no parameter or input '{name}'")))?;
        let mut desc = input.clone();
        desc.dims[0] = self.samples;
        Ok(desc)
    }

    /// Makes every rank record the times of its next `jobs` jobs; 0: stop. Only between steps.
    pub fn trace(&mut self, jobs: u32) -> Result<()> {
        attempt(|err| unsafe { sys::weft_run_trace(self.raw(), jobs, err) }).map(drop)
    }

    /// Writes the records as a Chrome trace, one track per rank. Only between steps.
    pub fn save_trace(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        attempt(|err| unsafe { sys::weft_run_save_trace(self.raw(), path.as_ptr(), err) }).map(drop)
    }

    /// A profile with the times that this run has recorded since [`Run::trace`], in at least five training steps. Only between steps.
    pub fn profile(&mut self, profile: &Profile) -> Result<Profile> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_run_profile(self.raw(), profile.raw(), &mut raw, err) })?;
        Ok(Profile::from_raw(raw))
    }

    /// A hash over all parameters, 32 hexadecimal digits: runs with the same parameters have the same digest.
    pub fn digest(&mut self) -> Result<String> {
        digest(|text, err| unsafe { sys::weft_run_digest(self.raw(), text, err) })
    }

    /// The same over the state of the optimizer.
    pub fn optimizer_digest(&mut self) -> Result<String> {
        digest(|text, err| unsafe { sys::weft_run_optimizer_digest(self.raw(), text, err) })
    }

    /// Writes a checkpoint below a directory, which is created if it does not exist, and waits for its end. Only between steps.
    pub fn save(&mut self, directory: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        self.save_with(directory.as_ref(), options, 0, 0)
    }

    /// The same after the steps that were submitted before it; [`Event::Saved`] has its result.
    pub fn queue_save(&mut self, directory: impl AsRef<Path>, options: &SaveOptions, tag: u64) -> Result<()> {
        self.save_with(directory.as_ref(), options, sys::WEFT_SAVE_QUEUE, tag)?;
        self.finals += 1;
        Ok(())
    }

    fn save_with(&mut self, directory: &Path, options: &SaveOptions, flags: u32, tag: u64) -> Result<()> {
        let text = |text: &String| c_string(text);
        let directory = path_text(directory)?;
        let model = options.model.as_ref().map(text).transpose()?;
        let pairs = options.pairs.iter().map(|(key, value)| Ok((text(key)?, text(value)?))).collect::<Result<Vec<_>>>()?;
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| sys::weft_pair { key: key.as_ptr(), value: value.as_ptr() }).collect();
        let mut config = unsafe { initialized(sys::weft_save_config_init) };
        config.directory = directory.as_ptr();
        config.model = pointer_of(&model);
        (config.options, config.n_options) = array("pairs", &pairs)?;
        config.flags = flags;
        config.tag = tag;
        attempt(|err| unsafe { sys::weft_run_save(self.raw(), &config, err) }).map(drop)
    }
}

/// References that keep inputs valid and unchanged.
fn references<I: Input>(inputs: &[I]) -> Vec<Option<Tensor>> {
    inputs.iter().map(|input| input.tensor().cloned()).collect()
}

fn pointers(inputs: &[Option<Tensor>]) -> Vec<*mut sys::weft_tensor> {
    inputs.iter().map(|input| input.as_ref().map_or(null_mut(), Tensor::raw)).collect()
}

/// Dimension 0 of the inputs.
fn samples_of<I: Input>(inputs: &[I]) -> usize {
    let first = inputs.iter().find_map(Input::tensor);
    first.and_then(|tensor| tensor.desc().dims.first().copied()).unwrap_or(0)
}

/// What [`Run::save`] stores beside the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveOptions {
    /// The text of a preset, from which a reader can make the model.
    pub model: Option<String>,
    /// Keys, which are unique and not empty, and values.
    pub pairs: Vec<(String, String)>,
}

/// Calls a function that writes a digest.
pub(crate) fn digest(call: impl FnOnce(*mut c_char, *mut sys::weft_error) -> sys::weft_status) -> Result<String> {
    let mut text = [0 as c_char; 33];
    attempt(|err| call(text.as_mut_ptr(), err))?;
    Ok(unsafe { text_of(text.as_ptr()) })
}
