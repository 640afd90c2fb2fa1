//! Kinds of devices, and which of them a run takes: the one place that names concrete backends. Everything else is written for
//! any [`Kind`].

use std::path::Path;
use std::time::Instant;

use super::gpus::Card;
use super::prepare::Request;
use super::scoring::{self, Predict, Scored};
use super::session::Session;
use super::{Error, bench, follow, start};
use crate::backend::cpu::Cpu;
use crate::backend::{self, Backend};
use crate::comm::Comm;

/// What was asked for with `--device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// A GPU if there is one that can be used, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// What a rank opens its device with.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// Compute threads.
    pub threads: usize,
    /// This rank's number among those of its node, which picks the card.
    pub node_rank: usize,
    /// Number format of the arithmetic, as recipes name it.
    pub precision: &'a str,
}

/// A kind of device, and how a rank opens its own.
pub trait Kind {
    /// How it computes.
    type Backend: Backend;

    /// As `--device` and the log name it.
    const NAME: &'static str;

    /// What to do where ranks have planned different memory layouts.
    const LAYOUT_CURE: &'static str;

    /// Compute threads of a rank with so many cores, unless it was asked for others.
    fn threads(&self, cores: usize) -> usize;

    /// Opens the device of this rank.
    fn open(&self, seat: &Seat<'_>) -> Result<Self::Backend, backend::Error>;

    /// The card behind an open device, where ranks could share one by mistake.
    fn card(&self, _backend: &Self::Backend) -> Option<Card> {
        None
    }
}

/// The processors of this machine.
pub struct OnCpu;

impl Kind for OnCpu {
    type Backend = Cpu;
    const NAME: &'static str = "cpu";
    const LAYOUT_CURE: &'static str =
        "the ranks' processors differ; set ONEDNN_MAX_CPU_ISA=AVX2 on all, or use nodes of one kind";

    fn threads(&self, cores: usize) -> usize {
        cores
    }

    fn open(&self, seat: &Seat<'_>) -> Result<Cpu, backend::Error> {
        Cpu::new(seat.threads)
    }
}

/// What `--device cuda` meets in this build.
fn no_cuda() -> Error {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/cuda/lib64"];
    let driver = folders.map(|dir| format!("{dir}/libcuda.so.1")).into_iter().find(|p| Path::new(p).exists());
    let driver = match driver {
        Some(path) => format!("though this machine has the driver's {path}"),
        None => format!("and the NVIDIA driver's libcuda.so.1 is not in {}", folders.join(", ")),
    };
    Error::Failed(format!("--device cuda: this build of trireme has no CUDA backend, {driver}; use --device cpu"))
}

/// Ends all ranks where this one cannot have what was asked for: with its own words where it is so for all, else with the names
/// of the ranks that differ.
fn refused<T>(error: Error) -> Result<T, Error> {
    let session = Session::join(Comm::launch())?;
    let together = || {
        session.same_program()?;
        session.same_device("none")?;
        session.agree(Err(error))
    };
    let result = together();
    session.conclude(result)
}

/// Does `$work` with the kind of device that was asked for as `$kind`.
macro_rules! on {
    ($wanted:expr, $kind:ident => $work:expr) => {
        match $wanted {
            Wanted::Cuda => refused(no_cuda()),
            Wanted::Auto | Wanted::Cpu => {
                let $kind = &OnCpu;
                $work
            }
        }
    };
}

/// Trains as requested; `started` is when the process began. A dry run gives the text to print on rank 0.
pub fn train(request: &Request, started: Instant) -> Result<Option<String>, Error> {
    on!(request.device, kind => start::run(kind, request, started))
}

/// Scores a split over all ranks.
pub fn score(request: &scoring::Request) -> Result<Scored, Error> {
    on!(request.device, kind => scoring::score(kind, request))
}

/// Scores the files of a run as they appear, or with `once` the newest; `show` gets each score on rank 0.
pub fn follow(
    request: &scoring::Request,
    once: bool,
    show: impl FnMut(&Path, &Scored) -> Result<(), Error>,
) -> Result<(), Error> {
    on!(request.device, kind => follow::follow(kind, request, once, show))
}

/// A model file ready to name pictures; `ema`: with the averaged weights.
pub fn predictor(wanted: Wanted, file: &Path, ema: bool) -> Result<Box<dyn Predict>, Error> {
    on!(wanted, kind => Ok(Box::new(scoring::Predictor::open(kind, file, ema)?)))
}

/// Forward, backward and update on one synthetic batch, again and again.
pub fn bench_step(request: &bench::StepRequest, started: Instant) -> Result<bench::StepResult, Error> {
    on!(request.device, kind => bench::step(kind, request, started))
}

/// How steps scale; collective. `None` on ranks other than 0.
pub fn bench_scale(request: &bench::scale::Scale) -> Result<Option<bench::scale::Measured>, Error> {
    on!(request.device, kind => bench::scale::run(kind, request))
}
