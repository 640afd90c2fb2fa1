//! The codecs' phases as kernels on the queue of copies: gradients and residuals stay on the card; codes, and of each run of elements
//! what its tensor's scale is made from, travel.

use std::ops::Range;
use std::sync::Arc;

use loaders::random::CODEC_OP;

use crate::backend::cuda::Cuda;
use crate::backend::cuda::driver::memory::{CudaBuf, Queues};
use crate::backend::cuda::driver::pinned::{Pinned, Plain};
use crate::backend::cuda::driver::stream::Event;
use crate::backend::cuda::kernels::module::Arg::{At, I32, U32, U64};
use crate::backend::cuda::kernels::module::{Arg, Kernels, THREADS};
use crate::backend::cuda::shared::Shared;
use crate::backend::{self, Buffer, Error};
use crate::coding::{Codes, Coding, Draw, Form, Moments, Whole};

/// Elements of a run of fixed-point numbers.
const RUN: usize = 4096;

/// Words of a block of lanes that the kernels know.
const WORDS: usize = 64;

/// Words of one run on the card, see kernels/codec.cu.
const RUN_WORDS: usize = 10;

/// Numbers on the card and on the host.
struct Both<T> {
    card: CudaBuf,
    host: Pinned<T>,
    len: usize,
}

impl<T: Plain> Both<T> {
    fn new(shared: &Shared, len: usize) -> Result<Self, Error> {
        let words = (len * size_of::<T>()).div_ceil(4);
        Ok(Self { card: shared.alloc(words, "codes")?, host: shared.pinned(len, "codes")?, len })
    }

    fn address(&self) -> Arg {
        At(self.card.address())
    }

    fn bytes(&self) -> usize {
        4 * self.card.len() + size_of_val(self.host.as_slice())
    }

    fn down(&mut self, queues: &Queues) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { self.host.receive(self.card.address(), 0, self.len, &queues.copies) }
    }

    fn up(&self, queues: &Queues) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { self.host.send(self.len, self.card.address(), &queues.copies) }
    }
}

/// See [`backend::Coder`].
pub struct Coder {
    coding: Coding,
    queues: Arc<Queues>,
    kernels: Arc<Kernels>,
    /// Blocks of a grid at most.
    blocks: usize,
    /// On the card: first the runs of fixed-point numbers, then those of lanes.
    runs: CudaBuf,
    /// How many there are of each.
    counts: [usize; 2],
    /// Tensor of each run.
    tensors: Vec<usize>,
    /// This rank's.
    workers: Range<usize>,
    /// The largest |g| of each run of each share; the card writes there.
    largest: Pinned<u32>,
    /// Sum and sum of squares likewise, where scales need them.
    moments: Pinned<f64>,
    /// One a worker under feedback.
    residuals: Vec<CudaBuf>,
    scales: Both<u32>,
    integers: Both<i32>,
    words: Both<u64>,
    halves: Both<u16>,
    reached: Event,
}

/// Runs as the kernels read them.
#[derive(Default)]
struct Runs {
    words: Vec<u32>,
    tensors: Vec<usize>,
    counts: [usize; 2],
    /// Fixed-point numbers, and words of lanes.
    codes: [usize; 2],
}

impl Runs {
    fn new(whole: &Whole) -> Self {
        let mut runs = Self::default();
        for (kind, in_lanes) in [false, true].into_iter().enumerate() {
            // elements of a run, and of one number
            let (run, each) = if in_lanes { (whole.block * whole.per_word, whole.per_word) } else { (RUN, 1) };
            for (tensor, part) in whole.parts.iter().enumerate().filter(|(_, p)| p.in_lanes == in_lanes) {
                for first in (0..part.range.len()).step_by(run) {
                    let (from, place) = (part.range.start + first, runs.codes[kind] + first / each);
                    let len = (part.range.len() - first).min(run);
                    let wide = [from, place, first].into_iter();
                    runs.words.extend(wide.flat_map(|v| [v as u32, (v as u64 >> 32) as u32]));
                    runs.words.extend([len as u32, tensor as u32, u32::from(part.parameter), u32::from(in_lanes)]);
                    runs.tensors.push(tensor);
                    runs.counts[kind] += 1;
                }
                runs.codes[kind] += part.range.len().div_ceil(each);
            }
        }
        runs
    }
}

impl Coder {
    /// For a bucket of these workers.
    pub fn new(shared: &Shared, coding: &Coding, workers: Range<usize>) -> Result<Self, Error> {
        let (runs, halves, scales, clipped) = match &coding.form {
            Form::Halves => (Runs::default(), coding.len, 0, false),
            Form::Whole(whole) if whole.block == WORDS => (Runs::new(whole), 0, whole.parts.len(), whole.clip > 0.0),
            Form::Whole(whole) => {
                let (expected, got) = (format!("{WORDS} words"), whole.block.to_string());
                return Err(Error::Size { op: "a block of codes".into(), expected, got });
            }
        };
        shared.start()?;
        let measured = runs.tensors.len() * workers.len();
        let fed_back = if coding.feedback { workers.len() } else { 0 };
        let residuals = (0..fed_back).map(|_| shared.alloc(coding.len, "residuals"));
        let coder = Self {
            coding: coding.clone(),
            queues: shared.queues.clone(),
            kernels: shared.kernels(),
            blocks: shared.grid(usize::MAX).0 as usize,
            runs: if runs.words.is_empty() { CudaBuf::default() } else { shared.constant(&runs.words, "codes")? },
            counts: runs.counts,
            largest: shared.pinned(measured, "codes")?,
            moments: shared.pinned(if clipped { 2 * measured } else { 0 }, "codes")?,
            residuals: residuals.collect::<Result<_, _>>()?,
            tensors: runs.tensors,
            workers,
            scales: Both::new(shared, scales)?,
            integers: Both::new(shared, runs.codes[0])?,
            words: Both::new(shared, runs.codes[1])?,
            halves: Both::new(shared, halves)?,
            reached: Event::new(shared.context())?,
        };
        shared.settle()?;
        Ok(coder)
    }

    /// Waits for what was enqueued on the copies' queue.
    fn reach(&self) -> Result<(), Error> {
        self.reached.record(&self.queues.copies, false)?;
        self.reached.wait()
    }

    /// Enqueues a kernel with so much to do for blocks of threads.
    ///
    /// # Safety
    /// As for [`Kernels::launch`].
    unsafe fn launch(&self, name: &str, blocks: usize, args: &[Arg]) -> Result<(), Error> {
        if blocks == 0 {
            return Ok(());
        }
        self.queues.context().bind()?;
        // SAFETY: as the caller promises.
        unsafe { self.kernels.launch(&self.queues.copies, name, (blocks.min(self.blocks) as u32, 1), args) }
    }

    /// Where the runs of lanes begin.
    fn lane_runs(&self) -> Arg {
        At(self.runs.address() + (4 * RUN_WORDS * self.counts[0]) as u64)
    }

    /// The residual of a share, for a kernel: null without feedback.
    fn residual_at(&self, share: usize) -> Arg {
        At(self.residuals.get(share).map_or(0, CudaBuf::address))
    }

    /// Adds one share's codes to those before.
    fn add(&self, whole: &Whole, share: &CudaBuf, index: usize, draw: Draw) -> Result<(), Error> {
        let (g, runs, scales) = (At(share.address()), At(self.runs.address()), self.scales.address());
        let [integers, lanes] = self.counts;
        let add = U32(u32::from(index > 0));
        let (worker, op) = (U32((self.workers.start + index) as u32), U32(u32::from(CODEC_OP) << 16));
        let form = [U32(whole.bits), U32(whole.per_word as u32), U32(whole.steps)];
        let drawn =
            [worker, U32(draw.step as u32), U64(draw.seed), op, self.residual_at(index), add, self.words.address()];
        let to_lanes = [&[g, self.lane_runs(), U32(lanes as u32), scales], &form[..], &drawn].concat();
        let to_integers = [g, runs, U32(integers as u32), scales, U32(whole.room), add, self.integers.address()];
        // SAFETY: the share holds all runs (checked by `begin`), scales and codes were made for them.
        unsafe {
            self.launch("codec_integers", integers, &to_integers)?;
            self.launch("codec_lanes", (lanes * WORDS).div_ceil(THREADS as usize), &to_lanes)
        }
    }

    /// Leaves the sum of the shares in the last, once each is rounded if its rounding is fed back.
    fn add_up(&self, shares: &[CudaBuf]) -> Result<(), Error> {
        let Some((last, earlier)) = shares.split_last() else { return Ok(()) };
        let (n, blocks) = (U64(self.coding.len as u64), self.coding.len.div_ceil(THREADS as usize));
        // SAFETY: shares and residuals are as long as the bucket (checked by `begin`).
        unsafe {
            for (share, residual) in shares.iter().zip(&self.residuals) {
                self.launch("codec_halves_split", blocks, &[At(share.address()), n, At(residual.address())])?;
            }
            for share in earlier {
                self.launch("arena_add", blocks, &[At(last.address()), At(share.address()), n])?;
            }
        }
        Ok(())
    }
}

impl backend::Coder<Cuda> for Coder {
    fn begin(&mut self, shares: &[CudaBuf]) -> Result<(), Error> {
        if shares.len() > self.workers.len() {
            let (expected, got) = (format!("at most {} shares", self.workers.len()), shares.len().to_string());
            return Err(Error::Size { op: "codes".into(), expected, got });
        }
        for share in shares {
            share.check(0, self.coding.len)?;
            share.wait_on(&self.queues.copies)?;
        }
        self.reach()
    }

    fn measure(&mut self, shares: &mut [CudaBuf], scales: &mut Vec<u32>) -> Result<(), Error> {
        let Form::Whole(whole) = &self.coding.form else { return Ok(()) };
        let (count, clipped) = (self.tensors.len(), whole.clip > 0.0);
        for (index, share) in shares.iter().enumerate() {
            let first = (index * count) as u64;
            let moments = if clipped { self.moments.address() + 16 * first } else { 0 };
            let (g, runs, largest) = (At(share.address()), At(self.runs.address()), self.largest.address() + 4 * first);
            let args = [g, runs, U32(count as u32), self.residual_at(index), At(largest), At(moments)];
            // SAFETY: share and residual hold all runs (checked by `begin`); there are three numbers a run and share.
            unsafe { self.launch("codec_measure", (32 * count).div_ceil(THREADS as usize), &args)? };
        }
        self.reach()?;
        scales.resize(whole.parts.len(), 0);
        let (largest, moments) = (self.largest.as_slice(), self.moments.as_slice().as_chunks::<2>().0);
        for index in 0..shares.len() {
            let mut all = vec![Moments::default(); whole.parts.len()];
            for (run, tensor) in self.tensors.iter().enumerate() {
                let run = index * count + run;
                let [sum, squares] = if clipped { moments[run] } else { [0.0; 2] };
                all[*tensor].add(Moments { largest: largest[run], sum, squares });
            }
            for ((scale, part), all) in scales.iter_mut().zip(&whole.parts).zip(all) {
                let clip = if part.in_lanes { whole.clip } else { 0.0 };
                *scale = (*scale).max(all.scale(part.elems, clip));
            }
        }
        Ok(())
    }

    fn encode(&mut self, shares: &mut [CudaBuf], scales: &[u32], draw: Draw) -> Result<(), Error> {
        match &self.coding.form {
            Form::Halves => {
                self.add_up(shares)?;
                let Some(sum) = shares.last() else { return Ok(()) };
                let (len, halves) = (self.coding.len, self.halves.address());
                // SAFETY: both hold as many numbers (checked by `begin`).
                unsafe {
                    let args = [At(sum.address()), U64(len as u64), halves];
                    self.launch("codec_halves", len.div_ceil(THREADS as usize), &args)?;
                }
            }
            Form::Whole(whole) => {
                if scales.len() != whole.parts.len() {
                    let (expected, got) = (whole.parts.len().to_string(), scales.len().to_string());
                    return Err(Error::Size { op: "scales of a codec".into(), expected, got });
                }
                self.scales.host.as_mut_slice().copy_from_slice(scales);
                self.scales.up(&self.queues)?;
                for (index, share) in shares.iter().enumerate() {
                    self.add(whole, share, index, draw)?;
                }
            }
        }
        self.integers.down(&self.queues)?;
        self.words.down(&self.queues)?;
        self.halves.down(&self.queues)?;
        self.reach()
    }

    fn codes(&mut self) -> Codes<'_> {
        Codes {
            integers: self.integers.host.as_mut_slice(),
            words: self.words.host.as_mut_slice(),
            halves: self.halves.host.as_mut_slice(),
        }
    }

    fn decode(&mut self, into: &mut CudaBuf) -> Result<(), Error> {
        into.check(0, self.coding.len)?;
        self.integers.up(&self.queues)?;
        self.words.up(&self.queues)?;
        self.halves.up(&self.queues)?;
        let (g, runs, scales) = (At(into.address()), At(self.runs.address()), self.scales.address());
        match &self.coding.form {
            // SAFETY: both hold as many numbers (checked).
            Form::Halves => unsafe {
                let args = [self.halves.address(), U64(self.coding.len as u64), g];
                self.launch("codec_halves_back", self.coding.len.div_ceil(THREADS as usize), &args)?;
            },
            Form::Whole(whole) => {
                let [integers, lanes] = self.counts;
                let zero = I32((whole.steps as usize * whole.workers) as i32);
                let from_integers = [self.integers.address(), runs, U32(integers as u32), scales, U32(whole.room), g];
                let form = [U32(whole.bits), U32(whole.per_word as u32), U32(whole.steps), zero, g];
                let from_lanes =
                    [&[self.words.address(), self.lane_runs(), U32(lanes as u32), scales], &form[..]].concat();
                // SAFETY: the buffer holds all runs (checked), scales and codes were made for them.
                unsafe {
                    self.launch("codec_integers_back", integers, &from_integers)?;
                    self.launch("codec_lanes_back", (lanes * WORDS).div_ceil(THREADS as usize), &from_lanes)?;
                }
            }
        }
        into.come_after(&self.queues.copies)
    }

    fn residual(&mut self, worker: usize) -> Option<&mut CudaBuf> {
        self.residuals.get_mut(worker.checked_sub(self.workers.start)?)
    }

    fn memory(&self) -> usize {
        let codes = self.scales.bytes() + self.integers.bytes() + self.words.bytes() + self.halves.bytes();
        let measured = size_of_val(self.largest.as_slice()) + size_of_val(self.moments.as_slice());
        let kept = std::iter::once(&self.runs).chain(&self.residuals);
        codes + measured + kept.map(|buffer| 4 * buffer.len()).sum::<usize>()
    }
}
