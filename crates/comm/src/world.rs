//! The typed collectives, for the closures passed to [`Comm`](super::Comm).
//!
//! All ranks must call the same collectives in the same order, with buffers of the same length.

use std::cell::Cell;
use std::time::{Duration, Instant};

use base::device_region::DeviceRegion;

use super::error::{Error, ThreadLevel};
use super::library::library_line;
use super::sys::{self, Communicator, Element, Op, OwnOp};

/// This rank's number, the number of ranks, and facts about its node and its MPI library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldInfo {
    pub rank: usize,
    pub size: usize,
    /// Index of this rank on its node, from 0.
    pub node_rank: usize,
    /// Ranks on this node, which share memory.
    pub node_size: usize,
    /// The node's name as MPI reports it.
    pub host: String,
    /// The thread level that MPI granted.
    pub thread_level: ThreadLevel,
    /// The MPI library's name and version, on one line.
    pub library: String,
}

impl WorldInfo {
    /// Returns the prefix for messages of this rank: `rank R: ` if there are other ranks, otherwise an empty string.
    pub fn who(&self) -> String {
        if self.size > 1 { format!("rank {}: ", self.rank) } else { String::new() }
    }
}

/// The ranks that communicate: all of them, or those of one side of [`World::split`]. [`Comm::run`](super::Comm::run)
/// and [`Comm::start`](super::Comm::start) pass a `World` of all ranks to their closures.
pub struct World {
    communicator: Communicator,
    limit: Cell<usize>,
    /// The operation that sums bf16 numbers, registered with MPI on first use.
    sum_bf16: Cell<Option<OwnOp>>,
    traffic: Cell<Traffic>,
}

/// The cost of all reductions on this rank so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of the buffers passed to MPI_Allreduce.
    pub bytes: u64,
    /// Time spent in MPI_Allreduce, including waiting for other ranks.
    pub time: Duration,
}

impl World {
    /// Initialises MPI on this thread and returns all ranks and this rank's identity.
    pub(super) fn open() -> Result<(Self, WorldInfo), Error> {
        let thread_level = sys::initialize()?;
        let library = library_line(&sys::library_version());
        if thread_level < ThreadLevel::Serialized {
            return Err(Error::ThreadLevel { granted: thread_level, library });
        }
        let communicator = Communicator::world()?;
        let node = communicator.node()?;
        let info = WorldInfo {
            rank: communicator.rank,
            size: communicator.size,
            node_rank: node.rank,
            node_size: node.size,
            host: sys::processor_name()?,
            thread_level,
            library,
        };
        node.free()?;
        let limit = Cell::new(i32::MAX as usize);
        let world = Self { communicator, limit, sum_bf16: Cell::new(None), traffic: Cell::default() };
        Ok((world, info))
    }

    /// Splits the ranks into two worlds: the ranks below `count`, and the others. Returns the world that this rank
    /// belongs to. Collective. Each rank must free its world with [`World::free`] before MPI ends, and use it only
    /// inside operations.
    pub fn split(&self, count: usize) -> Result<World, Error> {
        let communicator = self.communicator.split(count)?;
        let limit = Cell::new(self.limit.get());
        Ok(Self { communicator, limit, sum_bf16: Cell::new(None), traffic: Cell::default() })
    }

    /// Frees a world created by [`World::split`]. Collective over that world.
    pub fn free(self) -> Result<(), Error> {
        if let Some(op) = self.sum_bf16.take() {
            op.free()?;
        }
        self.communicator.free()
    }

    /// Frees everything that `open` created and finalises MPI. Collective.
    pub(super) fn close(self) -> Result<(), Error> {
        self.free()?;
        sys::finalize()
    }

    pub fn rank(&self) -> usize {
        self.communicator.rank
    }

    pub fn size(&self) -> usize {
        self.communicator.size
    }

    /// Sets the maximum number of elements per MPI call (1 to `i32::MAX`, which is the default).
    ///
    /// Longer buffers are split over more than one call. The value must be the same on all ranks.
    pub fn set_limit(&self, elements: usize) {
        self.limit.set(elements.clamp(1, i32::MAX as usize));
    }

    /// Replaces `values` by their sum over all ranks. MPI determines the order of the additions.
    pub fn sum_f32(&self, values: &mut [f32]) -> Result<(), Error> {
        self.reduce(values, Op::Sum)
    }

    /// Replaces values in device memory by their sum over all ranks. MPI determines the order of the additions. The MPI
    /// library must accept device memory; otherwise the process ends with a signal.
    pub fn sum_region(&self, region: &mut DeviceRegion<'_>) -> Result<(), Error> {
        let (start, before, len) = (Instant::now(), self.traffic.get(), region.len());
        for first in (0..len).step_by(self.limit.get()) {
            self.communicator.allreduce_region(region, first..len.min(first + self.limit.get()))?;
        }
        let bytes = before.bytes + 4 * len as u64;
        self.traffic.set(Traffic { bytes, time: before.time + start.elapsed() });
        Ok(())
    }

    /// Replaces `values` by their sum over all ranks. MPI determines the order of the additions.
    pub fn sum_f64(&self, values: &mut [f64]) -> Result<(), Error> {
        self.reduce(values, Op::Sum)
    }

    /// Replaces `values` by their sum over all ranks.
    pub fn sum_i32(&self, values: &mut [i32]) -> Result<(), Error> {
        self.reduce(values, Op::Sum)
    }

    /// Replaces `values` by their sum over all ranks. The bits of each f32 are an i32.
    pub fn sum_i32_bits(&self, values: &mut [f32]) -> Result<(), Error> {
        self.reduce(sys::integers(values), Op::Sum)
    }

    /// Replaces `values` by their sum over all ranks.
    pub fn sum_u64(&self, values: &mut [u64]) -> Result<(), Error> {
        self.reduce(values, Op::Sum)
    }

    /// Replaces bf16 numbers (the upper halves of f32) by their sum over all ranks. Each pair is added in f32 and
    /// rounded to the nearest bf16. MPI determines the order of the additions.
    pub fn sum_bf16(&self, values: &mut [u16]) -> Result<(), Error> {
        let op = match self.sum_bf16.get() {
            Some(op) => op,
            None => OwnOp::sum_bf16()?,
        };
        self.sum_bf16.set(Some(op));
        self.reduce(values, Op::Own(op))
    }

    /// Replaces `values` by their sum over all ranks.
    pub fn sum_i64(&self, values: &mut [i64]) -> Result<(), Error> {
        self.reduce(values, Op::Sum)
    }

    /// Replaces `values` by their maximum over all ranks.
    pub fn max_u32(&self, values: &mut [u32]) -> Result<(), Error> {
        self.reduce(values, Op::Max)
    }

    /// Replaces `values` by their maximum over all ranks. The result for a NaN depends on the MPI library. Send a flag
    /// instead if that matters.
    pub fn max_f64(&self, values: &mut [f64]) -> Result<(), Error> {
        self.reduce(values, Op::Max)
    }

    /// Sends the bytes of rank 0 to all ranks. On the other ranks, `bytes` is resized to the length on rank 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Memory`] if the bytes do not fit into memory.
    pub fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let mut length = [bytes.len() as u64];
        self.communicator.broadcast(&mut length)?;
        if self.rank() != 0 {
            let too_many = Error::Memory { bytes: length[0] };
            let length = usize::try_from(length[0]).map_err(|_| too_many.clone())?;
            bytes.clear();
            bytes.try_reserve_exact(length).map_err(|_| too_many)?;
            bytes.resize(length, 0);
        }
        for part in bytes.chunks_mut(self.limit.get()) {
            self.communicator.broadcast(part)?;
        }
        Ok(())
    }

    /// Gathers the bytes of each rank on rank 0, which gets one vector per rank in rank order. Returns `None` on the
    /// other ranks.
    ///
    /// The lengths may differ between ranks.
    pub fn gather(&self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let size = self.size();
        let lengths = self.communicator.gather_one(bytes.len() as u64)?;
        let mut longest = [bytes.len() as u64];
        self.communicator.allreduce(&mut longest, Op::Max)?;
        // Each round transfers at most `share` bytes per rank, so that no offset on rank 0 exceeds the limit.
        let share = (self.limit.get() / size).max(1);
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|&l| Vec::with_capacity(l as usize)).collect();
        let mut arrived = Vec::new();
        for round in 0..longest[0].div_ceil(share as u64) {
            let part = |length: usize| {
                let start = length.min(round as usize * share);
                start..length.min(start + share)
            };
            let counts: Vec<usize> = lengths.iter().map(|&l| part(l as usize).len()).collect();
            let mine = &bytes[part(bytes.len())];
            self.communicator.gather_bytes(mine, &counts, &mut arrived)?;
            let mut rest = arrived.as_slice();
            for (whole, count) in all.iter_mut().zip(counts) {
                let (part, others) = rest.split_at(count);
                whole.extend_from_slice(part);
                rest = others;
            }
        }
        Ok((self.rank() == 0).then_some(all))
    }

    /// Waits until all ranks have called this.
    pub fn barrier(&self) -> Result<(), Error> {
        self.communicator.barrier()
    }

    /// Returns the cost of the reductions so far, including the known-answer tests.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    fn reduce<T: Element>(&self, values: &mut [T], op: Op) -> Result<(), Error> {
        let (start, before) = (Instant::now(), self.traffic.get());
        for part in values.chunks_mut(self.limit.get()) {
            self.communicator.allreduce(part, op)?;
        }
        let bytes = before.bytes + size_of_val(values) as u64;
        self.traffic.set(Traffic { bytes, time: before.time + start.elapsed() });
        Ok(())
    }
}
