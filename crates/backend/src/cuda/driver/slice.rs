//! Typed ranges of memory that the GPU sees, which are the arguments of kernels and libraries, and the types of their elements.

use std::marker::PhantomData;

use crate::Error;

/// A type of elements, by the name that kernels have for it.
pub trait Element {
    const NAME: &'static str;
}

/// A type that lies alike on the host and on the GPU.
///
/// # Safety
/// Every bit pattern must be valid, and size and layout those of the kernels' type.
pub unsafe trait Plain: Element + Copy + Send + 'static {}

/// Declares plain types with their names in kernels.
macro_rules! plain {
    ($($type:ty = $name:literal),* $(,)?) => {$(
        impl $crate::cuda::driver::slice::Element for $type {
            const NAME: &'static str = $name;
        }
        // SAFETY: numbers, or `repr(C)` structs of numbers without padding, with the fields of the kernels' type.
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

/// An activation: f32, bf16 or f16, as the settings say.
pub enum Activation {}

impl Element for Activation {
    const NAME: &'static str = "T";
}

/// `len` elements in a row that the GPU sees, alive as long as their owner is borrowed. Work that is enqueued on them may end later:
/// the driver waits for it before it frees memory. Only `CudaBuf` and `Pinned` make them.
pub struct Slice<'a, T> {
    address: u64,
    len: usize,
    /// Bytes of an element.
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
    /// The caller owns, for `'a`, memory of `len` elements of `width` bytes from `address` on.
    pub(super) fn new(address: u64, len: usize, width: usize) -> Self {
        Self { address, len, width, owner: PhantomData }
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// `len` elements from `first` on; fails where there are fewer.
    pub fn range(self, first: usize, len: usize) -> Result<Self, Error> {
        self.require(first.saturating_add(len), "a range of device memory")?;
        Ok(Self { address: self.address + (first * self.width) as u64, len, ..self })
    }

    /// All elements from `first` on.
    pub fn from(self, first: usize) -> Result<Self, Error> {
        self.range(first, self.len.saturating_sub(first))
    }

    /// The same as bytes.
    pub fn bytes(self) -> Slice<'a, u8> {
        Slice::new(self.address, self.len * self.width, 1)
    }

    /// Fails unless there are at least `len` elements; `what` is for the message.
    pub fn require(&self, len: usize, what: &str) -> Result<(), Error> {
        if len <= self.len {
            return Ok(());
        }
        let (expected, got) = (format!("at least {len} elements"), self.len.to_string());
        Err(Error::Size { op: what.into(), expected, got })
    }
}
