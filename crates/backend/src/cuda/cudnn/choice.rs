//! Chooses cuDNN's algorithm for a convolution. If results must be reproducible, timing must not decide, so the choice
//! is cuDNN's first proposal. Otherwise it is the fastest algorithm. Each shape is timed once and the result is stored
//! in a file per GPU and cuDNN version.

use std::time::Duration;

use loaders::Draws;

use super::candidates::{ConvAlgorithm, PreparedAlgorithm, candidates, prepare_known};
use super::convolution::{Convolution, Direction, Tensor};
use super::descriptor::Device;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Slice;
use crate::cuda::driver::status::attempted;
use crate::cuda::driver::stream::Event;
use crate::cuda::driver::switches::switches;
use crate::cuda::record::{Recorded, Recording, record};
use crate::cuda::settings::WORKSPACE;
use crate::cuda::shared::Shared;
use crate::{Error, Precision};

/// Maximum number of algorithms to time.
const MAX_CANDIDATES: usize = 12;

/// Prepares a convolution with the algorithm in use for its shape. All batch sizes for which that algorithm runs share
/// it, so that all parts of a batch are computed with the same algorithm.
pub fn choose(shared: &Shared, what: &Convolution, direction: Direction) -> Result<PreparedAlgorithm, Error> {
    let (handle, settings) = (shared.cudnn()?, &shared.settings);
    let tf32 = if settings.allow_tf32 { ", tf32" } else { "" };
    let name = format!("{what}{tf32}, {direction}");
    let ready = |algorithm| attempted(prepare_known(&Device::Gpu(handle), what, direction, settings, algorithm));
    let fresh = || {
        let prepared = if settings.deterministic {
            candidates(&Device::Gpu(handle), what, direction, settings, 1)?.swap_remove(0)
        } else {
            let name = format!("{} images, {name}, {} MB", what.n, WORKSPACE >> 20);
            match shared.fastest().get(&name).map(ready).transpose()?.flatten() {
                Some(prepared) => prepared,
                None => choose_by_timing(shared, what, direction, name)?,
            }
        };
        Ok((prepared.algorithm.to_string(), prepared))
    };
    let known = |text: &str| Ok(ConvAlgorithm::parse(text).map(ready).transpose()?.flatten());
    shared.chosen.get(&name, what.n, known, fresh)
}

/// Times the candidates and returns the fastest.
fn choose_by_timing(
    shared: &Shared,
    what: &Convolution,
    direction: Direction,
    name: String,
) -> Result<PreparedAlgorithm, Error> {
    let handle = shared.cudnn()?;
    let mut found = candidates(&Device::Gpu(handle), what, direction, &shared.settings, MAX_CANDIDATES)?;
    // if there is no memory for timing, use cuDNN's first proposal for now, and time again at the next start
    let place = match found.len() {
        1 => Some(0),
        _ => attempted(fastest(shared, what, direction, &found))?,
    };
    let prepared = found.swap_remove(place.unwrap_or(0));
    if place.is_some() {
        shared.fastest().note(name, prepared.algorithm.clone());
    }
    Ok(prepared)
}

// Timing. Each algorithm runs as in a training pass: from a CUDA graph, on tensors of the convolution's sizes filled
// with noise, between two events of the graph.

/// Algorithms faster than this are run `TOGETHER` times per measurement, because the event clock has a resolution of
/// about 0.5 µs.
const SHORT: Duration = Duration::from_micros(250);

/// Runs per measurement for fast algorithms.
const TOGETHER: u32 = 8;

/// Measurements per algorithm. Their median is the result.
const SAMPLES: usize = 5;

/// Total measured time after which no further measurements of an algorithm are made.
const PATIENCE: Duration = Duration::from_millis(20);

/// Number of random 4-byte words that are generated for a tensor. Larger tensors repeat them.
const NOISE: usize = 1 << 16;

const NAME: &str = "timing convolutions";

/// Buffers of the convolution's sizes, and the events before and after its runs.
struct Trial<'a> {
    shared: &'a Shared,
    direction: Direction,
    x: CudaBuf,
    w: CudaBuf,
    y: CudaBuf,
    bias: CudaBuf,
    space: CudaBuf,
    begin: Event,
    end: Event,
}

/// Returns the fastest algorithm's index, or an error if no algorithm runs.
pub fn fastest(
    shared: &Shared,
    what: &Convolution,
    direction: Direction,
    found: &[PreparedAlgorithm],
) -> Result<usize, Error> {
    let most = found.iter().map(|w| w.workspace).max().unwrap_or(0);
    let trial = Trial::new(shared, what, direction, most)?;
    let mut best: Option<(Duration, usize)> = None;
    for (i, prepared) in found.iter().enumerate() {
        let took = attempted(trial.time(prepared))?;
        best = took.map(|took| (took, i)).into_iter().chain(best).min();
    }
    let why = "no algorithm of cuDNN ran".to_string();
    best.map(|(_, i)| i).ok_or(Error::Unsupported { op: "convolution".into(), why })
}

impl<'a> Trial<'a> {
    fn new(shared: &'a Shared, what: &Convolution, direction: Direction, workspace: usize) -> Result<Self, Error> {
        let noise = |k: u64, elems: usize| noise(shared, k, elems);
        let [x, w, y] = what.elems();
        let (x, w, y, bias) = (noise(0, x)?, noise(1, w)?, noise(2, y)?, noise(3, what.y[0])?);
        let space = CudaBuf::unset(&shared.queues, workspace.div_ceil(4), NAME)?;
        let event = || Event::timed(shared.context());
        Ok(Self { shared, direction, x, w, y, bias, space, begin: event()?, end: event()? })
    }

    fn tensors(&self) -> Vec<(Tensor, Slice<'_, u8>)> {
        let mut tensors = vec![(Tensor::X, self.x.slice()), (Tensor::W, self.w.slice()), (Tensor::Y, self.y.slice())];
        if matches!(self.direction, Direction::Forward { bias: true, .. }) {
            tensors.push((Tensor::Bias, self.bias.slice()));
        }
        tensors
    }

    /// Returns the time per run. Returns an error if the algorithm does not run or cannot be captured in a graph.
    fn time(&self, prepared: &PreparedAlgorithm) -> Result<Duration, Error> {
        // the first run initialises the library
        self.run(prepared)?;
        self.shared.stream().wait()?;
        let one = self.capture(prepared, 1)?;
        let first = self.sample(prepared, 1, one.as_ref())?;
        let (runs, graph) = if first < SHORT { (TOGETHER, self.capture(prepared, TOGETHER)?) } else { (1, one) };
        let mut times = Vec::new();
        while times.is_empty() || times.len() < SAMPLES && times.iter().sum::<Duration>() < PATIENCE {
            times.push(self.sample(prepared, runs, graph.as_ref())?);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2] / runs)
    }

    fn run(&self, prepared: &PreparedAlgorithm) -> Result<(), Error> {
        prepared.run(self.shared.cudnn()?, &self.tensors(), self.space.slice(), NAME)
    }

    /// Captures `runs` runs between the two events. Returns `None` if graphs are switched off.
    fn capture(&self, prepared: &PreparedAlgorithm, runs: u32) -> Result<Option<Recorded>, Error> {
        if switches().no_graph {
            return Ok(None);
        }
        match record(self.shared, &mut || self.enqueue(prepared, runs, true))? {
            Recording::Done(recorded) => Ok(Some(recorded)),
            Recording::Refused(why) => Err(Error::Unsupported { op: NAME.into(), why }),
        }
    }

    fn enqueue(&self, prepared: &PreparedAlgorithm, runs: u32, recording: bool) -> Result<(), Error> {
        let stream = self.shared.stream();
        self.begin.record(stream, recording)?;
        (0..runs).try_for_each(|_| self.run(prepared))?;
        self.end.record(stream, recording)
    }

    fn sample(&self, prepared: &PreparedAlgorithm, runs: u32, graph: Option<&Recorded>) -> Result<Duration, Error> {
        graph.map_or_else(|| self.enqueue(prepared, runs, false), |graph| graph.replay(self.shared))?;
        self.shared.stream().wait()?;
        self.begin.time_until(&self.end)
    }
}

/// Creates a tensor of noise in [-1, 1). `k` selects the random stream.
fn noise(shared: &Shared, k: u64, elems: usize) -> Result<CudaBuf, Error> {
    let buffer = CudaBuf::unset(&shared.queues, shared.words(elems), NAME)?;
    let first = NOISE.min(shared.words(elems));
    let mut draws = Draws::new(0, k, 0, 0);
    let mut draw = || 2.0 * draws.unit() - 1.0;
    let mut host = shared.pinned(first, NAME)?;
    host.as_mut_slice().fill_with(|| match shared.settings.precision {
        Precision::F32 => draw(),
        Precision::Bf16 => pair([draw(), draw()].map(|v| half::bf16::from_f32(v).to_bits())),
        Precision::F16 => pair([draw(), draw()].map(|v| half::f16::from_f32(v).to_bits())),
    });
    shared.start()?;
    host.send(buffer.slice().range(0, first)?, shared.stream())?;
    buffer.repeat_first(first)?;
    Ok(buffer)
}

/// Packs two 16-bit values into a word.
fn pair([low, high]: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(high) << 16 | u32::from(low))
}
