//! Sums over ranks that do not go through MPI.

use super::{Backend, Error};

/// A sum over all ranks that devices make among themselves, beside MPI.
pub trait Collective<B: Backend>: Send {
    /// Replaces the elements by their sums over all ranks, once all before the buffer's last [`Backend::mark`] is done; what the
    /// device does with it next waits. All ranks call it in the same order. In f32, the order of additions is its own.
    fn sum(&mut self, buffer: &mut B::Buf) -> Result<(), Error>;

    /// Library and version, for the log.
    fn describe(&self) -> String;
}
