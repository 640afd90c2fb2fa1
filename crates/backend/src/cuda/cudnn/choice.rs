//! Which of cuDNN's algorithms a convolution takes. Where bits must be reproducible, no clock decides: it is cuDNN's first proposal. Else
//! the fastest, timed once for each shape and kept in a file for each GPU and version of cuDNN.

use std::time::Duration;

use loaders::Draws;

use super::candidates::{ConvAlgorithm, Prepared, again, candidates};
use super::convolution::{Convolution, Direction, Tensor};
use super::descriptor::Device;
use crate::Error;
use crate::Precision;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Slice;
use crate::cuda::driver::status::attempted;
use crate::cuda::driver::stream::Event;
use crate::cuda::driver::switches::switches;
use crate::cuda::record::{Recorded, Recording, record};
use crate::cuda::shared::Shared;

/// Algorithms that are timed against each other.
const MOST: usize = 12;

/// A convolution ready to run: by the algorithm that is in use for its shape, whatever the number of images, so that every share of a
/// batch is computed alike.
pub fn choose(shared: &Shared, what: &Convolution, direction: Direction) -> Result<Prepared, Error> {
    let (handle, settings) = (shared.cudnn()?, &shared.settings);
    let tf32 = if settings.allow_tf32 { ", tf32" } else { "" };
    let name = format!("{what}{tf32}, {direction}");
    let ready = |algorithm| attempted(again(&Device::Gpu(handle), what, direction, settings, algorithm));
    let fresh = || {
        let prepared = if settings.deterministic {
            candidates(&Device::Gpu(handle), what, direction, settings, 1)?.swap_remove(0)
        } else {
            let name = format!("{} images, {name}, {} MB", what.n, settings.workspace >> 20);
            match shared.fastest().get(&name).map(ready).transpose()?.flatten() {
                Some(prepared) => prepared,
                None => timed(shared, what, direction, name)?,
            }
        };
        Ok((prepared.algorithm.to_string(), prepared))
    };
    let known = |text: &str| Ok(ConvAlgorithm::parse(text).map(ready).transpose()?.flatten());
    shared.chosen.get(&name, what.n, known, fresh)
}

/// The fastest of the algorithms.
fn timed(shared: &Shared, what: &Convolution, direction: Direction, name: String) -> Result<Prepared, Error> {
    let handle = shared.cudnn()?;
    let mut found = candidates(&Device::Gpu(handle), what, direction, &shared.settings, MOST)?;
    // where there is no room to try, cuDNN's own first proposal is taken, and tried again at the next start
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

// The timing: each algorithm runs as a pass will run it, from a CUDA graph, on noise in tensors of the convolution's own sizes, between two
// events of that graph.

/// A run that takes less is timed with others behind it: events tick twice a microsecond.
const SHORT: Duration = Duration::from_micros(250);

/// Such runs that are timed together.
const TOGETHER: u32 = 8;

/// Times of each algorithm, of which the median counts.
const SAMPLES: usize = 5;

/// No further times are taken of an algorithm that has run for so long.
const PATIENCE: Duration = Duration::from_millis(20);

/// Words of noise, which repeat in a tensor.
const NOISE: usize = 1 << 16;

/// For messages.
const NAME: &str = "timing convolutions";

/// Memory of a convolution's own sizes, and the events around its runs.
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

/// The place of the fastest among these; an error where none of them runs.
pub fn fastest(shared: &Shared, what: &Convolution, direction: Direction, found: &[Prepared]) -> Result<usize, Error> {
    let most = found.iter().map(|w| w.workspace).max().unwrap_or(0);
    let trial = Trial::new(shared, what, direction, most)?;
    let mut best: Option<(Duration, usize)> = None;
    for (i, prepared) in found.iter().enumerate() {
        let took = attempted(trial.time(prepared))?;
        best = took.map(|took| (took, i)).into_iter().chain(best).min();
    }
    let why = "none of cuDNN's algorithms ran".to_string();
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

    /// Time of one run; an error where the algorithm does not run, or cannot be part of a recorded pass.
    fn time(&self, prepared: &Prepared) -> Result<Duration, Error> {
        // the library sets itself up
        self.run(prepared)?;
        self.shared.stream().wait()?;
        let one = self.recorded(prepared, 1)?;
        let first = self.sample(prepared, 1, one.as_ref())?;
        let (runs, graph) = if first < SHORT { (TOGETHER, self.recorded(prepared, TOGETHER)?) } else { (1, one) };
        let mut times = Vec::new();
        while times.is_empty() || times.len() < SAMPLES && times.iter().sum::<Duration>() < PATIENCE {
            times.push(self.sample(prepared, runs, graph.as_ref())?);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2] / runs)
    }

    fn run(&self, prepared: &Prepared) -> Result<(), Error> {
        prepared.run(self.shared.cudnn()?, &self.tensors(), self.space.slice(), NAME)
    }

    /// So many runs between the two events; none where nothing is to be recorded.
    fn recorded(&self, prepared: &Prepared, runs: u32) -> Result<Option<Recorded>, Error> {
        if switches().no_graph {
            return Ok(None);
        }
        match record(self.shared, &mut || self.enqueue(prepared, runs, true))? {
            Recording::Done(recorded) => Ok(Some(recorded)),
            Recording::Refused(why) => Err(Error::Unsupported { op: NAME.into(), why }),
        }
    }

    fn enqueue(&self, prepared: &Prepared, runs: u32, recording: bool) -> Result<(), Error> {
        let stream = self.shared.stream();
        self.begin.record(stream, recording)?;
        (0..runs).try_for_each(|_| self.run(prepared))?;
        self.end.record(stream, recording)
    }

    /// The time between the two events.
    fn sample(&self, prepared: &Prepared, runs: u32, graph: Option<&Recorded>) -> Result<Duration, Error> {
        graph.map_or_else(|| self.enqueue(prepared, runs, false), |graph| graph.replay(self.shared))?;
        self.shared.stream().wait()?;
        self.begin.time_until(&self.end)
    }
}

/// A tensor of noise in [-1, 1), the `k`-th.
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

/// Two values of 16 bits in a word.
fn pair([low, high]: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(high) << 16 | u32::from(low))
}
