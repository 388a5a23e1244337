//! Training data of presets.
use std::path::Path;
use std::ptr::{null_mut, NonNull};

use weft_sys as sys;

use crate::error::{attempt, initialized, number, pointer_of, Result};
use crate::model::Preset;
use crate::path_text;
use crate::tensor::Tensor;
use crate::tokenizer::Tokenizer;

// How a text becomes tokens.
struct Text<'a> {
    tokenizer: &'a Tokenizer,
    end_token: Option<i32>,
    packed: bool,
}

/// Training data of a preset.
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
    /// Opens a file: bytes if the vocabulary is 256; otherwise little-endian ids, NAME.u16 or NAME.u32. `eval_share` at its end is held
    /// out, 0 or more and less than 1.
    pub fn open(preset: &Preset, path: impl AsRef<Path>, eval_share: f64) -> Result<Data> {
        Data::make(preset, Some(path.as_ref()), None, eval_share, None)
    }

    /// The same with a file of held-out data.
    pub fn open_with_eval(preset: &Preset, path: impl AsRef<Path>, eval_path: impl AsRef<Path>) -> Result<Data> {
        Data::make(preset, Some(path.as_ref()), Some(eval_path.as_ref()), 0.0, None)
    }

    /// Opens a text in UTF-8, or samples, NAME.jsonl, of which each line is `{"prompt": "...", "completion": "..."}`. `end_token` follows
    /// each completion.
    pub fn open_text(
        preset: &Preset,
        path: impl AsRef<Path>,
        eval_share: f64,
        tokenizer: &Tokenizer,
        end_token: Option<i32>,
    ) -> Result<Data> {
        let text = Text { tokenizer, end_token, packed: false };
        Data::make(preset, Some(path.as_ref()), None, eval_share, Some(text))
    }

    /// Opens samples, NAME.jsonl, several of which may share a window: for [`Model::packed`](Preset::packed).
    pub fn open_packed(
        preset: &Preset,
        path: impl AsRef<Path>,
        eval_share: f64,
        tokenizer: &Tokenizer,
        end_token: Option<i32>,
    ) -> Result<Data> {
        let text = Text { tokenizer, end_token, packed: true };
        Data::make(preset, Some(path.as_ref()), None, eval_share, Some(text))
    }

    /// Synthetic data, drawn from the seed of each sample.
    pub fn synthetic(preset: &Preset) -> Result<Data> {
        Data::make(preset, None, None, 0.0, None)
    }

    fn make(preset: &Preset, path: Option<&Path>, eval_path: Option<&Path>, eval_share: f64, text: Option<Text>) -> Result<Data> {
        let path = path.map(path_text).transpose()?;
        let eval_path = eval_path.map(path_text).transpose()?;
        let mut config = unsafe { initialized(sys::weft_data_config_init) };
        config.path = pointer_of(&path);
        config.eval_path = pointer_of(&eval_path);
        config.eval_share = eval_share;
        config.vocabulary = number("vocabulary", preset.vocabulary)?;
        config.seq_len = number("seq_len", preset.seq_len)?;
        config.width = number("width", preset.width)?;
        if let Some(text) = text {
            config.tokenizer = text.tokenizer.raw();
            config.end_token = text.end_token.unwrap_or(-1);
            config.packed = text.packed.into();
        }
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_data_open(&config, &mut raw, err) })?;
        Ok(Data { raw: NonNull::new(raw).expect("a call that succeeds makes data") })
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

    /// The number of windows of held-out data; 0: there is none.
    pub fn eval_windows(&self) -> usize {
        unsafe { sys::weft_data_eval_windows(self.raw.as_ptr()) as usize }
    }

    /// Fills the two inputs with held-out windows, starting at `first`. After the last one follows padding with targets of -1.
    pub fn eval(&self, first: usize, x: &mut Tensor, target: &mut Tensor) -> Result<()> {
        let (first, x, target) = (number("first", first)?, x.writable_raw()?, target.writable_raw()?);
        attempt(|err| unsafe { sys::weft_data_eval(self.raw.as_ptr(), first, x, target, err) }).map(drop)
    }

    /// Fills the third input of a packed preset for the windows of `eval`.
    pub fn eval_positions(&self, first: usize, positions: &mut Tensor) -> Result<()> {
        let (first, positions) = (number("first", first)?, positions.writable_raw()?);
        attempt(|err| unsafe { sys::weft_data_eval_positions(self.raw.as_ptr(), first, positions, err) }).map(drop)
    }
}
