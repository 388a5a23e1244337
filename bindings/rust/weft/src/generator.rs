//! Generators: sequences of tokens that the run of a decoder continues.
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};
use std::time::Duration;

use weft_sys as sys;

use crate::error::{array, attempt, initialized, nanoseconds, Result};
use crate::run::Run;

/// How a sequence is continued. The filters apply after the temperature: `top_k`, then `top_p`, then `min_p`.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceConfig {
    /// Of the random choice; 0: always the most likely token.
    pub temperature: f64,
    /// Choose among that many of the most likely tokens; 0: all.
    pub top_k: u32,
    /// Choose among the fewest most likely tokens that together have this probability.
    pub top_p: f64,
    /// Choose among tokens of at least this part of the probability of the most likely one.
    pub min_p: f64,
    /// Divides positive logits of tokens of the sequence, and multiplies others.
    pub repetition_penalty: f64,
    /// Seed of random choices, with `number` and the index of the token.
    pub seed: u64,
    /// A second seed.
    pub number: u64,
    /// Index of the first token that is added.
    pub first: u64,
    /// Tokens to add; 0: as many as the cache has positions for.
    pub limit: u64,
    /// Tokens that end the sequence.
    pub stops: Vec<i32>,
}

impl Default for SequenceConfig {
    fn default() -> SequenceConfig {
        let raw = unsafe { initialized(sys::weft_sequence_config_init) };
        SequenceConfig {
            temperature: raw.temperature,
            top_k: raw.top_k,
            top_p: raw.top_p,
            min_p: raw.min_p,
            repetition_penalty: raw.repetition_penalty,
            seed: raw.seed,
            number: raw.number,
            first: raw.first,
            limit: raw.limit,
            stops: Vec::new(),
        }
    }
}

/// Why a sequence ends with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceEnd {
    /// The sequence continues.
    Continues,
    /// `limit` tokens were added.
    Limit,
    /// The token is one of `stops`.
    Stop,
    /// The cache has no position for the token.
    Context,
}

/// A token that was added to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// If it is not `Continues`, the sequence has left the generator.
    pub end: SequenceEnd,
    /// As [`Generator::add`] returned it.
    pub sequence: u64,
    /// Among the tokens that are added, from `first`.
    pub index: u64,
    /// The token.
    pub token: i32,
}

/// Continues sequences with a run whose model is of [`crate::Preset::decoder`]. Only the generator uses the run until it is dropped.
pub struct Generator<'a> {
    raw: NonNull<sys::weft_generator>,
    run: PhantomData<&'a mut Run>,
}

impl Drop for Generator<'_> {
    fn drop(&mut self) {
        unsafe { sys::weft_generator_free(self.raw.as_ptr()) }
    }
}

impl<'a> Generator<'a> {
    /// Creates a generator of an idle run.
    pub fn new(run: &'a mut Run) -> Result<Generator<'a>> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_generator_new(run.raw(), &mut raw, err) })?;
        Ok(Generator { raw: NonNull::new(raw).expect("a call that succeeds makes a generator"), run: PhantomData })
    }

    /// Adds a sequence that begins with `tokens`, 1 to the number of positions of the cache, and returns its identifier.
    pub fn add(&mut self, tokens: &[i32], config: &SequenceConfig) -> Result<u64> {
        let mut raw = unsafe { initialized(sys::weft_sequence_config_init) };
        raw.temperature = config.temperature;
        raw.top_k = config.top_k;
        raw.top_p = config.top_p;
        raw.min_p = config.min_p;
        raw.repetition_penalty = config.repetition_penalty;
        raw.seed = config.seed;
        raw.number = config.number;
        raw.first = config.first;
        raw.limit = config.limit;
        (raw.stops, raw.n_stops) = array("stops", &config.stops)?;
        let mut sequence = 0;
        attempt(|err| unsafe {
            sys::weft_generator_add(self.raw.as_ptr(), tokens.as_ptr(), tokens.len(), &raw, &mut sequence, err)
        })?;
        Ok(sequence)
    }

    /// Ends a sequence. Its tokens that have not been polled are dropped.
    pub fn remove(&mut self, sequence: u64) -> Result<()> {
        attempt(|err| unsafe { sys::weft_generator_remove(self.raw.as_ptr(), sequence, err) }).map(drop)
    }

    /// Waits for the next token. `None`: the time has passed, or the generator has no sequence. Without `timeout` there is no limit.
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Option<Token>> {
        let timeout = timeout.map_or(-1, nanoseconds);
        let mut token: sys::weft_token = unsafe { std::mem::zeroed() };
        token.size = std::mem::size_of::<sys::weft_token>() as u32;
        let found = attempt(|err| unsafe { sys::weft_generator_poll(self.raw.as_ptr(), &mut token, timeout, err) })?;
        let end = match token.end {
            sys::WEFT_SEQUENCE_CONTINUES => SequenceEnd::Continues,
            sys::WEFT_SEQUENCE_LIMIT => SequenceEnd::Limit,
            sys::WEFT_SEQUENCE_STOP => SequenceEnd::Stop,
            _ => {
                debug_assert!(token.end == sys::WEFT_SEQUENCE_CONTEXT);
                SequenceEnd::Context
            }
        };
        Ok((found == 1).then_some(Token { end, sequence: token.sequence, index: token.index, token: token.token }))
    }
}
