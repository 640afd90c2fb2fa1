//! Inputs of a pass besides tensors and parameters (such as labels), and its results for the host (such as the loss).
//! They stay at fixed addresses, because a captured pass uses the same addresses in each replay.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::driver::memory::{CudaBuf, Inlet};
use super::driver::pinned::Pinned;
use super::driver::slice::Slice;
use super::driver::stream::{Event, Queues, Stream};
use super::kernels::update::NUMBERS;
use crate::{Buffer, CrossEntropy, Error, LossScale, Precision};

/// Initial loss scale for f16.
pub const FIRST_SCALE: f32 = 65_536.0;
/// Number of steps without Inf or NaN after which the loss scale doubles.
pub const GROWTH_INTERVAL: u32 = 2_000;

/// Memory for a pass's inputs besides tensors and parameters, and for its results for the host.
pub struct PassBlocks {
    /// Labels, sample ids, epoch, and the arguments of the loss and the optimizer.
    pub inbox: Inbox,
    /// True if the inbox has the labels of the current pass.
    pub labelled: bool,
    pub running: Inlet<f32>,
    /// Each row's weight and targets, for a loss with soft targets.
    pub targets: Inlet<f32>,
    /// Loss and correct predictions of the last passes, for the host.
    pub outbox: Outbox,
    /// Loss and correct predictions of each row.
    pub losses: CudaBuf,
    pub hits: CudaBuf,
    /// Number of thread blocks that have finished the loss kernel.
    pub arrivals: CudaBuf,
    /// Nonzero if an update has produced a parameter that is not finite.
    pub not_finite: CudaBuf,
    /// The loss scale, and the inverse of the scale with which the current gradients were computed.
    pub scale: CudaBuf,
    /// State of the loss scaling, see `state` in kernels/arena.cu.
    pub scale_state: CudaBuf,
    /// Host memory with the scales after each of the last [`SCALES_KEPT`] updates. `scale_settle` writes them
    /// round-robin.
    pub host_scales: Pinned<f32>,
    /// Number of updates since the scale was set.
    pub updates: u64,
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
            host_scales: Pinned::new(queues.context(), 4 * SCALES_KEPT, "the loss's scale")?,
            updates: 0,
        };
        let first = if precision == Precision::F16 { FIRST_SCALE } else { 1.0 };
        blocks.set_scale(LossScale { scale: first, ..LossScale::default() })?;
        Ok(blocks)
    }

    /// Returns the loss scale before the last `later` updates, which the GPU may not have finished.
    pub fn scale(&self, later: u64) -> LossScale {
        let place = self.updates.saturating_sub(later) as usize % SCALES_KEPT;
        let scales = &self.host_scales.as_slice()[4 * place..];
        LossScale { scale: scales[0], good: scales[1] as u32, bad: scales[2] as u32, lost: scales[3] as u32 }
    }

    /// Sets the loss scale. Waits for the GPU before and after.
    pub fn set_scale(&mut self, to: LossScale) -> Result<(), Error> {
        let LossScale { scale, good, bad, lost } = to;
        self.scale.write(0, &[scale, 1.0 / scale])?;
        // the counts are integers stored in f32 words
        self.scale_state.write(0, &[good, 0, bad, 0, lost, 0].map(f32::from_bits))?;
        self.host_scales.as_mut_slice()[..4].copy_from_slice(&[scale, good as f32, bad as f32, lost as f32]);
        self.updates = 0;
        Ok(())
    }

    /// Makes room for passes over `rows` rows. Returns true if any address changed.
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
}

/// Offsets in the inbox, in 8-byte words. The inbox has: the optimizer's numbers, the epoch, smoothing and factor of
/// the loss, the rows' ids, and the rows' labels (two per word).
const EPOCH: usize = NUMBERS;
const LOSS: usize = EPOCH + 1;
const ROWS: usize = LOSS + 1;

/// Values that the host writes before each pass and before an optimizer step. On the GPU, they are one block, which is
/// filled by a copy or by the kernel that writes the network's input. The block's address does not change, so a
/// captured pass can read it in each replay.
pub struct Inbox {
    block: Inlet<u64>,
    /// The host's copy of the block, which the next transfer sends.
    words: Vec<u64>,
    rows: usize,
    /// True once `set_step` has stored the numbers of an optimizer step.
    begun: bool,
}

impl Inbox {
    /// Allocates room for passes over `rows` rows.
    pub fn new(queues: &Arc<Queues>, rows: usize) -> Result<Self, Error> {
        let words = ROWS + rows + rows.div_ceil(2);
        Ok(Self { block: Inlet::new(queues, words, "a pass's numbers")?, words: vec![0; words], rows, begun: false })
    }

    /// Returns a larger inbox at another address. It has the same step numbers, epoch and loss arguments, but no ids or
    /// labels.
    pub fn grown(&self, queues: &Arc<Queues>, rows: usize) -> Result<Self, Error> {
        let mut grown = Self { begun: self.begun, ..Self::new(queues, rows)? };
        grown.words[..ROWS].copy_from_slice(&self.words[..ROWS]);
        Ok(grown)
    }

    /// Returns the number of rows that fit.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Stores epoch and sample ids of a pass.
    pub fn set_pass(&mut self, epoch: u32, ids: &[u64]) {
        self.words[EPOCH] = u64::from(epoch);
        self.words[ROWS..ROWS + ids.len()].copy_from_slice(ids);
    }

    /// Stores the arguments of the loss.
    pub fn set_loss(&mut self, ask: &CrossEntropy<'_>) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.words[LOSS] = pair(ask.smoothing.to_bits(), ask.scale.to_bits());
        let labels = self.words[ROWS + self.rows..].iter_mut().zip(ask.labels.chunks(2));
        labels.for_each(|(word, labels)| *word = pair(labels[0], labels.get(1).copied().unwrap_or(0)));
    }

    /// Stores the optimizer's numbers. Returns true if they differ from the previous ones.
    pub fn set_step(&mut self, numbers: [f64; NUMBERS]) -> bool {
        let bits = numbers.map(f64::to_bits);
        let differ = !self.begun || self.words[..NUMBERS] != bits;
        self.words[..NUMBERS].copy_from_slice(&bits);
        self.begun = true;
        differ
    }

    /// Copies the whole inbox to the GPU with a kernel. `launch` must enqueue this kernel. It gets the host's words to
    /// read and the GPU's words to write.
    pub fn send_by(
        &mut self,
        stream: &Stream,
        launch: impl FnOnce(Slice<'_, u64>, Slice<'_, u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.block.write_by(&self.words, stream, launch)
    }

    /// Enqueues a copy of the whole inbox.
    pub fn send(&mut self, stream: &Stream) -> Result<(), Error> {
        self.copy(0..self.words.len(), stream)
    }

    /// Enqueues a copy of the optimizer's numbers.
    pub fn send_step(&mut self, stream: &Stream) -> Result<(), Error> {
        self.copy(0..NUMBERS, stream)
    }

    fn copy(&mut self, range: Range<usize>, stream: &Stream) -> Result<(), Error> {
        self.block.write(&self.words[range], stream)
    }

    /// Returns the class of each row.
    pub fn labels(&self) -> Result<Slice<'_, u32>, Error> {
        self.block.slice_as().range(2 * (ROWS + self.rows), self.rows)
    }

    /// Returns the sample id of each row.
    pub fn ids(&self) -> Result<Slice<'_, u64>, Error> {
        self.block.slice_as().range(ROWS, self.rows)
    }

    /// Returns the epoch, one element.
    pub fn epoch(&self) -> Result<Slice<'_, u32>, Error> {
        self.block.slice_as().range(2 * EPOCH, 1)
    }

    /// Returns the label smoothing and the factor of the gradient.
    pub fn factors(&self) -> Result<Slice<'_, f32>, Error> {
        self.block.slice_as().range(2 * LOSS, 2)
    }

    /// Returns the numbers of the current optimizer step. Returns an error if no step has begun.
    pub fn numbers(&self) -> Result<Slice<'_, f64>, Error> {
        if !self.begun {
            return Err(Error::Unsupported { op: "an optimizer step".into(), why: "it has not begun".into() });
        }
        self.block.slice_as().range(0, NUMBERS)
    }
}

/// Number of passes whose sums are kept until the host reads them.
pub const PLACES: usize = 2;
/// Number of updates for which the loss scale is kept. When the host reads the scale before a pass, the GPU may already
/// have done the update after this pass and the update after the next one.
pub const SCALES_KEPT: usize = PLACES + 1;

/// Results of passes for the host: loss and correct predictions. There are two places, so that the host can enqueue a
/// pass before it has read the sums of the previous one. Otherwise the GPU would wait for the host.
pub struct Outbox {
    places: [Place; PLACES],
    /// Places with unread sums, oldest first.
    unread: VecDeque<usize>,
    /// Place of the last pass that began.
    current: usize,
    /// Place from which sums were read last.
    read: usize,
}

struct Place {
    /// Loss, rows whose best score is correct, rows with the correct class among the best five, and rows with an
    /// invalid label.
    sums: Pinned<f64>,
    /// Number of rows in the loss.
    rows: u64,
    classes: usize,
    /// Recorded when the next pass begins, and so also after the update that follows this pass. Valid if `marked`.
    end: Event,
    marked: bool,
    /// Recorded by [`Outbox::mark`] right after the pass. It counts as done if `mark` is never called.
    computed: Event,
}

/// The sums of one pass.
pub struct Sums<'a> {
    pub sums: &'a [f64],
    pub rows: u64,
    pub classes: usize,
}

impl Outbox {
    pub fn new(queues: &Arc<Queues>) -> Result<Self, Error> {
        let context = queues.context();
        let place = || {
            let sums = Pinned::new(context, 4, "sums")?;
            let (end, computed) = (Event::new(context)?, Event::new(context)?);
            Ok::<_, Error>(Place { sums, rows: 0, classes: 0, end, marked: false, computed })
        };
        Ok(Self { places: [place()?, place()?], unread: VecDeque::new(), current: 0, read: 0 })
    }

    /// Records the end of earlier passes on the stream and chooses a place for the sums of a new pass.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), Error> {
        for &unread in &self.unread {
            let place = &mut self.places[unread];
            if !place.marked {
                place.end.record(stream, false)?;
                place.marked = true;
            }
        }
        if self.unread.len() == PLACES {
            // drop sums that were never read
            self.unread.pop_front();
        }
        self.current = (0..PLACES).find(|place| !self.unread.contains(place)).unwrap_or(0);
        Ok(())
    }

    /// Declares that the current pass computes the loss of `rows` rows.
    pub fn expect(&mut self, rows: usize) {
        let place = &mut self.places[self.current];
        (place.rows, place.marked) = (rows as u64, false);
        if !self.unread.contains(&self.current) {
            self.unread.push_back(self.current);
        }
    }

    pub fn set_classes(&mut self, classes: usize) {
        self.places[self.current].classes = classes;
    }

    /// Returns the index of the place of the last pass that began.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Returns the index of the place from which sums were read last.
    pub fn read(&self) -> usize {
        self.read
    }

    /// Returns the memory for the sums of the current pass.
    pub fn sums(&self) -> Slice<'_, f64> {
        self.places[self.current].sums.slice()
    }

    /// Marks the end of the current pass.
    pub fn mark(&self, stream: &Stream) -> Result<(), Error> {
        self.places[self.current].computed.record(stream, false)
    }

    /// Waits until the GPU has reached the mark of the oldest unread pass.
    pub fn wait_for_pass(&self) -> Result<(), Error> {
        self.unread.front().map_or(Ok(()), |&place| self.places[place].computed.wait())
    }

    /// Waits for the end of the oldest pass with unread sums. Returns false if the end is not recorded, because no
    /// later pass has begun. Then the caller must wait for the whole stream.
    pub fn wait(&self) -> Result<bool, Error> {
        match self.unread.front().map(|&place| &self.places[place]).filter(|place| place.marked) {
            Some(place) => place.end.wait().map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns the sums of the oldest unread pass, which the GPU must have written. Returns `None` if no pass computed
    /// a loss.
    pub fn take(&mut self) -> Option<Sums<'_>> {
        self.read = self.unread.pop_front()?;
        let Place { sums, rows, classes, .. } = &self.places[self.read];
        Some(Sums { sums: sums.as_slice(), rows: *rows, classes: *classes })
    }
}
