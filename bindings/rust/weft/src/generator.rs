//! Generators: sequences of tokens that the run of a decoder continues.
use std::borrow::Borrow;
use std::collections::HashMap;
use std::ptr::{null_mut, NonNull};
use std::time::Duration;

use weft_sys as sys;

use crate::error::{array, attempt, initialized, nanoseconds, Result};
use crate::op::{answer, OpResult};
use crate::run::Run;
use crate::tensor::{slice, slice_mut};

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

/// The next token of a sequence, before it is chosen.
pub struct Choice<'a> {
    /// As [`Generator::add_with`] returned it.
    pub sequence: u64,
    /// Among the tokens that are added, from `first`.
    pub index: u64,
    /// The tokens of the sequence, without the next one.
    pub tokens: &'a [i32],
    /// One for each token of the vocabulary, as the model computes them. They may be changed; `f32::NEG_INFINITY` excludes a token.
    pub logits: &'a mut [f32],
}

type Choose = Box<dyn FnMut(Choice<'_>) -> OpResult + Send>;

/// The closure of a sequence, which the library also refers to.
struct Chooser(NonNull<Choose>);

// The closure is Send.
unsafe impl Send for Chooser {}

impl Drop for Chooser {
    fn drop(&mut self) {
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

unsafe extern "C" fn call_choose(choice: *const sys::weft_choice) -> i32 {
    let choice = &*choice;
    answer(choice.err, || {
        (*(choice.payload as *mut Choose))(Choice {
            sequence: choice.sequence,
            index: choice.index,
            tokens: slice(choice.tokens, choice.n_tokens),
            logits: slice_mut(choice.logits, choice.n_logits),
        })
    })
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

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Run {}
    impl Sealed for &mut super::Run {}
}

/// What gives a generator exclusive use of a run: the [`Run`] itself, or a `&mut Run`.
pub trait Exclusive: Borrow<Run> + sealed::Sealed {}

impl Exclusive for Run {}
impl Exclusive for &mut Run {}

/// Continues sequences with a run whose model is of [`crate::Preset::decoder`]. Only the generator uses the run.
///
/// A generator of a `&mut Run` gives the run back when it is dropped. One that owns its run can be kept, and can move to another thread:
///
/// ```
/// use weft::{Generator, Plan, Preset, Run, SequenceConfig, StepKind};
///
/// struct Server {
///     generator: Generator,
/// }
///
/// let mut decoder = Preset::decoder("gpt-nano:blocks=1,width=32,heads=2,context=20", 2, 0, false)?;
/// let plan = Plan::builder().micro_batches(1).step_kinds([StepKind::Forward]).build(&mut decoder.model)?;
/// let mut server = Server { generator: Generator::new(Run::start(&plan)?)? };
/// let tokens = std::thread::spawn(move || {
///     server.generator.add(&[1, 2, 3], &SequenceConfig { limit: 4, ..SequenceConfig::default() })?;
///     let mut tokens = Vec::new();
///     while let Some(token) = server.generator.poll(None)? {
///         tokens.push(token.token);
///     }
///     Ok::<_, weft::Error>(tokens)
/// });
/// assert_eq!(tokens.join().unwrap()?.len(), 4);
/// # Ok::<(), weft::Error>(())
/// ```
pub struct Generator<R: Exclusive = Run> {
    /// It is freed before the run.
    handle: Handle,
    /// Of sequences that have not ended.
    choosers: HashMap<u64, Chooser>,
    run: R,
}

struct Handle(NonNull<sys::weft_generator>);

// The owner of a generator may be any thread, but only one at a time; so it is Send and not Sync.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { sys::weft_generator_free(self.0.as_ptr()) }
    }
}

impl<R: Exclusive> Generator<R> {
    /// Creates a generator of an idle run: `Generator::new(&mut run)`, or `Generator::new(run)`, which drops the run if it fails. With
    /// `run: &mut Run`, `Generator::new(&mut *run)` leaves `run` usable.
    pub fn new(run: R) -> Result<Generator<R>> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_generator_new(run.borrow().raw(), &mut raw, err) })?;
        let handle = Handle(NonNull::new(raw).expect("a call that succeeds makes a generator"));
        Ok(Generator { handle, choosers: HashMap::new(), run })
    }

    /// The run, for [`Run::fd`] and [`Run::failure`]. The descriptor is readable while [`Generator::poll`] has something to do. A loop
    /// that sees only changes, as that of tokio, has to poll without time until the result is `None`.
    pub fn run(&self) -> &Run {
        self.run.borrow()
    }

    /// Ends the generator.
    pub fn into_run(self) -> R {
        let Generator { handle, run, .. } = self;
        drop(handle);
        run
    }

    /// Adds a sequence that begins with `tokens`, 1 to the number of positions of the cache, and returns its identifier.
    pub fn add(&mut self, tokens: &[i32], config: &SequenceConfig) -> Result<u64> {
        self.begin(tokens, config, None)
    }

    /// The same with a closure that reads, and may change, the logits of each next token, before the penalty and the temperature.
    /// [`Generator::poll`] calls it. A closure that returns a failure or panics ends its sequence with
    /// [`Status::User`](crate::Status::User).
    ///
    /// ```
    /// use weft::{Choice, Generator, Plan, Preset, Run, SequenceConfig, StepKind};
    ///
    /// let mut decoder = Preset::decoder("gpt-nano:blocks=1,width=32,heads=2,context=20", 1, 0, false)?;
    /// let plan = Plan::builder().micro_batches(1).step_kinds([StepKind::Forward]).build(&mut decoder.model)?;
    /// let mut generator = Generator::new(Run::start(&plan)?)?;
    /// generator.add_with(&[1, 2, 3], &SequenceConfig { limit: 4, ..SequenceConfig::default() }, |choice: Choice| {
    ///     choice.logits.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = f32::NEG_INFINITY); // only even tokens
    ///     Ok(())
    /// })?;
    /// while let Some(token) = generator.poll(None)? {
    ///     assert_eq!(token.token % 2, 0);
    /// }
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn add_with(
        &mut self,
        tokens: &[i32],
        config: &SequenceConfig,
        choose: impl FnMut(Choice<'_>) -> OpResult + Send + 'static,
    ) -> Result<u64> {
        let choose: Choose = Box::new(choose);
        self.begin(tokens, config, Some(Chooser(NonNull::from(Box::leak(Box::new(choose))))))
    }

    fn begin(&mut self, tokens: &[i32], config: &SequenceConfig, chooser: Option<Chooser>) -> Result<u64> {
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
        if let Some(chooser) = &chooser {
            raw.choose = Some(call_choose);
            raw.payload = chooser.0.as_ptr().cast();
        }
        let mut sequence = 0;
        attempt(|err| unsafe {
            sys::weft_generator_add(self.handle.0.as_ptr(), tokens.as_ptr(), tokens.len(), &raw, &mut sequence, err)
        })?;
        self.choosers.extend(chooser.map(|chooser| (sequence, chooser)));
        Ok(sequence)
    }

    /// Ends a sequence. Its tokens that have not been polled are dropped.
    pub fn remove(&mut self, sequence: u64) -> Result<()> {
        attempt(|err| unsafe { sys::weft_generator_remove(self.handle.0.as_ptr(), sequence, err) })?;
        self.choosers.remove(&sequence);
        Ok(())
    }

    /// Waits for the next token. `None`: the time has passed, or the generator has no sequence. Without `timeout` there is no limit.
    ///
    /// A failure with a sequence ([`Error::sequence`](crate::Error::sequence)) ends this sequence only. [`Status::Data`](crate::Status::Data): a
    /// logit is NaN, or the largest one is not finite. [`Status::User`](crate::Status::User): its closure failed.
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Option<Token>> {
        let timeout = timeout.map_or(-1, nanoseconds);
        let mut token: sys::weft_token = unsafe { std::mem::zeroed() };
        token.size = std::mem::size_of::<sys::weft_token>() as u32;
        let polled = attempt(|err| unsafe { sys::weft_generator_poll(self.handle.0.as_ptr(), &mut token, timeout, err) });
        if polled.is_err() || token.end != sys::WEFT_SEQUENCE_CONTINUES {
            self.choosers.remove(&token.sequence);
        }
        let found = polled.map_err(|error| error.of_sequence(token.sequence))?;
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
