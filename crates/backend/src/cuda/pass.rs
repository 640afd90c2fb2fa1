//! What a pass reads beside its tensors and parameters, and what it leaves for the host, in memory that stays where it is, so that a
//! recorded pass finds it again.

use std::sync::Arc;

use super::driver::inlet::Inlet;
use super::driver::memory::CudaBuf;
use super::driver::pinned::Pinned;
use super::driver::queues::Queues;
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::settings::Precision;
use crate::{Buffer, Error, LossScale};

/// Scale of the losses at the start, under f16.
pub const FIRST_SCALE: f32 = 65_536.0;
/// Steps without Inf or NaN after which it doubles.
pub const GROWTH_INTERVAL: u32 = 2_000;

/// See the module.
pub struct PassBlocks {
    /// Labels, ids, epoch, numbers of the loss and of the optimizer.
    pub inbox: Inbox,
    /// Whether the labels in it are those of the pass under way.
    pub labelled: bool,
    pub running: Inlet<f32>,
    /// Of a loss against targets: each row's weight and targets.
    pub targets: Inlet<f32>,
    /// Loss and hits.
    pub outbox: Outbox,
    /// Loss and hits of each row.
    pub losses: CudaBuf,
    pub hits: CudaBuf,
    /// Blocks that have come to the end of the loss's kernel.
    pub arrivals: CudaBuf,
    /// Whether an update has left a parameter that is not finite.
    pub not_finite: CudaBuf,
    /// Scale of the losses, and its inverse for the gradients at hand.
    pub scale: CudaBuf,
    /// See `scale_settle` in kernels/arena.cu.
    pub scale_state: CudaBuf,
    /// The host's copy of it, after the last settling.
    pub scale_seen: Pinned<f32>,
}

impl PassBlocks {
    pub fn new(queues: &Arc<Queues>, precision: Precision) -> Result<Self, Error> {
        let mut blocks = Self {
            inbox: Inbox::new(queues, 64)?,
            labelled: false,
            running: Inlet::new(queues, 64, "running statistics")?,
            targets: Inlet::new(queues, 64, "targets")?,
            outbox: Outbox::new(queues)?,
            losses: CudaBuf::zeroed(queues, 128, "losses")?,
            hits: CudaBuf::zeroed(queues, 64, "hits")?,
            arrivals: CudaBuf::zeroed(queues, 4, "a counter")?,
            not_finite: CudaBuf::zeroed(queues, 4, "a flag")?,
            scale: CudaBuf::zeroed(queues, 4, "the loss's scale")?,
            scale_state: CudaBuf::zeroed(queues, 8, "the loss's scale")?,
            scale_seen: Pinned::new(queues.context(), 4, "the loss's scale")?,
        };
        let first = if precision == Precision::F16 { FIRST_SCALE } else { 1.0 };
        blocks.set_scale(LossScale { scale: first, ..LossScale::default() })?;
        Ok(blocks)
    }

    /// The scale of the losses, after the last settling.
    pub fn scale(&self) -> LossScale {
        let seen = self.scale_seen.as_slice();
        LossScale { scale: seen[0], good: seen[1] as u32, bad: seen[2] as u32, lost: seen[3] as u32 }
    }

    /// Continues with this scale; waits for the GPU before and after.
    pub fn set_scale(&mut self, to: LossScale) -> Result<(), Error> {
        let LossScale { scale, good, bad, lost } = to;
        self.scale.write(0, &[scale, 1.0 / scale])?;
        // counts, in integers' bits
        self.scale_state.write(0, &[good, 0, bad, 0, lost].map(f32::from_bits))?;
        self.scale_seen.as_mut_slice().copy_from_slice(&[scale, good as f32, bad as f32, lost as f32]);
        Ok(())
    }

    /// Makes room for passes over so many rows; returns whether any address changed.
    pub fn fit_rows(&mut self, queues: &Arc<Queues>, rows: usize) -> Result<bool, Error> {
        if self.inbox.rows() >= rows && self.hits.len() >= rows {
            return Ok(false);
        }
        self.inbox = self.inbox.grown(queues, rows)?;
        self.losses = CudaBuf::zeroed(queues, 2 * rows, "losses")?;
        self.hits = CudaBuf::zeroed(queues, rows, "hits")?;
        self.labelled = false;
        Ok(true)
    }

    /// Makes room for so many running statistics; returns whether any address changed.
    pub fn fit_running(&mut self, queues: &Arc<Queues>, len: usize) -> Result<bool, Error> {
        if self.running.room() >= len {
            return Ok(false);
        }
        self.running = Inlet::new(queues, len, "running statistics")?;
        Ok(true)
    }

    /// Makes room for so many targets; returns whether any address changed.
    pub fn fit_targets(&mut self, queues: &Arc<Queues>, len: usize) -> Result<bool, Error> {
        if self.targets.room() >= len {
            return Ok(false);
        }
        self.targets = Inlet::new(queues, len, "targets")?;
        Ok(true)
    }
}
