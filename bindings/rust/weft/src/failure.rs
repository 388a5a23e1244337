//! The facts of the failure of a run.
use std::fmt;
use std::time::Duration;

use weft_sys as sys;

use crate::error::{text_of, written, Status};
use crate::run::Mode;
use crate::tensor::slice;

/// Why a run has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Something failed in the process of the rank; the detail describes it.
    Failed,
    /// The connection to the rank was closed.
    Closed,
    /// Nothing arrived from the rank for the limit.
    Silent,
    /// Data that the rank announced did not arrive within the limit.
    Missing,
    /// The rank did not connect.
    Unreachable,
    /// The rank did not do within the limit what the detail names.
    Late,
    /// The process differs from the rest of the run; the detail describes the difference.
    Refused,
    /// The rank violated the protocol; the detail describes how.
    Protocol,
    /// The run did not begin; the detail gives the reason.
    NoRun,
    /// A cause that this version of the crate does not know.
    Other(u32),
}

/// What a rank did when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Unknown.
    Unknown,
    /// Nothing.
    Idle,
    /// It ran a job.
    Runs,
    /// It waited.
    Waits,
}

/// What a rank that waits is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Nothing, or something that this version of the crate does not know.
    Nothing,
    /// The message of rank 0 that the weights may change.
    Commit,
    /// The messages of the rank itself have to leave.
    Release,
    /// Inputs of the step.
    Input,
    /// A result of an earlier stage.
    Activation,
    /// A gradient of a later stage.
    Gradient,
    /// Any other message.
    Message,
}

/// The failure of a run. Every rank reports the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// The kind of the failure.
    pub status: Status,
    /// The rank that failed, not the one that noticed it.
    pub rank: Option<u32>,
    /// Both ranks are alive, and the connection between them was lost.
    pub other: Option<u32>,
    /// The process of the rank had not joined the run yet.
    pub joining: bool,
    /// Of that process, if it is another one.
    pub pid: Option<u32>,
    /// Stages that the rank hosts.
    pub stages: Vec<u32>,
    /// The machine of that process; "": this one, or unknown.
    pub host: String,
    /// A description, depending on the cause.
    pub detail: String,
    /// What the rank did.
    pub activity: Activity,
    /// 'F', 'I', 'W', 'B', 'R', 'O': that action; 'c', 'g', 'u', 'e': other jobs of a step.
    pub job: Option<char>,
    /// Of the action.
    pub stage: Option<u32>,
    /// Of the action.
    pub micro_batch: Option<u32>,
    /// Of the step.
    pub mode: Option<Mode>,
    /// What the rank waited for.
    pub awaited: Awaited,
    /// The sender of the awaited message.
    pub awaited_rank: Option<u32>,
    /// Training steps before that step.
    pub step: u64,
    /// See the cause.
    pub limit: Duration,
    /// Frames that did not arrive.
    pub count: u64,
    /// Time since the last frame of the rank.
    pub heard: Option<Duration>,
    /// Time since the last report of the rank.
    pub reported: Option<Duration>,
    /// All of this in words.
    pub text: String,
}

fn number(value: i32) -> Option<u32> {
    u32::try_from(value).ok()
}

fn duration(ns: i64) -> Option<Duration> {
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

impl Failure {
    /// # Safety
    /// The pointers are valid.
    pub(crate) unsafe fn from_raw(raw: &sys::weft_failure) -> Failure {
        Failure {
            cause: Cause::from_raw(raw.cause),
            status: Status::from_raw(raw.status),
            rank: number(raw.rank),
            other: number(raw.other),
            joining: raw.joining == 1,
            pid: Some(raw.pid).filter(|pid| *pid != 0),
            stages: slice(raw.stages, raw.n_stages as usize).to_vec(),
            host: text_of(raw.host),
            detail: text_of(raw.detail),
            activity: match raw.activity {
                sys::WEFT_ACTIVITY_IDLE => Activity::Idle,
                sys::WEFT_ACTIVITY_RUNS => Activity::Runs,
                sys::WEFT_ACTIVITY_WAITS => Activity::Waits,
                _ => Activity::Unknown,
            },
            job: char::from_u32(raw.job).filter(|job| *job != '\0'),
            stage: number(raw.stage),
            micro_batch: number(raw.micro_batch),
            mode: [Mode::Train, Mode::NoUpdate, Mode::Eval, Mode::Forward, Mode::Fill]
                .into_iter()
                .find(|mode| mode.raw() == raw.mode),
            awaited: Awaited::from_raw(raw.awaited),
            awaited_rank: number(raw.awaited_rank),
            step: raw.step,
            limit: duration(raw.limit_ns).unwrap_or_default(),
            count: raw.count.max(0) as u64,
            heard: duration(raw.heard_ns),
            reported: duration(raw.reported_ns),
            text: written(|buffer, size| sys::weft_failure_text(raw, buffer, size)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Cause {
    fn from_raw(raw: sys::weft_cause) -> Cause {
        match raw {
            sys::WEFT_CAUSE_FAILED => Cause::Failed,
            sys::WEFT_CAUSE_CLOSED => Cause::Closed,
            sys::WEFT_CAUSE_SILENT => Cause::Silent,
            sys::WEFT_CAUSE_MISSING => Cause::Missing,
            sys::WEFT_CAUSE_UNREACHABLE => Cause::Unreachable,
            sys::WEFT_CAUSE_LATE => Cause::Late,
            sys::WEFT_CAUSE_REFUSED => Cause::Refused,
            sys::WEFT_CAUSE_PROTOCOL => Cause::Protocol,
            sys::WEFT_CAUSE_NO_RUN => Cause::NoRun,
            other => Cause::Other(other),
        }
    }
}

impl Awaited {
    fn from_raw(raw: sys::weft_awaited) -> Awaited {
        match raw {
            sys::WEFT_AWAITS_COMMIT => Awaited::Commit,
            sys::WEFT_AWAITS_RELEASE => Awaited::Release,
            sys::WEFT_AWAITS_INPUT => Awaited::Input,
            sys::WEFT_AWAITS_ACTIVATION => Awaited::Activation,
            sys::WEFT_AWAITS_GRADIENT => Awaited::Gradient,
            sys::WEFT_AWAITS_MESSAGE => Awaited::Message,
            _ => Awaited::Nothing,
        }
    }
}
