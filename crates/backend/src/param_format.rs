//! How a parameter lies in memory.

use std::fmt::Debug;

use super::error::Error;

/// The memory order of one parameter. Conversions run on the host, on any thread; [`Arena`](super::Arena) does the rest.
pub trait ParamFormat: Clone + PartialEq + Debug + Send + 'static {
    /// Elements in memory, padding included.
    fn elems(&self) -> usize;

    /// Converts a parameter from PyTorch's order.
    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error>;

    /// Converts a parameter to PyTorch's order.
    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error>;
}

/// PyTorch's own order, of this many elements.
impl ParamFormat for usize {
    fn elems(&self) -> usize {
        *self
    }

    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        packed.copy_from_slice(plain);
        Ok(())
    }

    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        plain.copy_from_slice(packed);
        Ok(())
    }
}
