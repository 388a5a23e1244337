//! Plans: partition, schedule and memory layout of a step.
use std::collections::HashMap;
use std::path::Path;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;

use weft_sys as sys;

use crate::error::{attempt, filled, optional_text, text_of, written, Result};
use crate::model::{ItemKind, Model};
use crate::path_text;
use crate::plan_builder::PlanBuilder;
use crate::predict::Prediction;
use crate::tensor::Desc;

/// Shapes of what a run can read and deliver, for one sample.
#[derive(Default)]
pub(crate) struct Shapes {
    pub inputs: HashMap<String, Desc>,
    pub params: HashMap<String, Desc>,
    pub outputs: Vec<Desc>,
}

impl Shapes {
    fn of(model: &Model) -> Shapes {
        let named = |kind| model.items(kind).into_iter().map(|item| (item.name, item.desc)).collect();
        let outputs = model.items(ItemKind::Output).into_iter().map(|item| item.desc).collect();
        Shapes { inputs: named(ItemKind::Input), params: named(ItemKind::Param), outputs }
    }
}

/// What planned memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// All versions of the weights.
    Weights,
    /// Accumulators, and the sums for the norm.
    Gradients,
    /// State of the optimizer.
    Optimizer,
    /// Values of micro-batches that only this rank uses.
    Activations,
    /// Slots of values that arrive from other ranks or leave for them.
    Messages,
    /// Scratch memory of one kernel or action.
    Scratch,
    /// What nodes keep between steps: keys and values of "cached_attention".
    State,
}

/// What the configuration of a plan left to the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInfo {
    /// The number of ranks.
    pub ranks: u32,
    /// The number of stages.
    pub stages: u32,
    /// Micro-batches per step.
    pub micro_batches: u32,
    /// The name of the schedule; "written" for a written schedule.
    pub schedule: String,
    /// "1f1b": forward actions ahead per later rank; else 0.
    pub warm_up: u32,
    /// "1f1b-delayed-w": micro-batches whose weight gradients follow one another; else 0.
    pub group: u32,
    /// Elements of the parameters that are trained.
    pub trained: u64,
}

/// Partition, schedule and memory layout of a step. A plan cannot deadlock; this is checked when it is made. It keeps what it requires of
/// its model, so the model can be dropped.
///
/// ```
/// # use weft::{Desc, MemoryKind, Model, Plan};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 4]))?;
/// # let y = model.input("y", &Desc::f32([1, 1]))?;
/// # let hidden = model.linear("hidden", x, 16)?;
/// # let out = model.linear("out", hidden, 1)?;
/// # model.binary("mse", out, y)?;
/// let plan = Plan::builder().ranks(2).micro_batches(4).schedule("gpipe").build(&mut model)?;
/// assert_eq!(plan.stages(), 2);
/// assert_eq!(plan.timetable().lines().next(), Some("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"));
/// println!("rank 0 requires {} bytes, {} of them for weights", plan.bytes(0), plan.memory(0, MemoryKind::Weights));
/// # Ok::<(), weft::Error>(())
/// ```
pub struct Plan {
    raw: NonNull<sys::weft_plan>,
    shapes: Arc<Shapes>,
}

// Every function of a plan may be called on any thread.
unsafe impl Send for Plan {}
unsafe impl Sync for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        unsafe { sys::weft_plan_free(self.raw()) }
    }
}

impl Plan {
    /// Begins the configuration of a plan, with the defaults.
    pub fn builder() -> PlanBuilder<'static> {
        PlanBuilder::new()
    }

    pub(crate) fn from_raw(raw: *mut sys::weft_plan, model: &Model) -> Plan {
        let raw = NonNull::new(raw).expect("a call that succeeds makes a plan");
        Plan { raw, shapes: Arc::new(Shapes::of(model)) }
    }

    pub(crate) fn raw(&self) -> *mut sys::weft_plan {
        self.raw.as_ptr()
    }

    pub(crate) fn shapes(&self) -> &Arc<Shapes> {
        &self.shapes
    }

    /// Makes the same plan for the same model from a file of [`Plan::save`].
    pub fn load(model: &mut Model, path: impl AsRef<Path>) -> Result<Plan> {
        let path = path_text(path)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_plan_load(model.raw(), path.as_ptr(), &mut raw, err) })?;
        Ok(Plan::from_raw(raw, model))
    }

    /// Writes the inputs of the plan as JSON, and replaces the file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        attempt(|err| unsafe { sys::weft_plan_save(self.raw(), path.as_ptr(), err) }).map(drop)
    }

    /// A configuration that makes the same plan for the same model, if no link had a latency. It has the cuts, and not the profile, speeds, links
    /// and cluster.
    /// A setting replaces that of the plan: `groups([])` removes the groups.
    pub fn settings(&self) -> Result<PlanBuilder<'_>> {
        let raw = unsafe { filled(|out| sys::weft_plan_settings(self.raw(), out))? };
        Ok(PlanBuilder::from_raw(raw))
    }

    /// The number of stages.
    pub fn stages(&self) -> u32 {
        unsafe { sys::weft_plan_stages(self.raw()) }
    }

    /// The name of the first node of a stage.
    pub fn first(&self, stage: u32) -> Option<String> {
        unsafe { optional_text(sys::weft_plan_first(self.raw(), stage)) }
    }

    /// Bytes of the tensors of a rank.
    pub fn bytes(&self, rank: u32) -> u64 {
        unsafe { sys::weft_plan_bytes(self.raw(), rank) as u64 }
    }

    /// Bytes of one kind on a rank.
    pub fn memory(&self, rank: u32, kind: MemoryKind) -> u64 {
        let kind = match kind {
            MemoryKind::Weights => sys::WEFT_MEMORY_WEIGHTS,
            MemoryKind::Gradients => sys::WEFT_MEMORY_GRADIENTS,
            MemoryKind::Optimizer => sys::WEFT_MEMORY_OPTIMIZER,
            MemoryKind::Activations => sys::WEFT_MEMORY_ACTIVATIONS,
            MemoryKind::Messages => sys::WEFT_MEMORY_MESSAGES,
            MemoryKind::Scratch => sys::WEFT_MEMORY_SCRATCH,
            MemoryKind::State => sys::WEFT_MEMORY_STATE,
        };
        unsafe { sys::weft_plan_memory(self.raw(), rank, kind) as u64 }
    }

    /// The learning rate of a step; the first step is 0.
    pub fn rate(&self, step: u64) -> f64 {
        unsafe { sys::weft_plan_rate(self.raw(), step) }
    }

    /// The number of elements of the parameters that a rank owns.
    pub fn owned(&self, rank: u32) -> u64 {
        unsafe { sys::weft_plan_owned(self.raw(), rank) as u64 }
    }

    /// The same for the parameters that a rank holds: its own, and copies of tied ones.
    pub fn resident(&self, rank: u32) -> u64 {
        unsafe { sys::weft_plan_resident(self.raw(), rank) as u64 }
    }

    /// The schedule of training steps, one row per rank. [`PlanBuilder::schedule_text`] accepts it.
    pub fn timetable(&self) -> String {
        written(|buffer, size| unsafe { sys::weft_plan_timetable(self.raw(), buffer, size) })
    }

    /// Results of choices that the configuration left to the library.
    pub fn describe(&self) -> Result<PlanInfo> {
        let info = unsafe { filled(|out| sys::weft_plan_describe(self.raw(), out))? };
        Ok(PlanInfo {
            ranks: info.ranks,
            stages: info.stages,
            micro_batches: info.micro_batches,
            schedule: unsafe { text_of(info.schedule) },
            warm_up: info.warm_up,
            group: info.group,
            trained: info.trained as u64,
        })
    }

    /// The first rank that hosts a stage, in replica 0.
    pub fn rank(&self, stage: u32) -> u32 {
        unsafe { sys::weft_plan_rank(self.raw(), stage) }
    }

    /// The number of ranks that have the same part of a stage.
    pub fn replicas(&self, stage: u32) -> u32 {
        unsafe { sys::weft_plan_replicas(self.raw(), stage) }
    }

    /// The maximum number of updates of a training step: those of a segment of an asynchronous schedule, otherwise 1.
    pub fn updates(&self) -> u32 {
        unsafe { sys::weft_plan_updates(self.raw()) }
    }

    /// The number of minibatches in progress that suits an asynchronous schedule (NOAM of PipeDream); 0 if it is synchronous.
    pub fn noam(&self) -> u32 {
        unsafe { sys::weft_plan_noam(self.raw()) }
    }

    /// Versions of its weights that a rank keeps.
    pub fn versions(&self, rank: u32) -> u32 {
        unsafe { sys::weft_plan_versions(self.raw(), rank) }
    }

    /// Predicts a step.
    pub fn simulate(&self) -> Result<Prediction> {
        Prediction::of(self, 0)
    }

    /// The same, and records when every job runs, for [`Prediction::save_trace`].
    pub fn simulate_timeline(&self) -> Result<Prediction> {
        Prediction::of(self, sys::WEFT_PREDICT_TIMELINE)
    }
}
