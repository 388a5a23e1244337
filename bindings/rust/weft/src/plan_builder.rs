//! The configuration of a plan.
use std::ffi::CString;
use std::marker::PhantomData;
use std::os::raw::c_char;
use std::ptr::{null, null_mut};

use weft_sys as sys;

use crate::error::{array, attempt, c_string, initialized, Error, Result};
use crate::model::Model;
use crate::optimizer::Optimizer;
use crate::plan::Plan;
use crate::predict::Comparison;
use crate::profile::{Cluster, Profile};

/// How the model is cut into stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Split {
    /// Minimizes the cost of the slowest stage.
    Cost,
    /// Equal numbers of nodes.
    Uniform,
    /// Equal numbers of parameters.
    Parameters,
    /// Equal numbers of nodes of one op.
    Type(String),
    /// The partitioner of PipeDream.
    Pipedream,
}

/// Kinds of steps that the runs of a plan make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Training steps. Without them there are no gradients and no optimizer state.
    Train,
    /// Steps to the loss.
    Eval,
    /// Steps to the outputs. Without them and the outputs below, rank 0 has no memory for outputs.
    Forward,
    /// Steps to the state of nodes, as the caches of a decoder.
    Fill,
    /// With [`StepKind::Train`]: these steps deliver the outputs, too.
    TrainOutputs,
    /// With [`StepKind::Eval`]: these steps deliver the outputs, too.
    EvalOutputs,
}

/// How a plan trains the parameters whose names match a pattern: `*` is any text, `?` any character. The last group that matches a parameter
/// counts.
///
/// ```
/// # use weft::{Desc, Model, ParameterGroup, Plan};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 4]))?;
/// # let y = model.linear("hidden", x, 2)?;
/// # let y = model.linear("out", y, 4)?;
/// # model.binary("mse", y, x)?;
/// let groups = [ParameterGroup::frozen("hidden.*"), ParameterGroup { rate_factor: 0.1, ..ParameterGroup::new("*.bias") }];
/// let plan = Plan::builder().groups(groups).build(&mut model)?;
/// # Ok::<(), weft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterGroup {
    /// Of whole names. It must match a parameter.
    pub pattern: String,
    /// The parameters are not trained.
    pub frozen: bool,
    /// The learning rate of the step is multiplied by it.
    pub rate_factor: f64,
    /// The weight decay is multiplied by it, for parameters that decay.
    pub weight_decay_factor: f64,
}

impl ParameterGroup {
    /// A group without an effect: it is trained, and its factors are 1.
    pub fn new(pattern: &str) -> ParameterGroup {
        ParameterGroup { pattern: pattern.to_string(), frozen: false, rate_factor: 1.0, weight_decay_factor: 1.0 }
    }

    /// Parameters that are not trained.
    pub fn frozen(pattern: &str) -> ParameterGroup {
        ParameterGroup { frozen: true, ..ParameterGroup::new(pattern) }
    }
}

/// The configuration of a plan. Every setting has a default; `man weft_plan_new` describes them.
///
/// A setting that is not valid is reported by [`PlanBuilder::build`]:
///
/// ```
/// # use weft::{Desc, Model, Plan, Status};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 4]))?;
/// # let out = model.linear("out", x, 1)?;
/// # model.output(out)?;
/// let error = Plan::builder().schedule("no-such-schedule").build(&mut model).err().expect("a failure");
/// assert!(error.text().contains("no-such-schedule"), "{error}");
/// # Ok::<(), weft::Error>(())
/// ```
#[must_use = "a plan is made by `build`"]
pub struct PlanBuilder<'a> {
    raw: sys::weft_plan_config,
    /// The texts to which `raw` points.
    texts: Vec<CString>,
    /// Arrays to which `raw` will point. `None`: it keeps its own, of a plan.
    cuts: Option<Vec<*const c_char>>,
    axes: Option<Vec<sys::weft_axis>>,
    speeds: Option<Vec<f64>>,
    groups: Option<Vec<sys::weft_parameter_group>>,
    optimizer: Option<Box<sys::weft_optimizer>>,
    fault: Option<Error>,
    borrowed: PhantomData<&'a ()>,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
            self.raw.$name = $name;
            self
        })*
    };
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* pub fn $name(mut self, $name: &str) -> Self {
            self.raw.$name = self.keep($name);
            self
        })*
    };
}

impl<'a> PlanBuilder<'a> {
    pub(crate) fn new() -> Self {
        PlanBuilder::from_raw(unsafe { initialized(sys::weft_plan_config_init) })
    }

    pub(crate) fn from_raw(raw: sys::weft_plan_config) -> Self {
        PlanBuilder {
            raw,
            texts: Vec::new(),
            cuts: None,
            axes: None,
            speeds: None,
            groups: None,
            optimizer: None,
            fault: None,
            borrowed: PhantomData,
        }
    }

    /// Keeps a text as long as the configuration. The first text with a NUL is the failure of `build`.
    fn keep(&mut self, text: &str) -> *const c_char {
        match c_string(text) {
            Ok(text) => self.texts.push(text),
            Err(fault) => {
                self.fault.get_or_insert(fault);
                self.texts.push(CString::default());
            }
        }
        self.texts[self.texts.len() - 1].as_ptr()
    }

    numbers! {
        /// Micro-batches per step. Default: 8.
        micro_batches: u32;
        /// Samples per micro-batch. Default: 4.
        micro_batch_size: u32;
        /// Samples that the last micro-batch of a step may have instead, and all micro-batches of a forward step with fewer samples than a
        /// full one; 0: they are always full. Default: 0.
        short_size: u32;
        /// Default: 0.
        seed: u64;
        /// Stages per rank; 0: the number that the schedule uses. Default: 0.
        chunks: u32;
        /// Interleaved schedules: micro-batches per chunk before the next chunk; 0: the number of ranks. "1f1b-delayed-w": micro-batches whose
        /// weight gradients follow one another; 0: 4; with "auto", 4 or 8. Default: 0.
        group: u32;
        /// "1f1b": forward actions before the first backward action, per later rank; 0: the library selects it. Default: 1.
        warm_up: u32;
        /// Asynchronous schedules: updates per step; 0: 16, or the next multiple of all stage replicas. Default: 0.
        segment: u32;
        /// Bytes per rank, for recompute "auto" or [`Split::Cost`]; 0: no limit. Default: 0.
        memory_limit: u64;
        /// Latency of a message, for the split, predictions and the number of slots. Default: 0.
        link_latency_ns: i64;
        /// Bytes per second of a link in each direction, for the split and predictions; 0: no limit. Default: 0.
        link_bandwidth: f64;
        /// Groups in which the gradients of micro-batches are added; decides rounding. 0: the number of replicas. Default: 0.
        gradient_groups: u32;
        /// Pieces into which large nodes are cut, 1 to 16; decides rounding. 0: the size of the axis "tensor". Default: 0.
        tensor: u32;
    }

    texts! {
        /// A written schedule, in the form of [`Plan::timetable`]; replaces the schedule.
        schedule_text;
        /// Activations that the backward pass recomputes: "none", "stage", "every:N" or "auto". Default: "none".
        recompute;
        /// What replicas keep in parts: "none", "optimizer" or "parameters"; with the axis "auto" also "auto". Default: "optimizer".
        shard;
        /// Asynchronous schedules: ranks of each stage, e.g. "3,1", which take turns with its micro-batches. "": one rank each. Default: "".
        stage_replicas;
        /// Type in which values and gradients between nodes are stored and sent: "f32" or "bf16". Default: "f32".
        precision;
        /// Nodes that have f32 with precision "bf16": "NAME,...", where * is any text, ? any character. Default: "".
        f32_nodes;
    }

    /// The name of a schedule, or "auto": the best one by prediction. It replaces a written schedule. Default: "1f1b".
    pub fn schedule(mut self, schedule: &str) -> Self {
        self.raw.schedule = self.keep(schedule);
        self.raw.schedule_text = null();
        self
    }

    /// Replaces the cuts. Default: [`Split::Cost`].
    pub fn split(mut self, split: Split) -> Self {
        self.cuts = Some(Vec::new());
        self.raw.split_type = null();
        self.raw.split = match split {
            Split::Cost => sys::WEFT_SPLIT_COST,
            Split::Uniform => sys::WEFT_SPLIT_UNIFORM,
            Split::Parameters => sys::WEFT_SPLIT_PARAMETERS,
            Split::Type(op) => {
                self.raw.split_type = self.keep(&op);
                sys::WEFT_SPLIT_TYPE
            }
            Split::Pipedream => sys::WEFT_SPLIT_PIPEDREAM,
        };
        self
    }

    /// The names of the first nodes of stages 1, 2, ...; replaces the split.
    pub fn cuts<T: AsRef<str>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.cuts = Some(names.into_iter().map(|name| self.keep(name.as_ref())).collect());
        self
    }

    /// Ranks of a pipeline; with axes, 1 or the product of their sizes. Replaces the axes of [`Plan::settings`]. Default: 1.
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.axes.get_or_insert_with(Vec::new);
        self.raw.ranks = ranks;
        self
    }

    /// Adds an axis of the mesh of ranks: "data", "stage", "tensor", an axis of the model, or "auto". The first call replaces the axes and
    /// ranks of [`Plan::settings`].
    pub fn axis(mut self, name: &str, size: u32) -> Self {
        let name = self.keep(name);
        if self.axes.is_none() {
            self.raw.ranks = 1;
        }
        self.axes.get_or_insert_with(Vec::new).push(sys::weft_axis { name, size, reserved: 0 });
        self
    }

    /// The kinds of steps of the runs. Default: all that the model allows.
    pub fn step_kinds(mut self, kinds: impl AsRef<[StepKind]>) -> Self {
        self.raw.step_kinds = kinds.as_ref().iter().fold(0, |mask, kind| {
            mask | match kind {
                StepKind::Train => sys::WEFT_STEPS_TRAIN,
                StepKind::Eval => sys::WEFT_STEPS_EVAL,
                StepKind::Forward => sys::WEFT_STEPS_FORWARD,
                StepKind::Fill => sys::WEFT_STEPS_FILL,
                StepKind::TrainOutputs => sys::WEFT_STEPS_TRAIN_OUTPUTS,
                StepKind::EvalOutputs => sys::WEFT_STEPS_EVAL_OUTPUTS,
            }
        });
        self
    }

    /// Default: [`Optimizer::default`].
    pub fn optimizer(mut self, optimizer: Optimizer) -> Self {
        self.optimizer = Some(Box::new(optimizer.raw()));
        self
    }

    /// All groups of parameters that are frozen or have their own factors. Default: none.
    pub fn groups(mut self, groups: impl IntoIterator<Item = ParameterGroup>) -> Self {
        self.groups = Some(groups.into_iter().map(|group| self.keep_group(&group)).collect());
        self
    }

    fn keep_group(&mut self, group: &ParameterGroup) -> sys::weft_parameter_group {
        let mut raw = unsafe { initialized(sys::weft_parameter_group_init) };
        raw.pattern = self.keep(&group.pattern);
        raw.frozen = group.frozen.into();
        raw.rate_factor = group.rate_factor;
        raw.weight_decay_factor = group.weight_decay_factor;
        raw
    }

    /// Asynchronous schedules: all stages use the version of the weights that the first stage uses. Default: false.
    pub fn vertical_sync(mut self, on: bool) -> Self {
        self.raw.vertical_sync = on.into();
        self
    }

    /// Measured times, for the split and predictions. Default: costs that the ops estimate.
    pub fn profile(mut self, profile: &'a Profile) -> Self {
        self.raw.profile = profile.raw();
        self
    }

    /// The machines for which predictions are made; replaces speeds and links.
    pub fn cluster(mut self, cluster: &'a Cluster) -> Self {
        self.raw.cluster = cluster.raw();
        self
    }

    /// The speed of each rank, relative to the machine of the profile. Default: all are 1.
    pub fn speeds(mut self, speeds: impl Into<Vec<f64>>) -> Self {
        self.speeds = Some(speeds.into());
        self
    }

    /// Makes the plan. Afterwards the model cannot be changed.
    pub fn build(self, model: &mut Model) -> Result<Plan> {
        let config = self.finish()?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_plan_new(model.raw(), &config.raw, &mut raw, err) })?;
        Ok(Plan::from_raw(raw, model))
    }

    /// Plans and simulates a step for each schedule or mesh that the configuration allows; see [`Comparison`].
    pub fn compare(self, model: &mut Model) -> Result<Comparison> {
        let config = self.finish()?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_plan_compare(model.raw(), &config.raw, &mut raw, err) })?;
        Ok(Comparison::from_raw(raw))
    }

    /// Sets the pointers to what the configuration owns.
    fn finish(mut self) -> Result<Self> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if let Some(cuts) = &self.cuts {
            (self.raw.cuts, self.raw.n_cuts) = array("cuts", cuts)?;
        }
        if let Some(axes) = &self.axes {
            (self.raw.axes, self.raw.n_axes) = array("axes", axes)?;
        }
        if let Some(speeds) = &self.speeds {
            (self.raw.speeds, self.raw.n_speeds) = array("speeds", speeds)?;
        }
        if let Some(groups) = &self.groups {
            (self.raw.groups, self.raw.n_groups) = array("groups", groups)?;
        }
        if let Some(optimizer) = &self.optimizer {
            self.raw.optimizer = &**optimizer;
        }
        Ok(self)
    }
}
