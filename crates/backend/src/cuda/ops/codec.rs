//! Gradient codecs as kernels on their own stream. Gradients and residuals stay on the GPU. If MPI sums the encoded
//! gradients, only the encoded gradients and each tensor's scale are copied to the host.

use std::ops::Range;
use std::sync::Arc;

use base::code_spec::{CodeFormat, CodeSpec, CodedTensor, Codes, Draw, IntegerCodes};
use loaders::random::CODEC_OP;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::{CudaBuf, Mirrored};
use crate::cuda::driver::pinned::Pinned;
use crate::cuda::driver::slice::Slice;
use crate::cuda::driver::stream::{Event, Queues};
use crate::cuda::kernels::declarations::{
    ArenaAdd, CodecHalves, CodecHalvesBack, CodecHalvesSplit, CodecIntegers, CodecIntegersBack, CodecLanes,
    CodecLanesBack, CodecMeasure, CodecScales, Run, Span, WORDS,
};
use crate::cuda::kernels::kernel::Kernel;
use crate::cuda::kernels::module::Kernels;
use crate::cuda::shared::Shared;
use crate::{Collective, Error, Reduction};

/// Totals for the runs of one kind in a bucket: how many runs and encoded gradients there are, and where the last run
/// ends.
#[derive(Clone, Copy, Default)]
struct RunTotals {
    runs: usize,
    codes: usize,
    end: usize,
}

impl RunTotals {
    fn of(runs: &Runs) -> Self {
        Self { runs: runs.list.len(), codes: runs.codes, end: runs.end }
    }
}

/// The GPU's implementation of [`crate::DeviceCodec`].
pub struct GpuCodec {
    spec: CodeSpec,
    queues: Arc<Queues>,
    kernels: Arc<Kernels>,
    /// The codec's [`Runs`] in GPU memory: first runs with fixed-point codes, then runs with packed codes (lanes).
    runs: CudaBuf,
    fixed: RunTotals,
    lanes: RunTotals,
    /// The workers of this rank, numbered over all ranks.
    workers: Range<usize>,
    /// The range of runs that belongs to each tensor.
    spans: CudaBuf,
    /// For each worker and run, the largest |g|.
    largest: CudaBuf,
    /// For each worker and run, the sum and the sum of squares. Empty if the scales do not need them.
    moments: CudaBuf,
    /// The residual of each worker, which is added to the worker's next gradients. It is the rounding error with bf16,
    /// and the part of the gradient beyond the scale with packed codes. Empty without error feedback.
    residuals: Vec<CudaBuf>,
    scales: Mirrored<u32>,
    /// Host copies of the scales, used if a group of GPUs computes the sums. Even steps use the first, odd steps the
    /// second. The event marks the end of the copy.
    seen: [(Pinned<u32>, Event); 2],
    integers: Mirrored<i32>,
    words: Mirrored<u64>,
    halves: Mirrored<u16>,
    reached: Event,
}

/// Lists the bucket's runs, fixed-point codes and lanes separately. Returns an error if the block size differs from the
/// kernels'.
fn runs_of(format: &CodeFormat) -> Result<(Runs, Runs), Error> {
    match format {
        CodeFormat::Bf16 => Ok(Default::default()),
        CodeFormat::Integers(whole) if whole.block == WORDS => Ok((Runs::of_integers(whole), Runs::of_lanes(whole))),
        CodeFormat::Integers(whole) => {
            let (expected, got) = (format!("{WORDS} words"), whole.block.to_string());
            Err(Error::Size { op: "a block of codes".into(), expected, got })
        }
    }
}

impl GpuCodec {
    /// Creates the codec of a bucket for these workers.
    pub fn new(shared: &Shared, spec: &CodeSpec, workers: Range<usize>) -> Result<Self, Error> {
        let (fixed, lanes) = runs_of(&spec.format)?;
        let (halves, scales, clipped) = match &spec.format {
            CodeFormat::Bf16 => (spec.len, 0, false),
            CodeFormat::Integers(whole) => (0, whole.parts.len(), whole.clip > 0.0),
        };
        shared.start()?;
        let list = [fixed.list.as_slice(), &lanes.list].concat();
        let measured = list.len() * workers.len();
        let fed_back = if spec.feedback { workers.len() } else { 0 };
        let residuals = (0..fed_back).map(|_| shared.alloc(spec.len, "residuals"));
        let queues = &shared.queues;
        let spans = spans(&spec.format, &[fixed.tensors.as_slice(), &lanes.tensors].concat());
        let seen = || Ok::<_, Error>((shared.pinned(scales, "codes")?, Event::new(shared.context())?));
        let coder = Self {
            spec: spec.clone(),
            queues: queues.clone(),
            kernels: shared.kernels(),
            runs: if list.is_empty() { CudaBuf::default() } else { shared.constant(&list, "codes")? },
            fixed: RunTotals::of(&fixed),
            lanes: RunTotals::of(&lanes),
            spans: if spans.is_empty() { CudaBuf::default() } else { shared.constant(&spans, "codes")? },
            largest: shared.alloc(measured, "codes")?,
            moments: shared.alloc(if clipped { 4 * measured } else { 0 }, "codes")?,
            residuals: residuals.collect::<Result<_, _>>()?,
            workers,
            scales: Mirrored::new(queues, scales, "codes")?,
            seen: [seen()?, seen()?],
            integers: Mirrored::new(queues, fixed.codes, "codes")?,
            words: Mirrored::new(queues, lanes.codes, "codes")?,
            halves: Mirrored::new(queues, halves, "codes")?,
            reached: Event::new(shared.context())?,
        };
        shared.settle()?;
        Ok(coder)
    }

    /// Waits for everything enqueued on the `codes` stream.
    fn reach(&self) -> Result<(), Error> {
        self.reached.record(&self.queues.codes, false)?;
        self.reached.wait()
    }

    fn launch(&self, kernel: &impl Kernel) -> Result<(), Error> {
        self.queues.context().bind()?;
        self.kernels.launch(&self.queues.codes, kernel)
    }

    fn fixed_runs(&self) -> Result<Slice<'_, Run>, Error> {
        self.runs.slice().range(0, self.fixed.runs)
    }

    fn lane_runs(&self) -> Result<Slice<'_, Run>, Error> {
        self.runs.slice().range(self.fixed.runs, self.lanes.runs)
    }

    /// Returns a worker's residual, or `None` without error feedback. `index` counts this rank's workers.
    fn residual_of(&self, index: usize) -> Option<Slice<'_, f32>> {
        self.residuals.get(index).map(CudaBuf::slice)
    }

    /// Returns how many runs there are, counting both kinds.
    fn count(&self) -> usize {
        self.fixed.runs + self.lanes.runs
    }

    /// Enqueues the statistics of one worker's gradients, from which the scales are computed.
    fn measure_one(&self, share: &CudaBuf, index: usize) -> Result<(), Error> {
        let count = self.count();
        let moments = self.moments.optional().map(|moments| moments.range(2 * index * count, 2 * count)).transpose()?;
        self.launch(&CodecMeasure {
            g: share.slice(),
            runs: self.runs.slice(),
            count: count as u32,
            residual: self.residual_of(index),
            largest: self.largest.slice().range(index * count, count)?,
            moments,
            end: self.fixed.end.max(self.lanes.end),
        })
    }

    /// Enqueues the kernels that compute each tensor's largest scale over the shares.
    fn measure_all(&self, whole: &IntegerCodes, shares: &[CudaBuf]) -> Result<(), Error> {
        shares.iter().enumerate().try_for_each(|(index, share)| self.measure_one(share, index))?;
        let (count, tensors, shares) = (self.count(), whole.parts.len(), shares.len());
        let measured = shares * count;
        self.launch(&CodecScales {
            largest: self.largest.slice().range(0, measured)?,
            moments: self.moments.optional().map(|moments| moments.range(0, 2 * measured)).transpose()?,
            spans: self.spans.slice().range(0, tensors)?,
            tensors: tensors as u32,
            count: count as u32,
            shares: shares as u32,
            scales: self.scales.slice().range(0, tensors)?,
        })
    }

    /// Adds one worker's codes to the sum. The first worker's codes replace the old sum.
    fn add(&self, whole: &IntegerCodes, share: &CudaBuf, index: usize, draw: Draw) -> Result<(), Error> {
        let (g, scales, tensors) = (share.slice(), self.scales.slice(), whole.parts.len());
        let add = u32::from(index > 0);
        let RunTotals { runs, codes, end } = self.fixed;
        self.launch(&CodecIntegers {
            g,
            runs: self.fixed_runs()?,
            count: runs as u32,
            scales,
            room: whole.room,
            add,
            codes: self.integers.slice(),
            end,
            codes_end: codes,
            tensors,
        })?;
        let RunTotals { runs, codes, end } = self.lanes;
        self.launch(&CodecLanes {
            g,
            runs: self.lane_runs()?,
            count: runs as u32,
            scales,
            bits: whole.bits,
            per_word: whole.per_word as u32,
            steps: whole.steps,
            worker: (self.workers.start + index) as u32,
            step: draw.step as u32,
            seed: draw.seed,
            op: u32::from(CODEC_OP) << 16,
            residual: self.residual_of(index),
            add,
            words: self.words.slice(),
            end,
            codes_end: codes,
            tensors,
        })
    }

    /// Adds the other workers' gradients to the last worker's gradients. With error feedback, first rounds each
    /// worker's gradients to bf16 and keeps the rounding errors as residuals.
    fn add_up(&self, shares: &[CudaBuf]) -> Result<(), Error> {
        let Some((last, earlier)) = shares.split_last() else { return Ok(()) };
        let n = self.spec.len as u64;
        for (share, residual) in shares.iter().zip(&self.residuals) {
            self.launch(&CodecHalvesSplit { g: share.slice(), n, residual: residual.slice() })?;
        }
        for share in earlier {
            self.launch(&ArenaAdd { to: last.slice(), from: share.slice(), n })?;
        }
        Ok(())
    }

    /// Enqueues the conversion from sums of integer codes to gradients.
    fn decode_whole(&self, whole: &IntegerCodes, into: &CudaBuf) -> Result<(), Error> {
        let (g, scales, tensors) = (into.slice(), self.scales.slice(), whole.parts.len());
        let RunTotals { runs, codes, end } = self.fixed;
        self.launch(&CodecIntegersBack {
            codes: self.integers.slice(),
            runs: self.fixed_runs()?,
            count: runs as u32,
            scales,
            room: whole.room,
            g,
            end,
            codes_end: codes,
            tensors,
        })?;
        let RunTotals { runs, codes, end } = self.lanes;
        self.launch(&CodecLanesBack {
            words: self.words.slice(),
            runs: self.lane_runs()?,
            count: runs as u32,
            scales,
            bits: whole.bits,
            per_word: whole.per_word as u32,
            steps: whole.steps,
            zero: (whole.steps as usize * whole.workers) as i32,
            g,
            end,
            codes_end: codes,
            tensors,
        })
    }
}

/// Enqueues a reduction of the buffer over all ranks. It waits for earlier work on the `codes` stream, and later work
/// there waits for it.
fn combine(
    queues: &Queues,
    group: &mut dyn Collective<Cuda>,
    buffer: &mut CudaBuf,
    reduction: Reduction,
) -> Result<(), Error> {
    if buffer.bytes() == 0 {
        return Ok(());
    }
    buffer.come_after(&queues.codes)?;
    group.reduce(buffer, reduction)?;
    buffer.wait_on(&queues.codes)
}

/// Returns the range of runs of each tensor.
fn spans(format: &CodeFormat, tensors: &[usize]) -> Vec<Span> {
    let CodeFormat::Integers(whole) = format else { return Vec::new() };
    let span = |(index, part): (usize, &CodedTensor)| {
        let first = tensors.iter().position(|tensor| *tensor == index).unwrap_or(0);
        let runs = tensors.iter().filter(|tensor| **tensor == index).count();
        let clip = if part.in_lanes { whole.clip } else { 0.0 };
        Span { elems: part.elems as f64, first: first as u32, runs: runs as u32, clip, zero: 0 }
    };
    whole.parts.iter().enumerate().map(span).collect()
}

impl GpuCodec {
    /// Makes the `codes` stream wait until the shares are filled. A share is the gradients of one worker.
    fn follow(&self, shares: &[CudaBuf]) -> Result<(), Error> {
        if shares.len() > self.workers.len() {
            let (expected, got) = (format!("at most {} shares", self.workers.len()), shares.len().to_string());
            return Err(Error::Size { op: "codes".into(), expected, got });
        }
        for share in shares {
            share.check(0, self.spec.len)?;
            share.wait_on(&self.queues.codes)?;
        }
        Ok(())
    }

    /// Enqueues the conversion of the summed codes to gradients.
    fn decode_sums(&self, into: &mut CudaBuf) -> Result<(), Error> {
        match &self.spec.format {
            CodeFormat::Bf16 => {
                let (halves, n) = (self.halves.slice(), self.spec.len as u64);
                self.launch(&CodecHalvesBack { halves, n, g: into.slice() })?;
            }
            CodeFormat::Integers(whole) => self.decode_whole(whole, into)?,
        }
        into.come_after(&self.queues.codes)
    }

    /// Enqueues the encoding of all shares and the sum of their codes. Reads the scales from the GPU.
    fn encode_all(&self, shares: &[CudaBuf], draw: Draw) -> Result<(), Error> {
        match &self.spec.format {
            CodeFormat::Bf16 => {
                self.add_up(shares)?;
                let Some(sum) = shares.last() else { return Ok(()) };
                self.launch(&CodecHalves { g: sum.slice(), n: self.spec.len as u64, halves: self.halves.slice() })
            }
            CodeFormat::Integers(whole) => {
                shares.iter().enumerate().try_for_each(|(index, share)| self.add(whole, share, index, draw))
            }
        }
    }

    /// Enqueues the computation of each tensor's largest scale over all ranks.
    fn scale_in(&mut self, group: &mut dyn Collective<Cuda>, shares: &[CudaBuf], step: u64) -> Result<(), Error> {
        let CodeFormat::Integers(whole) = &self.spec.format else { return Ok(()) };
        self.measure_all(whole, shares)?;
        combine(&self.queues, group, self.scales.device(), Reduction::MaxU32)?;
        let (seen, copied) = &mut self.seen[(step % 2) as usize];
        seen.receive(self.scales.slice().range(0, whole.parts.len())?, &self.queues.codes)?;
        copied.record(&self.queues.codes, false)
    }
}

impl crate::DeviceCodec<Cuda> for GpuCodec {
    fn sum_in(&mut self, group: &mut dyn Collective<Cuda>, shares: &mut [CudaBuf], draw: Draw) -> Result<usize, Error> {
        self.follow(shares)?;
        self.scale_in(group, shares, draw.step)?;
        self.encode_all(shares, draw)?;
        combine(&self.queues, group, self.integers.device(), Reduction::SumI32)?;
        combine(&self.queues, group, self.words.device(), Reduction::SumU64)?;
        combine(&self.queues, group, self.halves.device(), Reduction::SumBf16)?;
        shares.last_mut().map_or(Ok(()), |last| self.decode_sums(last))?;
        Ok(self.scales.device().bytes()
            + self.integers.device().bytes()
            + self.words.device().bytes()
            + self.halves.device().bytes())
    }

    fn scales(&mut self, step: u64) -> Result<&[u32], Error> {
        let (seen, copied) = &self.seen[(step % 2) as usize];
        copied.wait()?;
        Ok(seen.as_slice())
    }

    fn begin(&mut self, shares: &[CudaBuf]) -> Result<(), Error> {
        self.follow(shares)?;
        self.reach()
    }

    fn measure(&mut self, shares: &mut [CudaBuf], scales: &mut Vec<u32>) -> Result<(), Error> {
        let CodeFormat::Integers(whole) = &self.spec.format else { return Ok(()) };
        self.measure_all(whole, shares)?;
        self.scales.down(&self.queues)?;
        self.reach()?;
        scales.clear();
        scales.extend_from_slice(self.scales.host());
        Ok(())
    }

    fn encode(&mut self, shares: &mut [CudaBuf], scales: &[u32], draw: Draw) -> Result<(), Error> {
        let room = self.scales.host();
        if scales.len() != room.len() {
            let (expected, got) = (room.len().to_string(), scales.len().to_string());
            return Err(Error::Size { op: "scales of a codec".into(), expected, got });
        }
        room.copy_from_slice(scales);
        self.scales.up(&self.queues)?;
        self.encode_all(shares, draw)?;
        self.integers.down(&self.queues)?;
        self.words.down(&self.queues)?;
        self.halves.down(&self.queues)?;
        self.reach()
    }

    fn codes(&mut self) -> Codes<'_> {
        Codes { integers: self.integers.host(), words: self.words.host(), halves: self.halves.host() }
    }

    fn decode(&mut self, into: &mut CudaBuf) -> Result<(), Error> {
        self.integers.up(&self.queues)?;
        self.words.up(&self.queues)?;
        self.halves.up(&self.queues)?;
        self.decode_sums(into)
    }

    fn residual(&mut self, worker: usize) -> Option<&mut CudaBuf> {
        self.residuals.get_mut(worker.checked_sub(self.workers.start)?)
    }

    fn memory(&self) -> usize {
        let codes = self.scales.bytes() + self.integers.bytes() + self.words.bytes() + self.halves.bytes();
        let kept = [&self.runs, &self.spans, &self.largest, &self.moments].into_iter().chain(&self.residuals);
        codes + kept.map(CudaBuf::bytes).sum::<usize>()
    }
}

/// Elements per run of fixed-point codes.
const RUN: usize = 4096;

/// The runs of a bucket that are encoded in one way: as fixed-point codes, or as packed codes (lanes). A run is a range
/// of consecutive elements of a tensor.
#[derive(Default)]
pub struct Runs {
    pub list: Vec<Run>,
    /// Tensor index of each run.
    pub tensors: Vec<usize>,
    /// Number of fixed-point codes, or of words with packed codes.
    pub codes: usize,
    /// The end index of the last run. The bucket must be at least this long.
    pub end: usize,
}

impl Runs {
    /// Lists the runs of fixed-point codes.
    pub fn of_integers(whole: &IntegerCodes) -> Self {
        Self::new(whole, false, RUN, 1)
    }

    /// Lists the runs of packed codes.
    pub fn of_lanes(whole: &IntegerCodes) -> Self {
        Self::new(whole, true, whole.block * whole.per_word, whole.per_word)
    }

    /// Splits tensors into runs of `run` elements. `each` elements share a code word.
    fn new(whole: &IntegerCodes, in_lanes: bool, run: usize, each: usize) -> Self {
        let mut runs = Self::default();
        for (tensor, part) in whole.parts.iter().enumerate().filter(|(_, p)| p.in_lanes == in_lanes) {
            for first in (0..part.range.len()).step_by(run) {
                runs.push(tensor, part, first..(first + run).min(part.range.len()), each);
            }
            runs.codes += part.range.len().div_ceil(each);
            runs.end = runs.end.max(part.range.end);
        }
        runs
    }

    fn push(&mut self, tensor: usize, part: &CodedTensor, of: Range<usize>, each: usize) {
        self.list.push(Run {
            from: (part.range.start + of.start) as u64,
            place: (self.codes + of.start / each) as u64,
            first: of.start as u64,
            len: of.len() as u32,
            tensor: tensor as u32,
            parameter: u32::from(part.parameter),
            in_lanes: u32::from(part.in_lanes),
        });
        self.tensors.push(tensor);
    }
}
