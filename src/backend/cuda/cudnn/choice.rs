//! Which of cuDNN's ways is the fastest: timed once for each shape on the tensors' own sizes, kept in a file for each card and version
//! of cuDNN. Where bits must come out again, no clock decides: then it is cuDNN's own first proposal.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::memory::{CudaBuf, Queues};
use super::super::settings::{Precision, Settings};
use super::super::{cache, library};
use super::candidates::{Prepared, candidates};
use super::{Convolution, Device, Direction, Handle, Tensor};
use crate::backend::{Buffer, Error};
use std::sync::Arc;

/// Runs of each way that are timed together, after one that is not.
const RUNS: u32 = 3;

/// The fastest ways that are known: for each shape the place among the candidates, and the engine's number.
pub struct Choices {
    file: Option<PathBuf>,
    known: BTreeMap<String, (usize, i64)>,
}

impl Choices {
    /// From the file for this card.
    pub fn load(card: &str) -> Self {
        let name: String = card.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = format!("convolutions-{name}-cudnn-{}.txt", library::cudnn_version());
        let file = cache::folder().map(|folder| folder.join(name));
        let text = file.as_deref().and_then(cache::read).and_then(|b| String::from_utf8(b).ok()).unwrap_or_default();
        Self { file, known: parse(&text) }
    }

    fn note(&mut self, key: String, place: usize, engine: i64) {
        self.known.insert(key, (place, engine));
        if let Some(file) = &self.file {
            // what other ranks have found meanwhile stays
            let others = cache::read(file).and_then(|b| String::from_utf8(b).ok()).map(|t| parse(&t));
            for (key, choice) in others.unwrap_or_default() {
                self.known.entry(key).or_insert(choice);
            }
            cache::write(file, print(&self.known).as_bytes());
        }
    }
}

fn parse(text: &str) -> BTreeMap<String, (usize, i64)> {
    let line = |line: &str| {
        let mut parts = line.split('\t');
        let (place, engine) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((parts.next()?.to_string(), (place, engine)))
    };
    text.lines().filter_map(line).collect()
}

fn print(known: &BTreeMap<String, (usize, i64)>) -> String {
    known.iter().map(|(key, (place, engine))| format!("{place}\t{engine}\t{key}\n")).collect()
}

/// The fastest way to run a convolution, as far as the settings let it be chosen.
pub fn choose(
    handle: &Handle,
    queues: &Arc<Queues>,
    what: &Convolution,
    direction: Direction,
    settings: &Settings,
) -> Result<Prepared, Error> {
    let mut ways = candidates(&Device::Card(handle), what, direction, settings)?;
    if settings.deterministic || ways.len() == 1 {
        return Ok(ways.swap_remove(0));
    }
    let key = format!("{what:?} {direction:?} tf32 {} space {}", settings.allow_tf32, settings.workspace);
    let known = handle.choices.borrow().known.get(&key).copied();
    if let Some((place, engine)) = known
        && ways.get(place).is_some_and(|w| w.engine == engine)
    {
        return Ok(ways.swap_remove(place));
    }
    // where there is no room to try, cuDNN's own first proposal is taken, and tried again at the next start
    let Ok(place) = fastest(handle, queues, what, direction, &ways) else { return Ok(ways.swap_remove(0)) };
    handle.choices.borrow_mut().note(key, place, ways[place].engine);
    Ok(ways.swap_remove(place))
}

fn fastest(
    handle: &Handle,
    queues: &Arc<Queues>,
    what: &Convolution,
    direction: Direction,
    ways: &[Prepared],
) -> Result<usize, Error> {
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
    fn choices_survive_their_file() {
        let known = BTreeMap::from([("a b".to_string(), (3, 62)), ("c".to_string(), (0, -1))]);
        assert_eq!(parse(&print(&known)), known);
        assert!(parse("rubbish\n1\tx\ty\n").is_empty());
    }
}
