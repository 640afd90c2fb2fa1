//! cuDNN's handle and its backend descriptors.

use std::ffi::c_void;

use crate::Error;
use crate::cuda::driver::calls::cudnn::{
    self as sys, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};
use crate::cuda::driver::status::cudnn;
use crate::cuda::driver::stream::Stream;

/// A backend descriptor. Dropping it destroys it.
pub struct Descriptor(sys::cudnnBackendDescriptor_t);

/// A Rust type with the memory layout of a cuDNN attribute type.
///
/// # Safety
/// cuDNN must read and write values of `TYPE` in this type's memory layout.
pub unsafe trait Attribute: Copy {
    const TYPE: Type;
}

/// Implements [`Attribute`] for Rust types, each with cuDNN's attribute type.
macro_rules! attributes {
    ($($type:ty = $name:ident),* $(,)?) => {$(
        // SAFETY: the type is the one that cuDNN documents for the attribute type, or a transparent struct around it.
        unsafe impl Attribute for $type {
            const TYPE: Type = Type::$name;
        }
    )*};
}

attributes! {
    i64 = CUDNN_TYPE_INT64,
    f32 = CUDNN_TYPE_FLOAT,
    bool = CUDNN_TYPE_BOOLEAN,
    u8 = CUDNN_TYPE_CHAR,
    sys::cudnnDataType_t = CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t = CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnPointwiseMode_t = CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnBackendHeurMode_t = CUDNN_TYPE_HEUR_MODE,
    Address = CUDNN_TYPE_VOID_PTR,
    RawHandle = CUDNN_TYPE_HANDLE,
    Note = CUDNN_TYPE_NUMERICAL_NOTE,
    Knob = CUDNN_TYPE_KNOB_TYPE,
    Raw = CUDNN_TYPE_BACKEND_DESCRIPTOR,
}

/// An address on the GPU. It has the width of a pointer on every machine with CUDA.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub u64);

#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RawHandle(pub sys::cudnnHandle_t);

/// A numerical note of an engine. A plain number, because newer libraries may have notes that are missing in cudarc's
/// enum.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Note(pub u32);

/// A kind of knob. A plain number for the same reason as [`Note`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Knob(pub u32);

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw(sys::cudnnBackendDescriptor_t);

impl Descriptor {
    /// Creates an empty descriptor. The library must be loaded.
    pub fn new(kind: Kind) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call. `drop` destroys the descriptor.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut raw) };
        cudnn(status, "cudnnBackendCreateDescriptor", &format!("{kind:?}"))?;
        Ok(Self(raw))
    }

    pub fn set<T: Attribute>(&self, name: Name, values: &[T]) -> Result<(), Error> {
        // SAFETY: the descriptor is alive, and there are `values.len()` values of the type.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(self.0, name, T::TYPE, values.len() as i64, values.as_ptr().cast())
        };
        cudnn(status, "cudnnBackendSetAttribute", &format!("{name:?}"))
    }

    /// Sets an attribute to other descriptors, which must outlive this one.
    pub fn refer(&self, name: Name, to: &[&Descriptor]) -> Result<(), Error> {
        let raw: Vec<Raw> = to.iter().map(|d| Raw(d.0)).collect();
        self.set(name, &raw)
    }

    /// Finishes the descriptor. This call also checks its attributes.
    pub fn finalize(&self, what: &str) -> Result<(), Error> {
        // SAFETY: the descriptor is alive.
        cudnn(unsafe { sys::cudnnBackendFinalize(self.0) }, "cudnnBackendFinalize", what)
    }

    /// Reads an attribute into `values` and returns the number of values. If `values` is empty, only returns how many
    /// values the attribute has.
    pub fn get<T: Attribute>(&self, name: Name, values: &mut [T]) -> Result<usize, Error> {
        let mut count = 0;
        // SAFETY: the descriptor is alive, and there is room for `values.len()` values of the type.
        let status = unsafe {
            let data: *mut c_void = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
            sys::cudnnBackendGetAttribute(self.0, name, T::TYPE, values.len() as i64, &mut count, data)
        };
        cudnn(status, "cudnnBackendGetAttribute", &format!("{name:?}"))?;
        Ok(count.max(0) as usize)
    }

    /// Returns an attribute whose values are descriptors of this kind. Returns at most `most` of them.
    pub fn get_all(&self, name: Name, kind: Kind, most: Option<usize>) -> Result<Vec<Descriptor>, Error> {
        let there = match most {
            Some(n) => n,
            None => self.get::<Raw>(name, &mut [])?,
        };
        let mut all = (0..there).map(|_| Self::new(kind)).collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Raw> = all.iter().map(|d| Raw(d.0)).collect();
        let filled = if raw.is_empty() { 0 } else { self.get(name, &mut raw)? };
        all.truncate(filled);
        Ok(all)
    }

    pub fn raw(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: `new` created it.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

/// cuDNN's handle for one GPU. It enqueues work on one stream.
pub struct Handle {
    raw: sys::cudnnHandle_t,
}

impl Handle {
    /// Creates a handle for this stream.
    pub fn new(stream: &Stream) -> Result<Self, Error> {
        stream.context().bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded, and the pointer is valid for the call. `drop` destroys the handle.
        cudnn(unsafe { sys::cudnnCreate(&mut raw) }, "cudnnCreate", "its handle")?;
        let handle = Self { raw };
        // SAFETY: handle and stream are alive. Both types are names of CUDA's stream type.
        cudnn(unsafe { sys::cudnnSetStream(raw, stream.handle().cast()) }, "cudnnSetStream", "its stream")?;
        Ok(handle)
    }

    pub fn raw(&self) -> sys::cudnnHandle_t {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `new` created it.
        let _ = unsafe { sys::cudnnDestroy(self.raw) };
    }
}

/// The device that plans are made for.
pub enum Device<'a> {
    Gpu(&'a Handle),
    /// A GPU described by its properties. It need not exist: plans can be made and checked, but not run.
    #[cfg_attr(not(test), allow(dead_code))]
    Described(Descriptor),
}

impl Device<'_> {
    pub fn handle(&self) -> Option<RawHandle> {
        match self {
            Device::Gpu(handle) => Some(RawHandle(handle.raw)),
            Device::Described(_) => None,
        }
    }
}
