//! cuDNN's backend descriptors: created, given typed attributes, finalised, destroyed.

use std::ffi::c_void;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};

use super::super::driver::status::cudnn;
use crate::backend::Error;

/// One descriptor.
pub struct Descriptor(sys::cudnnBackendDescriptor_t);

/// A type of attributes.
///
/// # Safety
/// cuDNN must read and write values of `TYPE` as this type lies in memory.
pub unsafe trait Attribute: Copy {
    const TYPE: Type;
}

// SAFETY: of all: these are the types that cuDNN's documentation names for each attribute type.
unsafe impl Attribute for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}
// SAFETY: see above.
unsafe impl Attribute for f32 {
    const TYPE: Type = Type::CUDNN_TYPE_FLOAT;
}
// SAFETY: see above.
unsafe impl Attribute for bool {
    const TYPE: Type = Type::CUDNN_TYPE_BOOLEAN;
}
// SAFETY: see above.
unsafe impl Attribute for u8 {
    const TYPE: Type = Type::CUDNN_TYPE_CHAR;
}
// SAFETY: see above.
unsafe impl Attribute for sys::cudnnDataType_t {
    const TYPE: Type = Type::CUDNN_TYPE_DATA_TYPE;
}
// SAFETY: see above.
unsafe impl Attribute for sys::cudnnConvolutionMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_CONVOLUTION_MODE;
}
// SAFETY: see above.
unsafe impl Attribute for sys::cudnnPointwiseMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_POINTWISE_MODE;
}
// SAFETY: see above.
unsafe impl Attribute for sys::cudnnBackendHeurMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_HEUR_MODE;
}

/// An address on the card.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub u64);
// SAFETY: as wide as a pointer on every machine with CUDA.
unsafe impl Attribute for Address {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}

/// The library's handle.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RawHandle(pub sys::cudnnHandle_t);
// SAFETY: see above.
unsafe impl Attribute for RawHandle {
    const TYPE: Type = Type::CUDNN_TYPE_HANDLE;
}

/// Numerical notes of an engine, as numbers: a newer library may have notes that this crate does not know.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Note(pub u32);
// SAFETY: notes are C enumerations.
unsafe impl Attribute for Note {
    const TYPE: Type = Type::CUDNN_TYPE_NUMERICAL_NOTE;
}

/// A kind of knob, as a number for the same reason.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Knob(pub u32);
// SAFETY: kinds of knobs are a C enumeration.
unsafe impl Attribute for Knob {
    const TYPE: Type = Type::CUDNN_TYPE_KNOB_TYPE;
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw(sys::cudnnBackendDescriptor_t);
// SAFETY: see above.
unsafe impl Attribute for Raw {
    const TYPE: Type = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

impl Descriptor {
    /// An empty one; the library must be there.
    pub fn new(kind: Kind) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; destroyed in `drop`.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut raw) };
        cudnn(status, "cudnnBackendCreateDescriptor", &format!("{kind:?}"))?;
        Ok(Self(raw))
    }

    /// Sets an attribute.
    pub fn set<T: Attribute>(&self, name: Name, values: &[T]) -> Result<(), Error> {
        // SAFETY: the descriptor lives, and there are as many values of the type as said.
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

    /// Settles all attributes; cuDNN checks them here.
    pub fn finalize(&self, what: &str) -> Result<(), Error> {
        // SAFETY: the descriptor lives.
        cudnn(unsafe { sys::cudnnBackendFinalize(self.0) }, "cudnnBackendFinalize", what)
    }

    /// Reads an attribute into `values`; gives how many there are.
    pub fn get<T: Attribute>(&self, name: Name, values: &mut [T]) -> Result<usize, Error> {
        let mut count = 0;
        // SAFETY: the descriptor lives, and there is room for as many values of the type as said.
        let status = unsafe {
            let data: *mut c_void = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
            sys::cudnnBackendGetAttribute(self.0, name, T::TYPE, values.len() as i64, &mut count, data)
        };
        cudnn(status, "cudnnBackendGetAttribute", &format!("{name:?}"))?;
        Ok(count.max(0) as usize)
    }

    /// Lets cuDNN fill descriptors of this kind from an attribute; gives those that it filled.
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

    /// For calls.
    pub fn raw(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
