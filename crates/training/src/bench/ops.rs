//! Times every implementation of a network's convolutions and linear layers, separately for each pass. `trireme bench
//! ops --table` writes the fastest implementations to a table, from which a device chooses. See [`Implementations`].

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use backend::{Backend, Cores, Error as BackendError, Implementation, Implementations, TensorDesc};
use base::screen;
use loaders::overwrite::{self, Content};
use loaders::safe_create::NewFile;
use net::{Conv, Op, Shape};

use super::operation::{Case, Convolution, Parameters, Pass, Tensors, cases};
use crate::device::{Device, DeviceSettings, F32_SETTINGS, RequestedThreads, Resources};
use crate::error::Error;

/// Minimum number of rounds to measure.
const MIN_ROUNDS: usize = 3;

/// An implementation counts as faster only if its time is below this fraction of the time of the implementation in use.
const FASTER_FACTOR: f64 = 0.97;

/// The kind of file that `--table` may overwrite: a table, or rows written by hand. This checks only the beginning of
/// the file. `run` reads all lines before it measures anything.
const TABLE: Content = Content { name: "a table that `trireme bench ops` wrote", begins: begins_a_table };

/// Lower limit of a batch size that is reduced because the operation is large.
const MIN_IMAGES: usize = 4;

pub struct OpsRequest {
    pub models: Vec<String>,
    /// Convolutions to measure in addition to the networks.
    pub convolutions: Vec<Convolution>,
    pub batches: Vec<usize>,
    /// Compute threads. `None` uses all cores.
    pub threads: Option<usize>,
    /// How long to measure each operation at each batch size, after the warm-up.
    pub seconds: f64,
    /// Limit on the multiplications and additions of a pass, in 10^9. Large operations are measured on fewer images.
    pub most_gflop: f64,
    /// The table to update with the new rows.
    pub table: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct ImplementationTimes {
    /// Name of the implementation in tables. Empty if there is only one implementation.
    pub name: &'static str,
    /// The primitives that the implementation uses.
    pub by: String,
    /// Median milliseconds of each pass. If the operation reads the images, there is no pass for the input's gradient.
    pub ms: Vec<(Pass, f64)>,
}

impl ImplementationTimes {
    /// Returns the total milliseconds of all passes.
    pub fn total(&self) -> f64 {
        self.ms.iter().map(|(_, ms)| ms).sum()
    }
}

/// The times of an operation at a batch size.
#[derive(Clone, Debug)]
pub struct OperationTimes {
    /// Name of the first layer that uses this operation.
    pub layer: String,
    /// Description of the operation's sizes.
    pub op: String,
    pub batch: usize,
    /// Multiplications and additions of a pass, in 10^9.
    pub gflop: f64,
    /// All implementations, starting with the one that the device uses without the new measurement.
    pub timed: Vec<ImplementationTimes>,
}

/// The device and threads of a measurement.
#[derive(Clone, Debug)]
pub struct MeasuredOn {
    pub backend: String,
    pub threads: usize,
    /// Peak rate in 10^9 multiplications and additions per second, if the device can measure it.
    pub peak_gflops: Option<f64>,
}

/// Measures all operations, calls `show` after each, and writes the fastest implementations to the requested table.
pub fn run<D: Device>(
    device: &D,
    request: &OpsRequest,
    show: impl FnMut(&MeasuredOn, &OperationTimes) -> Result<(), Error>,
) -> Result<(), Error> {
    let requested = RequestedThreads { compute: request.threads, loader: None };
    let threads = Resources::of_process::<D>(requested).compute;
    let settings = DeviceSettings { threads, ..F32_SETTINGS };
    let backend = device.open(&settings)?;
    device.notes(settings.precision, settings.tf32).iter().for_each(|note| screen::say(note));
    let none = || Error::Usage(format!("{}: this device has only one implementation of each operation", D::NAME));
    let device = backend.implementations().ok_or_else(none)?;
    let on = MeasuredOn { backend: backend.describe(), threads, peak_gflops: backend.cores().map(peak_gflops) };
    let bench = Bench { backend: &backend, device, block: block(&backend)?, request };
    let Some(path) = &request.table else { return bench.all(&on, show).map(drop) };
    overwrite::check(path, &TABLE, &[]).map_err(Error::Usage)?;
    let (before, taken) = (read(path)?, format!("{}, {}", super::processor(), on.backend));
    let text = |rows: &[String]| {
        let text = device.table(&before, &taken, &request.batches, rows);
        text.map_err(|why| Error::Failed(format!("{}: {why}; correct this line, or give another file", path.display())))
    };
    // this reports a malformed row in the existing table before the measurement
    text(&[])?;
    let failed = Error::file("write", path);
    // creating the file early reports a read-only directory before the measurement, which takes minutes
    let mut file = NewFile::beside(path).map_err(failed)?;
    let text = text(&bench.all(&on, show)?)?;
    let written = file.file().and_then(|file| file.write_all(text.as_bytes()));
    written.and_then(|()| file.publish()).map(drop).map_err(failed)
}

/// Returns true if a file with this beginning may be a table: a text with only comment lines and lines that begin with
/// a digit.
fn begins_a_table(head: &[u8]) -> bool {
    // `head` may end in the middle of a character
    let Some(text) = head.utf8_chunks().next().map(|chunk| chunk.valid()) else { return false };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.all(|line| line.starts_with('#') || line.trim_start().starts_with(|first: char| first.is_ascii_digit()))
}

/// Measures the peak rate repeatedly for at least 0.2 s, because idle cores take a while to reach their full speed.
/// Returns the highest rate in 10^9 operations per second.
fn peak_gflops(cores: &dyn Cores) -> f64 {
    let (begin, mut best) = (Instant::now(), 0f64);
    while begin.elapsed().as_secs_f64() < 0.2 {
        best = best.max(cores.peak() / 1e9);
    }
    best
}

/// Reads the text of a table. Returns an empty text if the file does not exist yet.
fn read(path: &Path) -> Result<String, Error> {
    match loaders::regular::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(Error::file("read", path)),
    }
}

/// Returns the channel block size in the layout of convolution outputs.
fn block<B: Backend>(backend: &B) -> Result<usize, BackendError> {
    let case = Case { op: Op::Conv(Conv::new(16, 1)), input: Shape::image(1, 1, 1), image: true };
    Ok(backend.plan(&case.request(&[TensorDesc::plain(1, case.input)]))?.output().block)
}

/// Values that all measurements share.
struct Bench<'a, B: Backend> {
    backend: &'a B,
    device: &'a dyn Implementations<B>,
    block: usize,
    request: &'a OpsRequest,
}

/// An implementation with its parameters and the times so far.
struct Run<B: Backend> {
    one: Implementation<B>,
    parameters: Parameters<B>,
    /// Milliseconds of each round, for each pass.
    times: Vec<(Pass, Vec<f64>)>,
}

impl<B: Backend> Bench<'_, B> {
    /// Measures all operations and returns the rows of the table.
    fn all(
        &self,
        on: &MeasuredOn,
        mut show: impl FnMut(&MeasuredOn, &OperationTimes) -> Result<(), Error>,
    ) -> Result<Vec<String>, Error> {
        let mut rows = Vec::new();
        for (layer, case) in cases(&self.request.models, &self.request.convolutions)? {
            if self.request.table.is_some() && !self.has_row(&case)? {
                continue;
            }
            let mut all: Vec<OperationTimes> = Vec::new();
            for &batch in &self.request.batches {
                let n = self.images(&case, batch);
                let measured = match all.last() {
                    // the operation is so large that this batch size was reduced to the same number of images as the
                    // previous one
                    Some(last) if last.batch == n => last.clone(),
                    _ => self.measure(&layer, &case, n)?,
                };
                show(on, &measured)?;
                all.push(measured);
            }
            let x = self.layout(&case, 1);
            let row = fastest(&all).and_then(|(name, ratios)| self.device.row(&case.request(&[x]), name, &ratios));
            rows.extend(row);
        }
        Ok(rows)
    }

    /// Returns true if the table has rows for this kind of operation.
    fn has_row(&self, case: &Case) -> Result<bool, BackendError> {
        let x = [self.layout(case, 1)];
        let request = case.request(&x);
        let all = self.device.all(&request)?;
        Ok(all.iter().any(|one| self.device.row(&request, one.name, &[]).is_some()))
    }

    /// Returns `batch`, reduced to respect the limit on multiplications and additions, but not below [`MIN_IMAGES`].
    fn images(&self, case: &Case, batch: usize) -> usize {
        let most = self.request.most_gflop * 1e9 / (2 * case.macs()) as f64;
        batch.min((most as usize).max(MIN_IMAGES))
    }

    fn layout(&self, case: &Case, n: usize) -> TensorDesc {
        let vector = matches!(case.op, Op::Linear(_));
        TensorDesc { n, shape: case.input, block: if case.image || vector { 1 } else { self.block }, bf16: false }
    }

    /// Times all implementations. Each round runs every implementation once, and the first round is discarded.
    fn measure(&self, layer: &str, case: &Case, n: usize) -> Result<OperationTimes, Error> {
        let x = self.layout(case, n);
        let all = self.device.all(&case.request(&[x]))?;
        let mut work = Tensors::new(self.backend, &x, !case.image)?;
        let mut runs: Vec<Run<B>> = Vec::new();
        for one in all {
            let parameters = Parameters::new(self.backend, one.plan.as_ref())?;
            let passes = Pass::ALL.into_iter().filter(|pass| *pass != Pass::Input || !case.image);
            runs.push(Run { one, parameters, times: passes.map(|pass| (pass, Vec::new())).collect() });
        }
        let (mut round, mut begin) = (0, Instant::now());
        while round <= MIN_ROUNDS || begin.elapsed().as_secs_f64() < self.request.seconds {
            for Run { one, parameters, times } in &mut runs {
                for (pass, times) in times {
                    times.push(work.time(one.plan.as_mut(), parameters, *pass)?);
                }
            }
            if round == 0 {
                // the first round is the warm-up
                runs.iter_mut().flat_map(|run| &mut run.times).for_each(|(_, times)| times.clear());
                begin = Instant::now();
            }
            round += 1;
        }
        let timed = runs.into_iter().map(|Run { one, times, .. }| {
            let ms = times.into_iter().map(|(pass, times)| (pass, median(times))).collect();
            ImplementationTimes { name: one.name, by: one.plan.implementation(), ms }
        });
        let gflop = (2 * case.macs()) as f64 * n as f64 / 1e9;
        Ok(OperationTimes { layer: layer.into(), op: case.describe(), batch: n, gflop, timed: timed.collect() })
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the implementation whose times have the smallest product over all batch sizes. Also returns, for each batch
/// size, this implementation's time divided by the time of the fastest other one. The implementation in use is kept
/// unless another one is faster by [`FASTER_FACTOR`] on average. Returns `None` if there is only one implementation.
fn fastest(all: &[OperationTimes]) -> Option<(&'static str, Vec<f64>)> {
    let first = all.first().filter(|measured| measured.timed.len() > 1)?;
    let total = |measured: &OperationTimes, name: &str| {
        measured.timed.iter().find(|timed| timed.name == name).map_or(f64::INFINITY, ImplementationTimes::total)
    };
    let product = |name: &str| all.iter().map(|measured| total(measured, name).ln()).sum::<f64>();
    let mut names: Vec<&'static str> = first.timed.iter().map(|timed| timed.name).collect();
    let margin = |name: &str| if name == first.timed[0].name { all.len() as f64 * FASTER_FACTOR.ln() } else { 0.0 };
    names.sort_by(|a, b| (product(a) + margin(a)).total_cmp(&(product(b) + margin(b))));
    let ratios = all.iter().map(|measured| {
        let others = names[1..].iter().map(|name| total(measured, name));
        total(measured, names[0]) / others.fold(f64::INFINITY, f64::min)
    });
    Some((names[0], ratios.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(batch: usize, times: &[(&'static str, f64)]) -> OperationTimes {
        let timed = |&(name, ms): &(&'static str, f64)| ImplementationTimes {
            name,
            by: name.into(),
            ms: vec![(Pass::Forward, ms / 4.0), (Pass::Weights, ms * 3.0 / 4.0)],
        };
        let timed = times.iter().map(timed).collect();
        OperationTimes { layer: "conv".into(), op: "conv".into(), batch, gflop: 1.0, timed }
    }

    #[test]
    fn the_fastest_has_the_least_product_of_times() {
        let few = measured(16, &[("a", 2.0), ("b", 1.0), ("c", 4.0)]);
        let many = measured(128, &[("a", 6.0), ("b", 16.0), ("c", 40.0)]);
        // products: a 12, b 16, c 160
        assert_eq!(fastest(&[few.clone(), many]), Some(("a", vec![2.0, 0.375])));
        assert_eq!(fastest(&[few]), Some(("b", vec![0.5])));
        // the current implementation is kept if another one is faster by less than the scatter
        let near = |b: f64| fastest(&[measured(16, &[("a", 1.0), ("b", b)]), measured(128, &[("a", 1.0), ("b", b)])]);
        assert_eq!(near(0.98), Some(("a", vec![1.0 / 0.98; 2])));
        assert_eq!(near(0.96), Some(("b", vec![0.96; 2])));
        assert_eq!(fastest(&[measured(16, &[("a", 2.0)])]), None);
    }
}
