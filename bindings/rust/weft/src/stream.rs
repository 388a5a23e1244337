//! Events as a stream on the loop of tokio.
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::os::unix::io::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

use crate::error::{Error, Result, Status};
use crate::event::Event;
use crate::run::{Input, Mode, Run};

/// A run whose events arrive on the loop of tokio, which it never blocks. It is used as the run, and as a `Stream` of its events, which ends
/// when nothing is in progress and continues after the next [`Run::submit`].
///
/// A run without threads computes on the loop, one job at a time.
///
/// ```
/// # use weft::{Desc, Event, EventStream, Mode, Model, Plan, Run, Tensor};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 1]))?;
/// # let y = model.input("y", &Desc::f32([1, 1]))?;
/// # let out = model.linear("out", x, 1)?;
/// # model.binary("mse", out, y)?;
/// # let batch = [Tensor::from_vec([4, 1], vec![1.0f32; 4])?, Tensor::from_vec([4, 1], vec![2.0f32; 4])?];
/// # let plan = Plan::builder().micro_batches(2).micro_batch_size(2).build(&mut model)?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
/// # runtime.block_on(async {
/// let mut run = EventStream::new(Run::builder(&plan).threads(1).start()?)?;
/// run.submit(&batch, Mode::Train, 1)?;
/// while let Some(event) = run.next().await {
///     if let Event::Done { tag, loss, .. } = event? {
///         println!("step {tag}: loss {loss}");
///     }
/// }
/// let loss = run.step(&batch, Mode::Train).await?;
/// # assert!(loss > 0.0);
/// # Ok::<(), weft::Error>(())
/// # })?;
/// # Ok::<(), weft::Error>(())
/// ```
pub struct EventStream {
    run: Run,
    /// The last item was an error.
    failed: bool,
}

impl EventStream {
    /// To be called in a runtime of tokio with I/O. The program panics if there is none.
    pub fn new(mut run: Run) -> Result<EventStream> {
        run.watch = None; // of another runtime
        watch(&mut run)?;
        Ok(EventStream { run, failed: false })
    }

    /// The run.
    pub fn into_run(mut self) -> Run {
        self.run.watch = None;
        self.run
    }

    /// The next event; `None` if nothing is in progress.
    pub async fn next(&mut self) -> Option<Result<Event<'static>>> {
        Next(self).await
    }

    /// Makes one step, as [`Run::step`]. If the future is dropped, the step continues; its events come from [`EventStream::next`], and must be
    /// taken before another step is made so.
    pub async fn step<I: Input>(&mut self, inputs: &[I], mode: Mode) -> Result<f64> {
        if self.run.has_steps() {
            return Err(Error::new(Status::State, "steps or saves are in progress; poll their final events first"));
        }
        self.run.submit(inputs, mode, 0)?;
        while let Some(event) = self.next().await {
            match event? {
                Event::Done { loss, .. } => return Ok(loss),
                Event::Failed { error, .. } => return Err(error), // it also follows RunFailed
                _ => {}
            }
        }
        Err(Error::new(Status::Internal, "a step ended without a final event"))
    }

    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Event<'static>>>> {
        loop {
            if let Some(event) = self.run.poll_owned(Some(Duration::ZERO)).transpose() {
                return Poll::Ready(Some(event));
            }
            if !self.run.in_progress() {
                return Poll::Ready(None);
            }
            if self.run.computes_in_poll() {
                context.waker().wake_by_ref(); // the next job, after other tasks
                return Poll::Pending;
            }
            match watch(&mut self.run).map(|watch| watch.poll_read_ready(context).map_err(not_watched)) {
                Ok(Poll::Pending) => return Poll::Pending,
                // Tokio watches for changes only, so readiness is cleared, and then the run is asked once more.
                Ok(Poll::Ready(Ok(mut ready))) => ready.clear_ready(),
                Ok(Poll::Ready(Err(error))) | Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl Deref for EventStream {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

impl DerefMut for EventStream {
    fn deref_mut(&mut self) -> &mut Run {
        &mut self.run
    }
}

impl Stream for EventStream {
    type Item = Result<Event<'static>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The call that failed would fail again.
        if std::mem::take(&mut self.failed) && !self.run.in_progress() {
            return Poll::Ready(None);
        }
        let item = self.poll_item(context);
        self.failed = matches!(item, Poll::Ready(Some(Err(_))));
        item
    }
}

/// Watches the events of a run. It belongs to the run, because the program may replace the run of a stream.
pub(crate) type Watch = AsyncFd<RawFd>;

fn watch(run: &mut Run) -> Result<&Watch> {
    if run.watch.is_none() {
        let fd = run.fd().ok_or_else(|| Error::new(Status::NoMemory, "the process had no descriptor left for events"))?;
        #[allow(deprecated)] // an unsafe function replaces it in newer tokio: the descriptor is open until the watch is dropped
        let watch = AsyncFd::with_interest(fd.as_raw_fd(), Interest::READABLE);
        run.watch = Some(watch.map_err(not_watched)?);
    }
    Ok(run.watch.as_ref().expect("it was made"))
}

fn not_watched(error: std::io::Error) -> Error {
    Error::new(Status::Io, format!("the events cannot be watched: {error}"))
}

/// `std::future::poll_fn` requires Rust 1.64.
struct Next<'a>(&'a mut EventStream);

impl Future for Next<'_> {
    type Output = Option<Result<Event<'static>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll_next(context)
    }
}
