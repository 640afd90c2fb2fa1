//! Sums over ranks by the devices themselves, beside MPI.

use super::device_memory::DeviceMemory;
use super::error::Error;

/// A device that can join the other ranks' devices.
pub trait Collectives<D: DeviceMemory> {
    /// Everything of this rank's own that can be missing for a group. Whoever joins waits for all ranks without end, so none may begin
    /// before all are ready.
    fn ready(&self) -> Result<Box<dyn Ready<D>>, Error>;
}

/// A rank that can join a group.
pub trait Ready<D: DeviceMemory> {
    /// The id of a new group of ranks, made by rank 0 and needed by all of them.
    fn new_id(&self) -> Result<Vec<u8>, Error>;

    /// Joins the group of rank 0's id; collective.
    fn join(self: Box<Self>, id: &[u8], rank: usize, ranks: usize) -> Result<Box<dyn Collective<D>>, Error>;
}

/// A joined group.
pub trait Collective<D: DeviceMemory>: Send {
    /// Replaces the elements by their sums over all ranks, once everything before the buffer's last [`mark`](super::Queue::mark) is
    /// done; later work of the device on it waits. All ranks call it in the same order. Sums are in f32, in an order of its own.
    fn sum(&mut self, buffer: &mut D::Buf) -> Result<(), Error>;

    /// Library and version, for the log.
    fn describe(&self) -> String;
}
