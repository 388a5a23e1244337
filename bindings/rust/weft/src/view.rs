//! Tensors of one call of an op of the program.
use std::marker::PhantomData;

use weft_sys as sys;

use crate::error::{Error, Result, Status};
use crate::tensor::{slice, slice_mut, Desc, Element};

/// A tensor that a call of an op reads.
#[repr(transparent)]
pub struct View(sys::weft_view);

impl View {
    /// # Safety
    /// The pointer and its tensors are valid for 'a.
    pub(crate) unsafe fn of<'a>(raw: *const sys::weft_view, count: u32) -> &'a [View] {
        // A View has the layout of a weft_view.
        slice(raw.cast(), count as usize)
    }

    /// The type and dimensions.
    pub fn desc(&self) -> Desc {
        Desc::from_raw(&self.0.desc)
    }

    /// All elements in row-major order.
    ///
    /// # Errors
    /// The elements have another type, or the op has declared that this call does not read the tensor.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let count = expect::<T>(&self.0)?;
        Ok(unsafe { slice(self.0.data.cast(), count) })
    }

    /// The same as an array.
    #[cfg(feature = "ndarray")]
    pub fn view<T: Element>(&self) -> Result<ndarray::ArrayViewD<'_, T>> {
        let elements = self.as_slice()?;
        Ok(ndarray::ArrayViewD::from_shape(self.desc().dims, elements).expect("a tensor has as many elements as its dimensions"))
    }
}

/// A tensor that a call of an op writes.
pub struct ViewMut<'a>(sys::weft_view, PhantomData<&'a mut ()>);

impl<'a> ViewMut<'a> {
    /// # Safety
    /// The tensor is valid for 'a, and nothing else uses it.
    pub(crate) unsafe fn of(raw: &sys::weft_view) -> ViewMut<'a> {
        ViewMut(*raw, PhantomData)
    }

    /// Those of an array that the call has to write.
    ///
    /// # Safety
    /// As for `of`.
    pub(crate) unsafe fn all(raw: *const sys::weft_view, count: u32) -> Vec<Option<ViewMut<'a>>> {
        slice(raw, count as usize).iter().map(|raw| (!raw.data.is_null()).then(|| ViewMut::of(raw))).collect()
    }

    /// The type and dimensions.
    pub fn desc(&self) -> Desc {
        Desc::from_raw(&self.0.desc)
    }

    /// All elements in row-major order.
    ///
    /// # Errors
    /// The elements have another type, or the op has no such tensor.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        let count = expect::<T>(&self.0)?;
        Ok(unsafe { slice_mut(self.0.data.cast(), count) })
    }

    /// The same as an array.
    #[cfg(feature = "ndarray")]
    pub fn view_mut<T: Element>(&mut self) -> Result<ndarray::ArrayViewMutD<'_, T>> {
        let dims = self.desc().dims;
        let elements = self.as_mut_slice()?;
        Ok(ndarray::ArrayViewMutD::from_shape(dims, elements).expect("a tensor has as many elements as its dimensions"))
    }
}

fn expect<T: Element>(raw: &sys::weft_view) -> Result<usize> {
    let count = Desc::from_raw(&raw.desc).expect::<T>()?;
    if raw.data.is_null() && count > 0 {
        return Err(Error::new(Status::Invalid, "this call of the op does not use the tensor"));
    }
    Ok(count)
}
