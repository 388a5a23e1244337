//! Predictions: one simulated step of a plan.
use std::path::Path;
use std::ptr::{null_mut, NonNull};
use std::time::Duration;

use weft_sys as sys;

use crate::error::{attempt, filled, optional_text, Result};
use crate::path_text;
use crate::plan::Plan;

fn duration(ns: i64) -> Duration {
    Duration::from_nanos(ns.max(0) as u64)
}

/// A simulated step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPrediction {
    /// Duration, until the controller has received all reports.
    pub step: Duration,
    /// From the beginning of the step until the weights may change.
    pub commit: Duration,
    /// Mean over ranks of the share of the time until the commit in which a rank runs no kernel.
    pub idle: f64,
    /// The same, from the first to the last action of each rank.
    pub idle_own: f64,
    /// Bytes of the largest rank.
    pub peak_bytes: u64,
    /// Tensors over all links.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A rank of a simulated step.
#[derive(Clone, Debug, PartialEq)]
pub struct RankPrediction {
    /// Beginning of the first action.
    pub first: Duration,
    /// End of the last action.
    pub last: Duration,
    /// Time in kernels of actions.
    pub busy: Duration,
    /// Share of the time until the commit in which the rank runs no kernel.
    pub idle: f64,
    /// The same, from the first to the last action.
    pub idle_own: f64,
    /// Bytes of the rank.
    pub peak_bytes: u64,
}

/// A link of a simulated step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPrediction {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// Messages per step.
    pub messages: u64,
    /// Bytes per step.
    pub bytes: u64,
}

/// One simulated step of a plan. The simulation uses the engine of a run.
pub struct Prediction {
    raw: NonNull<sys::weft_prediction>,
}

// The functions of a prediction may be called on any thread; only its end requires that no other thread uses it.
unsafe impl Send for Prediction {}
unsafe impl Sync for Prediction {}

impl Drop for Prediction {
    fn drop(&mut self) {
        unsafe { sys::weft_prediction_free(self.raw.as_ptr()) }
    }
}

impl Prediction {
    pub(crate) fn of(plan: &Plan, flags: u32) -> Result<Prediction> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_plan_simulate(plan.raw(), flags, &mut raw, err) })?;
        Ok(Prediction { raw: NonNull::new(raw).expect("a call that succeeds makes a prediction") })
    }

    /// The step.
    pub fn step(&self) -> Result<StepPrediction> {
        let info = unsafe { filled(|out| sys::weft_prediction_describe(self.raw.as_ptr(), out))? };
        Ok(StepPrediction {
            step: duration(info.step_ns),
            commit: duration(info.commit_ns),
            idle: info.idle,
            idle_own: info.idle_own,
            peak_bytes: info.peak_bytes as u64,
            messages: info.messages as u64,
            bytes: info.bytes as u64,
        })
    }

    /// All ranks.
    pub fn ranks(&self) -> Vec<RankPrediction> {
        let rank = |index| unsafe { filled(|out| sys::weft_prediction_rank(self.raw.as_ptr(), index, out)) };
        (0..)
            .map_while(|index| rank(index).ok())
            .map(|out| RankPrediction {
                first: duration(out.first_ns),
                last: duration(out.last_ns),
                busy: duration(out.busy_ns),
                idle: out.idle,
                idle_own: out.idle_own,
                peak_bytes: out.peak_bytes as u64,
            })
            .collect()
    }

    /// All links.
    pub fn links(&self) -> Vec<LinkPrediction> {
        let link = |index| unsafe { filled(|out| sys::weft_prediction_link(self.raw.as_ptr(), index, out)) };
        (0..)
            .map_while(|index| link(index).ok())
            .map(|out| LinkPrediction { from: out.from, to: out.to, messages: out.messages as u64, bytes: out.bytes as u64 })
            .collect()
    }

    /// Writes the timeline as a Chrome trace.
    pub fn save_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        attempt(|err| unsafe { sys::weft_prediction_save_trace(self.raw.as_ptr(), path.as_ptr(), err) }).map(drop)
    }
}

/// A row of a [`Comparison`].
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The name of the schedule.
    pub schedule: String,
    /// Stages per rank.
    pub chunks: u32,
    /// "1f1b": forward actions ahead per later rank; else 0.
    pub warm_up: u32,
    /// "1f1b-delayed-w": micro-batches whose weight gradients follow one another; else 0.
    pub group: u32,
    /// The plan that the library selects.
    pub best: bool,
    /// A rank exceeds the limit of bytes.
    pub over: bool,
    /// Why there is no such plan; then the numbers are 0.
    pub refused: Option<String>,
    /// Duration of the step.
    pub step: Duration,
    /// Part of it: the busiest rank in kernels. Only with the axis "auto".
    pub work: Duration,
    /// Part of it: waiting for other ranks. Only with the axis "auto".
    pub waiting: Duration,
    /// See [`StepPrediction`].
    pub idle: f64,
    /// See [`StepPrediction`].
    pub idle_own: f64,
    /// Bytes of the largest rank.
    pub peak_bytes: u64,
    /// Bytes of tensors over all links.
    pub bytes: u64,
    /// Sizes of the axes data, stage and tensor. Only with the axis "auto".
    pub mesh: Option<[u32; 3]>,
    /// What replicas keep in parts. Only with the axis "auto".
    pub shard: Option<String>,
}

/// Predictions of all schedules, or meshes, that a configuration allows.
pub struct Comparison {
    raw: NonNull<sys::weft_comparison>,
}

// As for predictions.
unsafe impl Send for Comparison {}
unsafe impl Sync for Comparison {}

impl Drop for Comparison {
    fn drop(&mut self) {
        unsafe { sys::weft_comparison_free(self.raw.as_ptr()) }
    }
}

impl Comparison {
    pub(crate) fn from_raw(raw: *mut sys::weft_comparison) -> Comparison {
        Comparison { raw: NonNull::new(raw).expect("a call that succeeds makes a comparison") }
    }

    /// All candidates.
    pub fn candidates(&self) -> Vec<Candidate> {
        (0..).map_while(|index| unsafe { self.row(index) }).collect()
    }

    unsafe fn row(&self, index: u32) -> Option<Candidate> {
        let out = filled(|out| sys::weft_comparison_row(self.raw.as_ptr(), index, out)).ok()?;
        Some(Candidate {
            schedule: optional_text(out.schedule).unwrap_or_default(),
            chunks: out.chunks,
            warm_up: out.warm_up,
            group: out.group,
            best: out.best == 1,
            over: out.over == 1,
            refused: optional_text(out.refused),
            step: duration(out.step_ns),
            work: duration(out.work_ns),
            waiting: duration(out.waiting_ns),
            idle: out.idle,
            idle_own: out.idle_own,
            peak_bytes: out.peak_bytes as u64,
            bytes: out.bytes as u64,
            mesh: Some([out.data, out.stage, out.tensor]).filter(|mesh| mesh[0] != 0),
            shard: optional_text(out.shard),
        })
    }
}

/// A schedule of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, for `PlanBuilder::schedule`.
    pub name: String,
    /// One line, with the sizes that the schedule supports.
    pub about: String,
    /// Stages per rank; 0: any number.
    pub chunks: u32,
    /// Weights change while other micro-batches are in progress.
    pub asynchronous: bool,
    /// It cannot train.
    pub forward_only: bool,
}

/// All schedules of the library.
///
/// ```
/// assert!(weft::schedules().iter().any(|schedule| schedule.name == "1f1b"));
/// ```
pub fn schedules() -> Vec<Schedule> {
    let schedule = |index| unsafe { filled(|out| sys::weft_schedule_describe(index, out)) };
    (0..)
        .map_while(|index| schedule(index).ok())
        .map(|out| Schedule {
            name: unsafe { optional_text(out.name).unwrap_or_default() },
            about: unsafe { optional_text(out.about).unwrap_or_default() },
            chunks: out.chunks,
            asynchronous: out.asynchronous == 1,
            forward_only: out.forward_only == 1,
        })
        .collect()
}
