//! Typed ranges of GPU-accessible memory and their element types. Kernels and libraries take them as arguments.

use std::marker::PhantomData;

use crate::Error;

/// An element type and its name in kernels.
pub trait Element {
    const NAME: &'static str;
}

/// A type with the same memory layout on the host and on the GPU.
///
/// # Safety
/// Every bit pattern must be valid, and size and layout must be those of the kernels' type.
pub unsafe trait Plain: Element + Copy + Send + 'static {}

/// Declares plain types with their names in kernels.
macro_rules! plain {
    ($($type:ty = $name:literal),* $(,)?) => {$(
        impl $crate::cuda::driver::slice::Element for $type {
            const NAME: &'static str = $name;
        }
        // SAFETY: the types are numbers, or `repr(C)` structs with only numbers, no padding, and the same fields as the
        // kernels' type.
        unsafe impl $crate::cuda::driver::slice::Plain for $type {}
    )*};
}
pub(in crate::cuda) use plain;

plain! {
    u8 = "u8",
    u16 = "u16",
    i32 = "int",
    u32 = "u32",
    u64 = "u64",
    f32 = "float",
    f64 = "double",
}

/// An activation: f32, bf16 or f16, depending on the settings.
pub enum Activation {}

impl Element for Activation {
    const NAME: &'static str = "T";
}

/// A range of memory that the GPU can access. It borrows the owner. Enqueued work may outlive the borrow, because the
/// driver waits for the work before it frees the memory. Only `CudaBuf` and `Pinned` create slices.
pub struct Slice<'a, T> {
    address: u64,
    len: usize,
    /// Bytes per element.
    width: usize,
    owner: PhantomData<&'a T>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<'a, T> Slice<'a, T> {
    /// Creates a slice. The caller must own `len` elements of `width` bytes at `address` for `'a`.
    pub(super) fn new(address: u64, len: usize, width: usize) -> Self {
        Self { address, len, width, owner: PhantomData }
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns elements `first` to `first + len`, or an error if there are fewer.
    pub fn range(self, first: usize, len: usize) -> Result<Self, Error> {
        self.require(first.saturating_add(len), "a range of device memory")?;
        Ok(Self { address: self.address + (first * self.width) as u64, len, ..self })
    }

    /// Returns all elements from `first` on.
    pub fn from(self, first: usize) -> Result<Self, Error> {
        self.range(first, self.len.saturating_sub(first))
    }

    /// Returns the same memory as bytes.
    pub fn bytes(self) -> Slice<'a, u8> {
        Slice::new(self.address, self.len * self.width, 1)
    }

    /// Returns an error if there are fewer than `len` elements. `what` is used in the message.
    pub fn require(&self, len: usize, what: &str) -> Result<(), Error> {
        if len <= self.len {
            return Ok(());
        }
        let (expected, got) = (format!("at least {len} elements"), self.len.to_string());
        Err(Error::Size { op: what.into(), expected, got })
    }
}
