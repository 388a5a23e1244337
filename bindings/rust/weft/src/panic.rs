//! Panics of the program, which must not pass through C.
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Calls a closure of the program. The failure is the text of its panic.
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = text_of(&*payload);
        // The payload has a type of the program, and may panic when it is dropped.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        text
    })
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text").to_string()
}
