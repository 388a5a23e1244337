//! Tensors: dense arrays that the program and the library share without copies.
use std::fmt;
use std::os::raw::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;

use weft_sys as sys;

use crate::error::{attempt, number, Error, Result, Status};
use crate::panic::contain;

/// The type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// `f32`
    F32,
    /// `i32`
    I32,
    /// `f64`; used for losses only
    F64,
}

impl Dtype {
    fn raw(self) -> sys::weft_dtype {
        match self {
            Dtype::F32 => sys::WEFT_F32,
            Dtype::I32 => sys::WEFT_I32,
            Dtype::F64 => sys::WEFT_F64,
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for i32 {}
    impl Sealed for f64 {}
}

/// A type of elements: `f32`, `i32` or `f64`.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The same as a value.
    const DTYPE: Dtype;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}

impl Element for i32 {
    const DTYPE: Dtype = Dtype::I32;
}

impl Element for f64 {
    const DTYPE: Dtype = Dtype::F64;
}

/// Type and dimensions of a dense array in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desc {
    /// The type of the elements.
    pub dtype: Dtype,
    /// 0 to 8 dimensions; none: a scalar.
    pub dims: Vec<usize>,
}

impl Desc {
    /// An array of `f32`.
    pub fn f32(dims: impl AsRef<[usize]>) -> Desc {
        Desc { dtype: Dtype::F32, dims: dims.as_ref().to_vec() }
    }

    /// An array of `i32`.
    pub fn i32(dims: impl AsRef<[usize]>) -> Desc {
        Desc { dtype: Dtype::I32, dims: dims.as_ref().to_vec() }
    }

    /// The number of elements; `usize::MAX` if there are more.
    pub fn elements(&self) -> usize {
        self.dims.iter().fold(1, |elements, dim| elements.saturating_mul(*dim))
    }

    /// The number of elements if they have type T.
    pub(crate) fn expect<T: Element>(&self) -> Result<usize> {
        if self.dtype != T::DTYPE {
            return Err(Error::new(
                Status::Invalid,
                format!("the tensor has elements of {:?}, expected {:?}", self.dtype, T::DTYPE),
            ));
        }
        Ok(self.elements())
    }

    fn expect_elements(&self, count: usize) -> Result<()> {
        let expected = self.elements();
        if expected == count {
            return Ok(());
        }
        Err(Error::new(Status::Invalid, format!("an array of {:?} has {expected} elements, found {count}", self.dims)))
    }

    pub(crate) fn raw(&self) -> Result<sys::weft_desc> {
        let most = sys::WEFT_MAX_DIMS as usize;
        if self.dims.len() > most {
            return Err(Error::new(Status::Invalid, format!("expected at most {most} dimensions, found {}", self.dims.len())));
        }
        let mut dims = [0; sys::WEFT_MAX_DIMS as usize];
        for (to, from) in dims.iter_mut().zip(&self.dims) {
            *to = number("a dimension", *from)?;
        }
        Ok(sys::weft_desc { dtype: self.dtype.raw(), n_dims: number("the number of dimensions", self.dims.len())?, dims })
    }

    pub(crate) fn from_raw(raw: &sys::weft_desc) -> Desc {
        let dtype = match raw.dtype {
            sys::WEFT_I32 => Dtype::I32,
            sys::WEFT_F64 => Dtype::F64,
            _ => Dtype::F32,
        };
        Desc { dtype, dims: raw.dims[..raw.n_dims as usize].iter().map(|dim| *dim as usize).collect() }
    }
}

/// One reference to a tensor of the library.
struct Handle {
    raw: NonNull<sys::weft_tensor>,
    writable: bool,
}

// The functions of a tensor may be called on any thread. The content is written only through `Arc::get_mut`.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { sys::weft_tensor_unref(self.raw.as_ptr()) }
    }
}

/// A dense array. A clone refers to the same memory, and a step in progress does so too. The content can be changed while there is
/// only one reference.
///
/// ```
/// let mut x = weft::Tensor::from_vec([2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;   // moved, not copied
/// x.as_mut_slice::<f32>()?[0] = 7.0;
/// assert_eq!(x.as_slice::<f32>()?[..2], [7.0, 2.0]);
/// # Ok::<(), weft::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    handle: Arc<Handle>,
}

impl Tensor {
    /// A tensor with its own memory, filled with zeros.
    pub fn zeros(desc: &Desc) -> Result<Tensor> {
        let desc = desc.raw()?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_tensor_new(&desc, &mut raw, err) })?;
        Ok(Tensor::new(raw, true))
    }

    /// Moves a vector into a tensor, without a copy.
    pub fn from_vec<T: Element>(dims: impl AsRef<[usize]>, elements: Vec<T>) -> Result<Tensor> {
        // Nothing else uses the elements.
        unsafe { Tensor::wrap(dims.as_ref(), elements, true, |elements| (elements.as_mut_ptr(), elements.len())) }
    }

    /// Makes a tensor of memory that `owner` keeps valid and unchanged, such as an `Arc<[f32]>` or a mapped file, without a copy. The
    /// owner is dropped with the last reference, on any thread. The tensor can only be read.
    ///
    /// ```
    /// let shared: std::sync::Arc<[i32]> = vec![1, 2, 3, 4].into();
    /// let ids = weft::Tensor::from_owner([4, 1], shared.clone())?;
    /// assert_eq!(ids.as_slice::<i32>()?.as_ptr(), shared.as_ptr());
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn from_owner<T: Element, O: AsRef<[T]> + Send + Sync + 'static>(dims: impl AsRef<[usize]>, owner: O) -> Result<Tensor> {
        let elements = |owner: &mut O| {
            let elements = O::as_ref(owner);
            (elements.as_ptr() as *mut T, elements.len())
        };
        unsafe { Tensor::wrap(dims.as_ref(), owner, false, elements) }
    }

    /// # Safety
    /// `elements` returns memory that `owner` keeps valid as long as it is not moved. If `writable`, nothing else uses the memory.
    unsafe fn wrap<T: Element, O: Send + 'static>(
        dims: &[usize],
        owner: O,
        writable: bool,
        elements: impl FnOnce(&mut O) -> (*mut T, usize),
    ) -> Result<Tensor> {
        unsafe extern "C" fn release<O>(_data: *mut c_void, owner: *mut c_void) {
            let _ = contain(|| drop(Box::from_raw(owner as *mut O)));
        }
        let owner = Box::into_raw(Box::new(owner));
        let (data, count) = elements(&mut *owner);
        let desc = Desc { dtype: T::DTYPE, dims: dims.to_vec() };
        let made = desc.expect_elements(count).and_then(|()| {
            let desc = desc.raw()?;
            let mut raw = null_mut();
            attempt(|err| sys::weft_tensor_wrap(&desc, data.cast(), Some(release::<O>), owner.cast(), &mut raw, err))?;
            Ok(Tensor::new(raw, writable))
        });
        if made.is_err() {
            drop(Box::from_raw(owner));
        }
        made
    }

    fn new(raw: *mut sys::weft_tensor, writable: bool) -> Tensor {
        let raw = NonNull::new(raw).expect("a call that succeeds makes a tensor");
        Tensor { handle: Arc::new(Handle { raw, writable }) }
    }

    pub(crate) fn raw(&self) -> *mut sys::weft_tensor {
        self.handle.raw.as_ptr()
    }

    /// The type and dimensions.
    pub fn desc(&self) -> Desc {
        Desc::from_raw(&unsafe { sys::weft_tensor_desc(self.raw()) })
    }

    /// All elements in row-major order.
    ///
    /// # Errors
    /// The tensor has elements of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let count = self.desc().expect::<T>()?;
        Ok(unsafe { slice(sys::weft_tensor_data(self.raw()).cast(), count) })
    }

    /// The same, to change them.
    ///
    /// # Errors
    /// [`Status::State`]: there is another reference, or a step uses the tensor. [`Status::Invalid`]: the elements have another type, or
    /// the tensor can only be read.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        let count = self.desc().expect::<T>()?;
        self.writable_raw().map(|raw| unsafe { slice_mut(sys::weft_tensor_data(raw).cast(), count) })
    }

    /// The tensor of the library if the memory can be written.
    pub(crate) fn writable_raw(&mut self) -> Result<*mut sys::weft_tensor> {
        match Arc::get_mut(&mut self.handle) {
            None => Err(Error::new(Status::State, "the tensor has other references, or a step that is not finished uses it")),
            Some(handle) if !handle.writable => {
                Err(Error::new(Status::Invalid, "the tensor refers to shared memory and can only be read"))
            }
            Some(handle) => Ok(handle.raw.as_ptr()),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tensor").field(&self.desc()).finish()
    }
}

/// `data` may be NULL if `count` is 0.
pub(crate) unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

pub(crate) unsafe fn slice_mut<'a, T>(data: *mut T, count: usize) -> &'a mut [T] {
    if count == 0 {
        &mut []
    } else {
        std::slice::from_raw_parts_mut(data, count)
    }
}

#[cfg(feature = "ndarray")]
mod arrays {
    use ndarray::{Array, ArrayViewD, ArrayViewMutD, Dimension, IxDyn};

    use super::*;

    /// Moves an array into a tensor. Only an array that is not in row-major order is copied.
    impl<T: Element, D: Dimension + 'static> TryFrom<Array<T, D>> for Tensor {
        type Error = Error;

        fn try_from(array: Array<T, D>) -> Result<Tensor> {
            let array = if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() };
            let dims = array.shape().to_vec();
            // Nothing else uses the elements.
            unsafe { Tensor::wrap(&dims, array, true, |array| (array.as_mut_ptr(), array.len())) }
        }
    }

    impl Tensor {
        /// The content as an array, without a copy. The errors are those of [`Tensor::as_slice`].
        pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
            let dims = self.desc().dims;
            let elements = self.as_slice()?;
            Ok(ArrayViewD::from_shape(IxDyn(&dims), elements).expect("the tensor has as many elements as its dimensions"))
        }

        /// The same, to change it. The errors are those of [`Tensor::as_mut_slice`].
        pub fn view_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
            let dims = self.desc().dims;
            let elements = self.as_mut_slice()?;
            Ok(ArrayViewMutD::from_shape(IxDyn(&dims), elements).expect("the tensor has as many elements as its dimensions"))
        }
    }
}
