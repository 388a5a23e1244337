#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod checkpoint;
mod data;
mod error;
mod event;
mod failure;
mod generator;
mod mesh;
mod model;
mod node;
mod op;
mod optimizer;
mod panic;
mod plan;
mod plan_builder;
mod predict;
mod profile;
mod run;
mod run_builder;
mod spawn;
#[cfg(feature = "tokio")]
mod stream;
mod tensor;
mod tokenizer;
mod view;

use std::ffi::{CStr, CString, OsStr};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use checkpoint::{keep_source, Checkpoint, CheckpointInfo, ExportConfig, TensorInfo};
pub use data::{Data, DataBuilder, LongSamples};
pub use error::{Error, Result, Status};
pub use event::{Event, Events, Outputs};
pub use failure::{Activity, Awaited, Cause, Failure};
pub use generator::{Choice, Exclusive, Generator, SequenceConfig, SequenceEnd, Token};
pub use mesh::{new_key, public_key, Canceller, Mesh, MeshBuilder};
pub use model::{AdapterConfig, Init, Item, ItemKind, Model, Param, Preset, Value};
pub use node::Node;
pub use op::{Backward, Forward, Op, OpResult, OpShape, Reads};
pub use optimizer::{Optimizer, RateCurve, Rule};
pub use plan::{MemoryKind, Plan, PlanInfo};
pub use plan_builder::{ParameterGroup, PlanBuilder, Split, StepKind};
pub use predict::{schedules, Candidate, Comparison, LinkPrediction, Prediction, RankPrediction, Schedule, StepPrediction};
pub use profile::{Cluster, NodeTimes, Profile};
pub use run::{Input, Mode, Part, Run, SaveOptions};
pub use run_builder::{LogLevel, RunBuilder, ServiceBuilder};
#[cfg(feature = "tokio")]
pub use stream::EventStream;
pub use tensor::{Desc, Dtype, Element, Tensor};
pub use tokenizer::{Chat, Specials, TextStream, Tokenizer};
pub use view::{View, ViewMut};

/// The version of `ndarray` whose arrays this crate takes and returns.
#[cfg(feature = "ndarray")]
pub use ndarray;

/// The version of the library at run time.
pub fn version() -> String {
    unsafe { error::text_of(weft_sys::weft_version()) }
}

/// The name of the kernels that multiply matrices. The second value is true if they use only a part of the processor; the name then
/// contains the reason.
pub fn kernels() -> (String, bool) {
    let mut slow = 0;
    let name = error::written(|buffer, size| unsafe { weft_sys::weft_kernels(buffer, size, &mut slow) });
    (name, slow == 1)
}

/// A path as the library accepts it: any bytes except NUL.
fn path_text(path: impl AsRef<Path>) -> Result<CString> {
    let bytes = path.as_ref().as_os_str().as_bytes();
    CString::new(bytes).map_err(|_| Error::new(Status::Invalid, format!("the path {:?} contains a NUL", path.as_ref())))
}

/// A path of the library, with any bytes; NULL is `None`.
///
/// # Safety
/// `text` ends with a NUL, or is NULL.
unsafe fn path_of(text: *const c_char) -> Option<PathBuf> {
    (!text.is_null()).then(|| OsStr::from_bytes(CStr::from_ptr(text).to_bytes()).into())
}
