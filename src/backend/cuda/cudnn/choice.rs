//! Which of cuDNN's ways a convolution takes. Where bits must come out again, no clock decides: it is cuDNN's own first proposal. Else
//! the fastest, timed once for each shape on the tensors' own sizes and kept in a file for each card and version of cuDNN.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::driver::memory::CudaBuf;
use super::super::driver::{cache, library};
use super::super::settings::Precision;
use super::super::shared::Shared;
use super::candidates::{Prepared, again, candidates};
use super::way::Way;
use super::{Convolution, Device, Direction, Tensor};
use crate::backend::{Buffer, Error};

/// Ways that are timed against each other.
const MOST: usize = 12;

/// Runs of each way that are timed together, after one that is not.
const RUNS: u32 = 3;

/// The fastest ways that are known, by what they compute, the number of images included.
pub struct Fastest {
    file: Option<PathBuf>,
    known: RefCell<BTreeMap<String, Way>>,
}

impl Fastest {
    /// From the file for this card.
    pub fn load(card: &str) -> Self {
        let name: String = card.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = format!("engines-{name}-cudnn-{}.txt", library::cudnn_version());
        let file = cache::folder().map(|folder| folder.join(name));
        let known = file.as_deref().map(read).unwrap_or_default();
        Self { file, known: RefCell::new(known) }
    }

    fn get(&self, what: &str) -> Option<Way> {
        self.known.borrow().get(what).cloned()
    }

    fn note(&self, what: String, way: Way) {
        let mut known = self.known.borrow_mut();
        known.insert(what, way);
        if let Some(file) = &self.file {
            // what other processes have found meanwhile stays
            read(file).into_iter().for_each(|(what, way)| {
                known.entry(what).or_insert(way);
            });
            cache::write(file, print(&known).as_bytes());
        }
    }
}

fn read(file: &Path) -> BTreeMap<String, Way> {
    let text = cache::read(file).and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> BTreeMap<String, Way> {
    let line = |line: &str| line.split_once('\t').and_then(|(way, what)| Some((what.to_string(), Way::parse(way)?)));
    text.lines().filter_map(line).collect()
}

fn print(known: &BTreeMap<String, Way>) -> String {
    known.iter().map(|(what, way)| format!("{way}\t{what}\n")).collect()
}

/// A convolution ready to run: in the way that is in use for its shape, whatever the number of images, so that every share of a batch
/// is computed alike.
pub fn choose(shared: &Shared, what: &Convolution, direction: Direction) -> Result<Prepared, Error> {
    let (handle, settings) = (shared.cudnn()?, &shared.settings);
    let tf32 = if settings.allow_tf32 { ", tf32" } else { "" };
    let name = format!("{what}{tf32}, {direction}");
    let ready = |way: Way| again(&Device::Card(handle), what, direction, settings, way).ok();
    let fresh = || {
        let prepared = if settings.deterministic {
            candidates(&Device::Card(handle), what, direction, settings, 1)?.swap_remove(0)
        } else {
            let name = format!("{} images, {name}, {} MB", what.n, settings.workspace >> 20);
            match handle.fastest.get(&name).and_then(ready) {
                Some(prepared) => prepared,
                None => timed(shared, what, direction, name)?,
            }
        };
        Ok((prepared.way.to_string(), prepared))
    };
    shared.chosen.get(&name, what.n, |way| Way::parse(way).and_then(ready), fresh)
}

/// The fastest of the ways.
fn timed(shared: &Shared, what: &Convolution, direction: Direction, name: String) -> Result<Prepared, Error> {
    let handle = shared.cudnn()?;
    let mut ways = candidates(&Device::Card(handle), what, direction, &shared.settings, MOST)?;
    // where there is no room to try, cuDNN's own first proposal is taken, and tried again at the next start
    let place = match ways.len() {
        1 => Some(0),
        _ => fastest(shared, what, direction, &ways).ok(),
    };
    let prepared = ways.swap_remove(place.unwrap_or(0));
    if place.is_some() {
        handle.fastest.note(name, prepared.way.clone());
    }
    Ok(prepared)
}

fn fastest(shared: &Shared, what: &Convolution, direction: Direction, ways: &[Prepared]) -> Result<usize, Error> {
    let (handle, queues) = (shared.cudnn()?, &shared.queues);
    let words = |elems: usize| if what.precision == Precision::F32 { elems } else { elems.div_ceil(2) };
    let buffer = |elems: usize| CudaBuf::zeroed(queues, words(elems), "timing convolutions");
    let [x, w, y] = what.elems();
    let (x, w, y, b) = (buffer(x)?, buffer(w)?, buffer(y)?, buffer(what.y[0])?);
    let most = ways.iter().map(|w| w.workspace).max().unwrap_or(0);
    let space = CudaBuf::zeroed(queues, most.div_ceil(4), "timing convolutions")?;
    let mut tensors = vec![(Tensor::X, x.address()), (Tensor::W, w.address()), (Tensor::Y, y.address())];
    if matches!(direction, Direction::Forward { bias: true, .. }) {
        tensors.push((Tensor::Bias, b.address()));
    }
    debug_assert!(!x.is_empty());
    let mut best: Option<(Duration, usize)> = None;
    for (i, way) in ways.iter().enumerate() {
        let run = || {
            // SAFETY: all buffers are as large as the convolution's tensors and the largest work space, and live until the wait.
            unsafe { way.run(handle, &tensors, space.address(), "timing convolutions") }
        };
        if run().and_then(|()| queues.compute.wait()).is_err() {
            continue;
        }
        let start = Instant::now();
        (0..RUNS).try_for_each(|_| run())?;
        queues.compute.wait()?;
        let took = start.elapsed();
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, i));
        }
    }
    let why = "none of cuDNN's ways ran".to_string();
    best.map(|(_, i)| i).ok_or(Error::Unsupported { op: "convolution".into(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_survive_their_file() {
        let way = |text| Way::parse(text).unwrap();
        let known = BTreeMap::from([("a b".to_string(), way("3 1=62")), ("c".to_string(), way("0"))]);
        assert_eq!(parse(&print(&known)), known);
        assert!(parse("rubbish\n1\n1 x\ty\n").is_empty());
    }
}
