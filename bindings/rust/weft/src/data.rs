//! Training data of presets.
use std::ffi::CString;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{null_mut, NonNull};

use weft_sys as sys;

use crate::error::{attempt, initialized, number, pointer_of, Result};
use crate::model::Preset;
use crate::path_text;
use crate::tensor::Tensor;
use crate::tokenizer::Tokenizer;

/// What is done with a sample of NAME.jsonl that has more than `seq_len` + 1 tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongSamples {
    /// The data is refused
    Refuse,
    /// Its end is cut off; it is left out if it has no target before the cut
    Cut,
    /// It is left out
    Skip,
}

/// Training data of a preset, or of another model with the same inputs.
///
/// ```
/// # use weft::{Data, Preset};
/// # let path = std::env::temp_dir().join(format!("weft_data_{}", std::process::id()));
/// # std::fs::write(&path, "to be or not to be ".repeat(20))?;
/// let preset = Preset::new("gpt-nano", 16, 1)?;
/// let data = Data::builder().preset(&preset).path(&path).eval_share(0.2).open()?;
/// println!("{} windows are held out", data.eval_windows());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Data {
    raw: NonNull<sys::weft_data>,
}

// The functions of data may be called on any thread; only its end requires that no other thread uses it.
unsafe impl Send for Data {}
unsafe impl Sync for Data {}

impl Drop for Data {
    fn drop(&mut self) {
        unsafe { sys::weft_data_free(self.raw.as_ptr()) }
    }
}

impl Data {
    /// Begins the settings of data.
    pub fn builder() -> DataBuilder<'static> {
        let raw = unsafe { initialized(sys::weft_data_config_init) };
        DataBuilder { raw, path: Ok(None), eval_path: Ok(None), vocabulary: 0, seq_len: 0, width: 0, borrowed: PhantomData }
    }

    /// Fills the two inputs of the preset with samples. Sample j is the window at an offset that is drawn for (seed, step, j).
    pub fn sample(&self, seed: u64, step: u64, x: &mut Tensor, target: &mut Tensor) -> Result<()> {
        let (x, target) = (x.writable_raw()?, target.writable_raw()?);
        attempt(|err| unsafe { sys::weft_data_sample(self.raw.as_ptr(), seed, step, x, target, err) }).map(drop)
    }

    /// Fills the third input of a packed preset for the windows of `sample`: the position of each token in its sequence.
    pub fn positions(&self, seed: u64, step: u64, positions: &mut Tensor) -> Result<()> {
        let positions = positions.writable_raw()?;
        attempt(|err| unsafe { sys::weft_data_positions(self.raw.as_ptr(), seed, step, positions, err) }).map(drop)
    }

    /// The number of windows of an epoch; 0: there is no file for training.
    pub fn windows(&self) -> usize {
        unsafe { sys::weft_data_windows(self.raw.as_ptr()) as usize }
    }

    /// The number of windows of held-out data; 0: there is none.
    pub fn eval_windows(&self) -> usize {
        unsafe { sys::weft_data_eval_windows(self.raw.as_ptr()) as usize }
    }

    /// Fills the two inputs with held-out windows, starting at `first`. After the last one follows padding with targets of -1.
    pub fn eval(&self, first: usize, x: &mut Tensor, target: &mut Tensor) -> Result<()> {
        let (first, x, target) = (number("first", first)?, x.writable_raw()?, target.writable_raw()?);
        attempt(|err| unsafe { sys::weft_data_eval(self.raw.as_ptr(), first, x, target, err) }).map(drop)
    }

    /// The number of samples, training and held out, of which [`LongSamples::Cut`] has cut the end off.
    pub fn cut_samples(&self) -> usize {
        unsafe { sys::weft_data_cut_samples(self.raw.as_ptr()) as usize }
    }

    /// The number of samples, training and held out, that [`LongSamples::Cut`] and [`LongSamples::Skip`] have left out.
    pub fn skipped_samples(&self) -> usize {
        unsafe { sys::weft_data_skipped_samples(self.raw.as_ptr()) as usize }
    }

    /// Fills the third input of a packed preset for the windows of `eval`.
    pub fn eval_positions(&self, first: usize, positions: &mut Tensor) -> Result<()> {
        let (first, positions) = (number("first", first)?, positions.writable_raw()?);
        attempt(|err| unsafe { sys::weft_data_eval_positions(self.raw.as_ptr(), first, positions, err) }).map(drop)
    }
}

/// The settings of data. Without a file, they are synthetic, drawn from the seed of each sample. `man weft_data_open` describes the files.
#[must_use = "data are opened by `open`"]
pub struct DataBuilder<'a> {
    raw: sys::weft_data_config,
    path: Result<Option<CString>>,
    eval_path: Result<Option<CString>>,
    vocabulary: usize,
    seq_len: usize,
    width: usize,
    borrowed: PhantomData<&'a Tokenizer>,
}

impl<'a> DataBuilder<'a> {
    /// The vocabulary, the number of tokens per sample and the width of a preset.
    pub fn preset(self, preset: &Preset) -> Self {
        self.vocabulary(preset.vocabulary).seq_len(preset.seq_len).width(preset.width)
    }

    /// Number of different tokens; 0: the samples are rows of numbers. Default: 0.
    pub fn vocabulary(mut self, vocabulary: usize) -> Self {
        self.vocabulary = vocabulary;
        self
    }

    /// Tokens per sample. Default: 0.
    pub fn seq_len(mut self, seq_len: usize) -> Self {
        self.seq_len = seq_len;
        self
    }

    /// Numbers per row. Default: 0.
    pub fn width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    /// A file of bytes, if the vocabulary is 256; of little-endian ids, NAME.u16 or NAME.u32; or with a tokenizer of a text in UTF-8, or of
    /// samples, NAME.jsonl. Default: none.
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = path_text(path).map(Some);
        self
    }

    /// A file of held-out data. Default: none.
    pub fn eval_path(mut self, path: impl AsRef<Path>) -> Self {
        self.eval_path = path_text(path).map(Some);
        self
    }

    /// Without a file of held-out data: this share at the end of the other file is held out, 0 or more and less than 1. Default: 0.
    pub fn eval_share(mut self, share: f64) -> Self {
        self.raw.eval_share = share;
        self
    }

    /// The files are texts, or samples, NAME.jsonl, of which each line is `{"prompt": "...", "completion": "..."}`,
    /// `{"text": "..."}` or `{"messages": [{"role": "...", "content": "..."}, ...]}`. Default: none.
    pub fn tokenizer(mut self, tokenizer: &'a Tokenizer) -> Self {
        self.raw.tokenizer = tokenizer.raw();
        self
    }

    /// NAME.jsonl: the token after each completion and text. Default: none.
    pub fn end_token(mut self, token: impl Into<Option<i32>>) -> Self {
        self.raw.end_token = token.into().unwrap_or(-1);
        self
    }

    /// NAME.jsonl: several samples may share a window, for [`Preset::packed`]. Default: false.
    pub fn packed(mut self, on: bool) -> Self {
        self.raw.packed = on.into();
        self
    }

    /// NAME.jsonl: what is done with a sample that is too long. Default: [`LongSamples::Refuse`].
    pub fn long_samples(mut self, long_samples: LongSamples) -> Self {
        self.raw.long_samples = match long_samples {
            LongSamples::Refuse => sys::WEFT_LONG_REFUSE,
            LongSamples::Cut => sys::WEFT_LONG_CUT,
            LongSamples::Skip => sys::WEFT_LONG_SKIP,
        };
        self
    }

    /// Opens the data. A file is refused if it is too short or contains an id that is not in the vocabulary.
    pub fn open(mut self) -> Result<Data> {
        let (path, eval_path) = (self.path?, self.eval_path?);
        self.raw.path = pointer_of(&path);
        self.raw.eval_path = pointer_of(&eval_path);
        self.raw.vocabulary = number("vocabulary", self.vocabulary)?;
        self.raw.seq_len = number("seq_len", self.seq_len)?;
        self.raw.width = number("width", self.width)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_data_open(&self.raw, &mut raw, err) })?;
        Ok(Data { raw: NonNull::new(raw).expect("a call that succeeds makes data") })
    }
}
