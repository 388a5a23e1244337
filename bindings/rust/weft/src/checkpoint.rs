//! Checkpoints: saved runs.
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut, NonNull};

use weft_sys as sys;

use crate::error::{attempt, c_string, filled, initialized, optional_text, pointer_of, text_of, Result};
use crate::run::{digest, Run};
use crate::tensor::{slice, Desc};
use crate::{path_of, path_text};

/// What a checkpoint contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// It is a safetensors file, or a directory of Transformers or PEFT; seed and step are 0.
    pub weights_only: bool,
    /// The checkpoint that was opened; of a directory of checkpoints, the latest.
    pub path: PathBuf,
    /// As given to [`Run::save`](crate::Run::save).
    pub model: Option<String>,
    /// As given to [`Run::save`](crate::Run::save), in byte order of keys.
    pub pairs: Vec<(String, String)>,
    /// Of the plan.
    pub seed: u64,
    /// Training steps.
    pub step: u64,
    /// Tensors of parameters, which come first.
    pub params: u32,
    /// Tensors of the state of the optimizer.
    pub states: u32,
    /// The damaged checkpoints that were skipped, each with its damage.
    pub warning: Option<String>,
    /// The directory of [`keep_source`], or a directory of Transformers itself.
    pub source: Option<PathBuf>,
    /// Tokens that end a text, for [`SequenceConfig::stops`](crate::SequenceConfig::stops).
    pub ends: Vec<i32>,
    /// Of a directory of PEFT: the keys of a preset that has its adapters.
    pub adapters: Option<String>,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions; none: a scalar.
    pub dims: Vec<usize>,
    /// The name of its type in the file: "F32", "BF16", "F16", ...
    pub dtype: String,
}

/// A saved run, or weights: a safetensors file, or a directory of Transformers or PEFT.
///
/// ```
/// # use weft::{Checkpoint, Desc, Mode, Model, Part, Plan, Run, SaveOptions, Status, Tensor};
/// # let directory = std::env::temp_dir().join(format!("weft_resume_{}", std::process::id()));
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 1]))?;
/// # let out = model.linear("out", x, 1)?;
/// # model.binary("mse", out, x)?;
/// # let plan = Plan::builder().micro_batches(1).build(&mut model)?;
/// # let batch = [Tensor::from_vec([4, 1], vec![1.0f32; 4])?];
/// # for expected in [0, 2] {
/// let mut run = Run::start(&plan)?;
/// let first = match Checkpoint::open(&directory) {
///     Ok(mut checkpoint) => {
///         run.load(&mut checkpoint)?;
///         checkpoint.describe()?.step
///     }
///     Err(error) if error.status() == Status::NotFound => 0, // a new run
///     Err(error) => return Err(error),
/// };
/// # assert_eq!(first, expected);
/// for _ in first..first + 2 {
///     run.step(&batch, Mode::Train)?;
/// }
/// run.save(&directory, &SaveOptions::default())?;
/// # let seven = Tensor::from_vec([1], vec![7.0f32])?;
/// # run.write("out.bias", Part::Value, &seven)?;
/// # run.load_except(&mut Checkpoint::open(&directory)?, "*.bias")?;
/// # assert_eq!(run.read("out.bias", Part::Value)?.as_slice::<f32>()?, [7.0]);
/// # assert!(run.load_except(&mut Checkpoint::open(&directory)?, "head.*").is_err());
/// # }
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok::<(), weft::Error>(())
/// ```
pub struct Checkpoint {
    raw: NonNull<sys::weft_checkpoint>,
}

// Functions of `&Checkpoint` may be called on any thread; the others require `&mut Checkpoint`.
unsafe impl Send for Checkpoint {}
unsafe impl Sync for Checkpoint {}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        unsafe { sys::weft_checkpoint_free(self.raw.as_ptr()) }
    }
}

impl Checkpoint {
    /// Opens a checkpoint, a safetensors file, the latest intact checkpoint of a directory, or a directory of Transformers or PEFT.
    ///
    /// # Errors
    /// [`Status::NotFound`](crate::Status::NotFound): there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path_text(path)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_checkpoint_open(path.as_ptr(), &mut raw, err) })?;
        Ok(Checkpoint { raw: NonNull::new(raw).expect("a call that succeeds makes a checkpoint") })
    }

    pub(crate) fn raw(&mut self) -> *mut sys::weft_checkpoint {
        self.raw.as_ptr()
    }

    /// Describes the checkpoint.
    pub fn describe(&self) -> Result<CheckpointInfo> {
        unsafe {
            let info = filled(|out| sys::weft_checkpoint_describe(self.raw.as_ptr(), out))?;
            let pairs = slice(info.options, info.n_options as usize);
            Ok(CheckpointInfo {
                weights_only: info.weights_only == 1,
                path: path_of(info.path).unwrap_or_default(),
                model: optional_text(info.model),
                pairs: pairs.iter().map(|pair| (text_of(pair.key), text_of(pair.value))).collect(),
                seed: info.seed,
                step: info.step,
                params: info.n_params,
                states: info.n_states,
                warning: optional_text(info.warning),
                source: path_of(info.source),
                ends: slice(info.ends, info.n_ends as usize).to_vec(),
                adapters: optional_text(info.adapters),
            })
        }
    }

    /// All tensors: parameters, then the state of the optimizer.
    pub fn tensors(&self) -> Vec<TensorInfo> {
        (0..).map_while(|index| self.tensor(index)).collect()
    }

    fn tensor(&self, index: u32) -> Option<TensorInfo> {
        let mut desc = unsafe { std::mem::zeroed::<sys::weft_desc>() };
        let mut dtype = null();
        unsafe {
            let name = optional_text(sys::weft_checkpoint_tensor(self.raw.as_ptr(), index, &mut desc, &mut dtype))?;
            Some(TensorInfo { name, dims: Desc::from_raw(&desc).dims, dtype: text_of(dtype) })
        }
    }

    /// A hash over all parameters, as [`Run::digest`](crate::Run::digest).
    pub fn digest(&mut self) -> Result<String> {
        digest(|text, err| unsafe { sys::weft_checkpoint_digest(self.raw(), -1, text, err) })
    }

    /// A hash over the bytes of one tensor.
    pub fn tensor_digest(&mut self, index: u32) -> Result<String> {
        digest(|text, err| unsafe { sys::weft_checkpoint_digest(self.raw(), index.into(), text, err) })
    }

    /// Writes the parameters as one safetensors file. If the path ends with `/`, writes a directory that Transformers loads, with the files
    /// of [`keep_source`].
    pub fn export(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        attempt(|err| unsafe { sys::weft_checkpoint_export(self.raw(), path.as_ptr(), err) }).map(drop)
    }

    /// [`export`](Checkpoint::export) with another type or size of files, or with adapters.
    pub fn export_as(&mut self, path: impl AsRef<Path>, config: &ExportConfig) -> Result<()> {
        let path = path_text(path)?;
        let dtype = c_string(&config.dtype)?;
        let adapters = config.adapters.as_deref().map(path_text).transpose()?;
        let mut raw = unsafe { initialized(sys::weft_export_config_init) };
        raw.dtype = dtype.as_ptr();
        raw.shard_bytes = config.shard_bytes;
        raw.merge = config.merge.into();
        raw.adapters = pointer_of(&adapters);
        attempt(|err| unsafe { sys::weft_checkpoint_export_as(self.raw(), path.as_ptr(), &raw, err) }).map(drop)
    }
}

/// How [`Checkpoint::export_as`] writes files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// Type of the parameters in the files: `f32`, or `bf16`, to which they are rounded.
    pub dtype: String,
    /// Of a directory: bytes of the tensors in a file, which may have more only if it has one tensor.
    pub shard_bytes: u64,
    /// Add the adapters of the model to the weights, not write only the adapters.
    pub merge: bool,
    /// Directory of PEFT, whose adapters are added to the model.
    pub adapters: Option<PathBuf>,
}

impl Default for ExportConfig {
    fn default() -> ExportConfig {
        let raw = unsafe { initialized(sys::weft_export_config_init) };
        ExportConfig { dtype: unsafe { text_of(raw.dtype) }, shard_bytes: raw.shard_bytes, merge: raw.merge == 1, adapters: None }
    }
}

/// Copies the files of a model that are neither weights nor checkpoints into `directory/source`, for exports of the checkpoints in
/// `directory`: the files of a tokenizer and of special tokens. `source` is a directory of Transformers, or [`CheckpointInfo::source`].
/// `tokenizer` is a file tokenizer.json, or its directory, which replaces the tokenizer of `source`. The copies appear together, and replace
/// earlier ones.
pub fn keep_source(directory: impl AsRef<Path>, source: Option<&Path>, tokenizer: Option<&Path>) -> Result<()> {
    let directory = path_text(directory)?;
    let source = source.map(path_text).transpose()?;
    let tokenizer = tokenizer.map(path_text).transpose()?;
    let (source, tokenizer) = (pointer_of(&source), pointer_of(&tokenizer));
    attempt(|err| unsafe { sys::weft_checkpoint_keep_source(directory.as_ptr(), source, tokenizer, err) }).map(drop)
}

/// Loads and exports.
impl Run {
    /// Continues from a checkpoint: parameters, state of the optimizer and the number of steps. Only between steps.
    pub fn load(&mut self, checkpoint: &mut Checkpoint) -> Result<()> {
        attempt(|err| unsafe { sys::weft_run_load(self.raw(), checkpoint.raw(), sys::WEFT_LOAD_ALL, err) }).map(drop)
    }

    /// Loads the parameters only.
    pub fn load_weights(&mut self, checkpoint: &mut Checkpoint) -> Result<()> {
        attempt(|err| unsafe { sys::weft_run_load(self.raw(), checkpoint.raw(), sys::WEFT_LOAD_WEIGHTS, err) }).map(drop)
    }

    /// Loads the parameters only, but not those whose names match a pattern: these keep their values, and the checkpoint may lack them or have
    /// other shapes. Patterns are separated by commas; `*` is any text, `?` any character.
    pub fn load_except(&mut self, checkpoint: &mut Checkpoint, kept: &str) -> Result<()> {
        let kept = c_string(kept)?;
        attempt(|err| unsafe { sys::weft_run_load_except(self.raw(), checkpoint.raw(), kept.as_ptr(), err) }).map(drop)
    }

    /// Writes all parameters as one safetensors file. Only between steps.
    pub fn export(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        attempt(|err| unsafe { sys::weft_run_export(self.raw(), path.as_ptr(), err) }).map(drop)
    }
}
