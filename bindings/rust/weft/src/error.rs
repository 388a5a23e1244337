//! Failures of the library.
use std::ffi::{CStr, CString};
use std::fmt;
use std::mem::{size_of, MaybeUninit};
use std::os::raw::c_char;
use std::ptr::null;
use std::time::Duration;

use weft_sys as sys;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// An argument, shape or name is not valid.
    Invalid,
    /// Memory cannot be allocated.
    NoMemory,
    /// The call is valid, but not at this time.
    State,
    /// A bounded queue is full.
    Again,
    /// [`Canceller`](crate::Canceller), dropping a run, or a rank that left has ended the call or the run.
    Canceled,
    /// A deadline has passed.
    TimedOut,
    /// Another rank is lost, or was refused.
    Peer,
    /// A peer violated the protocol.
    Protocol,
    /// This build or machine does not support it.
    NotSupported,
    /// There is no such item.
    NotFound,
    /// A closure of the program returned a failure or panicked.
    User,
    /// An error in weft; please report it.
    Internal,
    /// Input or output failed.
    Io,
    /// The content of a file, text or tensor is wrong.
    Data,
    /// A failure that this version of the crate does not know.
    Other(i32),
}

impl Status {
    pub(crate) fn from_raw(status: sys::weft_status) -> Status {
        match status {
            sys::WEFT_EINVAL => Status::Invalid,
            sys::WEFT_ENOMEM => Status::NoMemory,
            sys::WEFT_ESTATE => Status::State,
            sys::WEFT_EAGAIN => Status::Again,
            sys::WEFT_ECANCELED => Status::Canceled,
            sys::WEFT_ETIMEDOUT => Status::TimedOut,
            sys::WEFT_EPEER => Status::Peer,
            sys::WEFT_EPROTO => Status::Protocol,
            sys::WEFT_ENOTSUP => Status::NotSupported,
            sys::WEFT_ENOENT => Status::NotFound,
            sys::WEFT_EUSER => Status::User,
            sys::WEFT_EINTERNAL => Status::Internal,
            sys::WEFT_EIO => Status::Io,
            sys::WEFT_EDATA => Status::Data,
            other => Status::Other(other),
        }
    }
}

/// A failure: what failed, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    text: String,
    sequence: Option<u64>,
}

impl Error {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, text: text.into(), sequence: None }
    }

    /// A failure of a call that has no text.
    pub(crate) fn of_status(status: sys::weft_status) -> Error {
        Error::new(Status::from_raw(status), unsafe { text_of(sys::weft_status_text(status)) })
    }

    /// The same, of a sequence of a generator; 0: of none.
    pub(crate) fn of_sequence(self, sequence: u64) -> Error {
        Error { sequence: (sequence != 0).then_some(sequence), ..self }
    }

    /// The kind of the failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The description, as the library wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The sequence that has ended with this failure of [`Generator::poll`](crate::Generator::poll), as [`Generator::add`](crate::Generator::add)
    /// returned it. The others continue. `None`: it is not the failure of one sequence.
    pub fn sequence(&self) -> Option<u64> {
        self.sequence
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Calls a function whose last argument is an error of the caller.
pub(crate) fn attempt(call: impl FnOnce(*mut sys::weft_error) -> sys::weft_status) -> Result<i32> {
    let mut err = sys::weft_error { size: size_of::<sys::weft_error>() as u32, status: 0, text: [0; 504] };
    let status = call(&mut err);
    if status >= 0 {
        Ok(status)
    } else {
        Err(Error::new(Status::from_raw(status), unsafe { text_of(err.text.as_ptr()) }))
    }
}

/// Fills a struct of the library that begins with its size.
///
/// # Safety
/// T is such a struct, for which all bytes 0 is a value.
pub(crate) unsafe fn filled<T>(call: impl FnOnce(*mut T) -> sys::weft_status) -> Result<T> {
    let mut out: T = std::mem::zeroed();
    (&mut out as *mut T).cast::<u32>().write(size_of::<T>() as u32);
    checked(call(&mut out))?;
    Ok(out)
}

/// The same as `attempt` for a function that returns a status only.
pub(crate) fn checked(status: sys::weft_status) -> Result<i32> {
    if status >= 0 {
        Ok(status)
    } else {
        Err(Error::of_status(status))
    }
}

/// Copies a text of the library; NULL is "".
///
/// # Safety
/// `text` ends with a NUL, or is NULL.
pub(crate) unsafe fn text_of(text: *const c_char) -> String {
    optional_text(text).unwrap_or_default()
}

pub(crate) unsafe fn optional_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        None
    } else {
        Some(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// Calls a function that writes a text and returns the bytes that the whole text requires.
pub(crate) fn written(mut call: impl FnMut(*mut c_char, usize) -> usize) -> String {
    let mut buffer = vec![0u8; call(std::ptr::null_mut(), 0)];
    call(buffer.as_mut_ptr().cast(), buffer.len());
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

/// A configuration with its defaults, of a function NAME_init.
pub(crate) unsafe fn initialized<T>(init: unsafe extern "C" fn(*mut T, usize)) -> T {
    let mut config = MaybeUninit::uninit();
    init(config.as_mut_ptr(), size_of::<T>());
    config.assume_init()
}

/// A text that may be NULL.
pub(crate) fn pointer_of(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(null(), |text| text.as_ptr())
}

/// A number in the type that the library has for it.
pub(crate) fn number<T: TryFrom<N>, N: Copy + fmt::Display>(name: impl fmt::Display, value: N) -> Result<T> {
    let text = || format!("{name} is {value}, which does not fit in {}", std::any::type_name::<T>());
    T::try_from(value).map_err(|_| Error::new(Status::Invalid, text()))
}

/// An array and its length. The array is NULL if it is empty.
pub(crate) fn array<T>(name: &str, items: &[T]) -> Result<(*const T, u32)> {
    let pointer = if items.is_empty() { null() } else { items.as_ptr() };
    Ok((pointer, number(format_args!("the number of {name}"), items.len())?))
}

/// A time in nanoseconds; at most 292 years.
pub(crate) fn nanoseconds(time: Duration) -> i64 {
    time.as_nanos().try_into().unwrap_or(i64::MAX)
}

pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Status::Invalid, format!("the text {text:?} contains a NUL")))
}

/// The same for a text that no failure contains.
pub(crate) fn secret(name: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Status::Invalid, format!("{name} contains a NUL")))
}
