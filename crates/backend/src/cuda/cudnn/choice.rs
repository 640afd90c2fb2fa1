//! Which of cuDNN's algorithms a convolution takes. Where bits must be reproducible, no clock decides: it is cuDNN's first proposal. Else
//! the fastest, timed once for each shape and kept in a file for each GPU and version of cuDNN.

use super::algorithm::ConvAlgorithm;
use super::candidates::{Prepared, again, candidates};
use super::convolution::{Convolution, Direction};
use super::handle::Device;
use super::trial::fastest;
use crate::Error;
use crate::cuda::driver::status::attempted;
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
