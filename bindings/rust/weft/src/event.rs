//! Events of a run.
use std::path::PathBuf;

use weft_sys as sys;

use crate::error::{text_of, Error, Result, Status};
use crate::failure::Failure;
use crate::mesh::MeshHandle;
use crate::path_of;
use crate::run::Run;
use crate::tensor::{slice, Desc, Element, Tensor};

/// An event of a run. `tag` is that of the step or save, and `step` the number of updates of the weights before it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The loss of one micro-batch, its outputs, or both.
    MicroBatch {
        /// Of the step.
        tag: u64,
        /// Of the step.
        step: u64,
        /// The number of the micro-batch.
        micro_batch: u32,
        /// The mean over the micro-batch; 0 in forward steps.
        loss: f64,
        /// If the step delivers outputs: in the order in which they were added to the model.
        outputs: Outputs<'a>,
    },
    /// Final event: the step is finished.
    Done {
        /// Of the step.
        tag: u64,
        /// Of the step.
        step: u64,
        /// The mean over the step.
        loss: f64,
        /// Global norm of the gradients before clipping.
        grad_norm: f64,
        /// Mean over ranks of the share of time in which a rank ran no kernel.
        idle: f64,
        /// The same for each rank.
        idle_by_rank: Vec<f64>,
    },
    /// Final event: the run has failed in the step.
    Failed {
        /// Of the step.
        tag: u64,
        /// Kind and description.
        error: Error,
        /// The facts behind the description.
        failure: Option<Box<Failure>>,
    },
    /// Asynchronous schedules: the result of one update.
    Update {
        /// Of the step.
        tag: u64,
        /// Updates before it.
        step: u64,
        /// The mean over the update.
        loss: f64,
        /// Global norm of the gradients before clipping.
        grad_norm: f64,
    },
    /// Final event of a queued save.
    Saved {
        /// Of the save.
        tag: u64,
        /// Updates of the weights in the checkpoint.
        step: u64,
        /// The checkpoint, or kind and description of the failure.
        checkpoint: Result<PathBuf>,
        /// If the run has failed: the facts behind the description.
        failure: Option<Box<Failure>>,
    },
    /// A process has joined. In a process that serves: it has joined itself.
    Joined {
        /// Its rank.
        rank: u32,
        /// Of the run.
        ranks: u32,
        /// Ranks that have not joined.
        missing: u32,
        /// The machine of the process.
        host: String,
        /// Of the process.
        pid: u32,
    },
    /// A process left before all ranks had joined.
    Left {
        /// Its rank, which is missing again.
        rank: u32,
        /// Of the run.
        ranks: u32,
        /// Ranks that have not joined.
        missing: u32,
    },
    /// This process has refused a connection.
    Refused {
        /// Connections refused since the mesh was made.
        count: u64,
        /// Describes the connection.
        text: String,
    },
    /// The run has started.
    Started {
        /// Of this process.
        rank: u32,
        /// Of the run.
        ranks: u32,
    },
    /// The run has failed, and not in a step or save.
    RunFailed {
        /// Kind and description.
        error: Error,
        /// The facts behind the description.
        failure: Option<Box<Failure>>,
    },
    /// Final event of a process that serves: rank 0 has ended the run.
    Ended,
    /// An event that this version of the crate does not know.
    Other {
        /// Its kind, a `weft_event_kind`.
        kind: u32,
    },
}

impl<'a> Event<'a> {
    /// # Safety
    /// The pointers of the event are valid for 'a.
    pub(crate) unsafe fn from_raw(raw: &sys::weft_event) -> Event<'a> {
        let (tag, step, loss, grad_norm) = (raw.tag, raw.step, raw.loss, raw.grad_norm);
        match raw.kind {
            sys::WEFT_EVENT_MICRO_BATCH => Event::MicroBatch {
                tag,
                step,
                micro_batch: raw.micro_batch,
                loss,
                outputs: Outputs(Content::Borrowed(slice(raw.outputs, raw.n_outputs as usize))),
            },
            sys::WEFT_EVENT_DONE => {
                let idle_by_rank = slice(raw.idle_by_rank, raw.n_ranks as usize).to_vec();
                Event::Done { tag, step, loss, grad_norm, idle: raw.idle, idle_by_rank }
            }
            sys::WEFT_EVENT_ERROR => Event::Failed { tag, error: Event::error(raw), failure: Event::failure(raw) },
            sys::WEFT_EVENT_FAILED => Event::RunFailed { error: Event::error(raw), failure: Event::failure(raw) },
            sys::WEFT_EVENT_UPDATE => Event::Update { tag, step, loss, grad_norm },
            sys::WEFT_EVENT_SAVED => {
                let checkpoint = path_of(raw.path).ok_or_else(|| Event::error(raw));
                Event::Saved { tag, step, checkpoint, failure: Event::failure(raw) }
            }
            sys::WEFT_EVENT_JOINED => {
                let host = text_of(raw.host);
                Event::Joined { rank: raw.rank as u32, ranks: raw.ranks, missing: raw.missing, host, pid: raw.pid }
            }
            sys::WEFT_EVENT_LEFT => Event::Left { rank: raw.rank as u32, ranks: raw.ranks, missing: raw.missing },
            sys::WEFT_EVENT_REFUSED => Event::Refused { count: raw.count, text: text_of(raw.text) },
            sys::WEFT_EVENT_STARTED => Event::Started { rank: raw.rank as u32, ranks: raw.ranks },
            sys::WEFT_EVENT_ENDED => Event::Ended,
            kind => Event::Other { kind },
        }
    }

    /// The same with its own copies of outputs.
    ///
    /// # Safety
    /// The pointers of the event are valid.
    pub(crate) unsafe fn copied(raw: &sys::weft_event) -> Result<Event<'static>> {
        let mut event = Event::from_raw(raw);
        if let Event::MicroBatch { outputs, .. } = &mut event {
            *outputs = outputs.copied()?;
        }
        Ok(event)
    }

    /// The same with the failure because of which the mesh was canceled.
    pub(crate) fn explained(mut self, mesh: Option<&MeshHandle>) -> Event<'a> {
        if let (Event::Failed { error, .. } | Event::RunFailed { error, .. }, Some(mesh)) = (&mut self, mesh) {
            *error = mesh.explain(error.clone());
        }
        self
    }

    unsafe fn failure(raw: &sys::weft_event) -> Option<Box<Failure>> {
        raw.failure.as_ref().map(|failure| Box::new(Failure::from_raw(failure)))
    }

    unsafe fn error(raw: &sys::weft_event) -> Error {
        Error::new(Status::from_raw(raw.status), text_of(raw.text))
    }
}

/// The outputs of a micro-batch.
pub struct Outputs<'a>(Content<'a>);

enum Content<'a> {
    Borrowed(&'a [*mut sys::weft_tensor]),
    Owned(Vec<Tensor>),
}

// The functions of tensors may be called on any thread, and outputs are only read.
unsafe impl Send for Outputs<'_> {}
unsafe impl Sync for Outputs<'_> {}

impl Outputs<'_> {
    /// The number of outputs.
    pub fn len(&self) -> usize {
        match &self.0 {
            Content::Borrowed(raw) => raw.len(),
            Content::Owned(tensors) => tensors.len(),
        }
    }

    /// There are none: the step does not deliver outputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn raw(&self, index: usize) -> *mut sys::weft_tensor {
        match &self.0 {
            Content::Borrowed(raw) => raw[index],
            Content::Owned(tensors) => tensors[index].raw(),
        }
    }

    /// The type and dimensions of an output. The program panics if there is no such output.
    pub fn desc(&self, index: usize) -> Desc {
        Desc::from_raw(&unsafe { sys::weft_tensor_desc(self.raw(index)) })
    }

    /// The elements of an output, without a copy. The program panics if there is no such output.
    ///
    /// # Errors
    /// The output has elements of another type.
    pub fn as_slice<T: Element>(&self, index: usize) -> Result<&[T]> {
        let count = self.desc(index).expect::<T>()?;
        Ok(unsafe { slice(sys::weft_tensor_data(self.raw(index)).cast(), count) })
    }

    /// The same as an array.
    #[cfg(feature = "ndarray")]
    pub fn view<T: Element>(&self, index: usize) -> Result<ndarray::ArrayViewD<'_, T>> {
        let elements = self.as_slice(index)?;
        Ok(ndarray::ArrayViewD::from_shape(self.desc(index).dims, elements)
            .expect("an output has as many elements as its dimensions"))
    }

    /// A copy of an output as a tensor.
    pub fn to_tensor(&self, index: usize) -> Result<Tensor> {
        let desc = self.desc(index);
        if desc.dtype == i32::DTYPE {
            Tensor::from_vec(desc.dims, self.as_slice::<i32>(index)?.to_vec())
        } else {
            Tensor::from_vec(desc.dims, self.as_slice::<f32>(index)?.to_vec())
        }
    }

    fn copied(&self) -> Result<Outputs<'static>> {
        let tensors = (0..self.len()).map(|index| self.to_tensor(index)).collect::<Result<_>>()?;
        Ok(Outputs(Content::Owned(tensors)))
    }
}

impl std::fmt::Debug for Outputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.len()).map(|index| self.desc(index))).finish()
    }
}

/// The iterator of [`Run::events`].
pub struct Events<'a> {
    run: &'a mut Run,
    failed: bool,
}

impl<'a> Events<'a> {
    pub(crate) fn new(run: &'a mut Run) -> Events<'a> {
        Events { run, failed: false }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event<'static>>;

    /// Waits for the next event. `None`: every submitted step is finished.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let event = self.run.poll_owned(None).transpose();
        self.failed = matches!(event, Some(Err(_)));
        event
    }
}
