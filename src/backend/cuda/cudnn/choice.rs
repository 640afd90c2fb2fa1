//! Which of cuDNN's algorithms a convolution takes. Where bits must be reproducible, no clock decides: it is cuDNN's first proposal. Else
//! the fastest, timed once for each shape on the tensors' own sizes and kept in a file for each GPU and version of cuDNN.

use std::time::{Duration, Instant};

use super::algorithm::ConvAlgorithm;
use super::candidates::{Prepared, again, candidates};
use super::convolution::{Convolution, Direction, Tensor};
use super::handle::Device;
use crate::backend::Error;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::Slice;
use crate::backend::cuda::driver::status::attempted;
use crate::backend::cuda::shared::Shared;

/// Algorithms that are timed against each other.
const MOST: usize = 12;

/// Runs of each algorithm that are timed together, after one that is not.
const RUNS: u32 = 3;

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
            match handle.fastest.get(&name).map(ready).transpose()?.flatten() {
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
        handle.fastest.note(name, prepared.algorithm.clone());
    }
    Ok(prepared)
}

/// Memory of a convolution's own sizes, to time it on.
struct Trial {
    x: CudaBuf,
    w: CudaBuf,
    y: CudaBuf,
    bias: CudaBuf,
    space: CudaBuf,
}

impl Trial {
    fn new(shared: &Shared, what: &Convolution, workspace: usize) -> Result<Self, Error> {
        let words = |words: usize| CudaBuf::zeroed(&shared.queues, words, "timing convolutions");
        let buffer = |elems: usize| words(shared.words(elems));
        let [x, w, y] = what.elems();
        let (x, w, y, bias) = (buffer(x)?, buffer(w)?, buffer(y)?, buffer(what.y[0])?);
        Ok(Self { x, w, y, bias, space: words(workspace.div_ceil(4))? })
    }

    fn tensors(&self, direction: Direction) -> Vec<(Tensor, Slice<'_, u8>)> {
        let mut tensors = vec![(Tensor::X, self.x.slice()), (Tensor::W, self.w.slice()), (Tensor::Y, self.y.slice())];
        if matches!(direction, Direction::Forward { bias: true, .. }) {
            tensors.push((Tensor::Bias, self.bias.slice()));
        }
        tensors
    }
}

fn fastest(shared: &Shared, what: &Convolution, direction: Direction, found: &[Prepared]) -> Result<usize, Error> {
    let (handle, stream) = (shared.cudnn()?, shared.stream());
    let most = found.iter().map(|w| w.workspace).max().unwrap_or(0);
    let trial = Trial::new(shared, what, most)?;
    let tensors = trial.tensors(direction);
    let mut best: Option<(Duration, usize)> = None;
    for (i, prepared) in found.iter().enumerate() {
        let run = || prepared.run(handle, &tensors, trial.space.slice(), "timing convolutions");
        if attempted(run().and_then(|()| stream.wait()))?.is_none() {
            continue;
        }
        let start = Instant::now();
        (0..RUNS).try_for_each(|_| run())?;
        stream.wait()?;
        let took = start.elapsed();
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, i));
        }
    }
    let why = "none of cuDNN's algorithms ran".to_string();
    best.map(|(_, i)| i).ok_or(Error::Unsupported { op: "convolution".into(), why })
}
