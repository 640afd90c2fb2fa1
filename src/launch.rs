//! Kinds of devices, and which of them a run takes: the one place that names concrete backends. Everything else is written for
//! any [`Kind`].

use std::path::Path;
use std::time::Instant;

use crate::backend::cpu::Cpu;
use crate::backend::cuda::{self, Cuda, Settings};
use crate::backend::{self, Backend, Precision};
use crate::bench;
use crate::comm::Comm;
use crate::error::Error;
use crate::eval::follow;
use crate::eval::scoring::{self, Predict, Scored};
use crate::train::agree::gpus;
use crate::train::agree::gpus::Card;
use crate::train::agree::session::Session;
use crate::train::plan::prepare::Request;
use crate::train::reduce::path;
use crate::train::start;

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
pub struct Seat {
    /// Compute threads.
    pub threads: usize,
    /// This rank's number among those of its node, which picks the card.
    pub node_rank: usize,
    /// Number format of the arithmetic.
    pub precision: Precision,
    /// Whether products of f32 may be rounded to tf32.
    pub tf32: bool,
    /// Only algorithms that give the same bits again.
    pub deterministic: bool,
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
    fn open(&self, seat: &Seat) -> Result<Self::Backend, backend::Error>;

    /// What is to be said of the choice.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The card behind an open device, where ranks could share one by mistake.
    fn card(&self, _backend: &Self::Backend) -> Option<Card> {
        None
    }
}

/// The processors of this machine.
pub struct OnCpu {
    /// Why no GPU was taken, where there is one.
    note: Option<String>,
}

/// NVIDIA's GPUs.
pub struct OnCuda;

impl Kind for OnCpu {
    type Backend = Cpu;
    const NAME: &'static str = "cpu";
    const LAYOUT_CURE: &'static str =
        "the ranks' processors differ; set ONEDNN_MAX_CPU_ISA=AVX2 on all, or use nodes of one kind";

    fn threads(&self, cores: usize) -> usize {
        cores
    }

    fn open(&self, seat: &Seat) -> Result<Cpu, backend::Error> {
        match seat.precision {
            Precision::F32 => Cpu::new(seat.threads),
            Precision::Bf16 => Cpu::in_bf16(seat.threads),
            Precision::F16 => Err(backend::Error::Unsupported {
                op: "precision = \"f16\"".into(),
                why: "the CPU computes in f32 or, where its instructions allow, in bf16; use one of those, or --device cuda"
                    .into(),
            }),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.note.iter().cloned().collect()
    }
}

impl Kind for OnCuda {
    type Backend = Cuda;
    const NAME: &'static str = "cuda";
    const LAYOUT_CURE: &'static str = "the ranks' GPUs or their libraries differ; use nodes of one kind";

    fn threads(&self, _: usize) -> usize {
        // it enqueues, and waits
        1
    }

    fn open(&self, seat: &Seat) -> Result<Cuda, backend::Error> {
        let Seat { precision, tf32, deterministic, node_rank, .. } = *seat;
        let settings = Settings { precision, allow_tf32: tf32, deterministic, ..Settings::default() };
        // a launcher that gives each rank its own card shows it no other; else each takes the one of its number
        let cards = cuda::cards()?.max(1);
        Cuda::open(node_rank % cards, settings)
    }

    fn card(&self, backend: &Cuda) -> Option<Card> {
        let card = backend.card();
        let uuid: String = card.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Card { host: String::new(), name: card.name.clone(), uuid: format!("GPU-{uuid}") })
    }
}

/// What was found when a kind of device was to be chosen.
enum Choice {
    Cpu(OnCpu),
    Cuda(OnCuda),
    Refused(Error),
}

/// The kind of device that was asked for, if it can be had. Looks for libraries and counts cards, and opens none.
fn choose(wanted: Wanted) -> Choice {
    let cpu = |note| Choice::Cpu(OnCpu { note });
    let usable = || cuda::library::require_all().and_then(|()| cuda::cards());
    match wanted {
        Wanted::Cpu => cpu(None),
        Wanted::Cuda => match usable() {
            Ok(0) => Choice::Refused(Error::Failed(format!(
                "--device cuda: this process sees no GPU{}; `nvidia-smi -L` lists those of the machine, or use --device cpu",
                visible()
            ))),
            Ok(_) => Choice::Cuda(OnCuda),
            Err(error) => Choice::Refused(Error::Failed(format!("--device cuda: {error}; or use --device cpu"))),
        },
        Wanted::Auto => match (cuda::cards(), usable()) {
            (Ok(1..), Ok(_)) => Choice::Cuda(OnCuda),
            (Ok(1..), Err(error)) => cpu(Some(format!("note: this machine has a GPU, which is left alone: {error}"))),
            _ => cpu(None),
        },
    }
}

fn visible() -> String {
    std::env::var("CUDA_VISIBLE_DEVICES").map_or(String::new(), |list| format!(" (CUDA_VISIBLE_DEVICES is \"{list}\")"))
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
        match choose($wanted) {
            Choice::Cpu(kind) => {
                let $kind = &kind;
                $work
            }
            Choice::Cuda(kind) => {
                let $kind = &kind;
                $work
            }
            Choice::Refused(error) => refused(error),
        }
    };
}

/// What there is of CUDA, a library a line, for `trireme doctor`.
pub fn cuda_lines() -> Vec<String> {
    let mut lines: Vec<String> =
        cuda::library::report().into_iter().map(|(name, found)| format!("{name}: {found}")).collect();
    lines.push(match cuda::cards() {
        Ok(count) => format!("{count} GPU(s) for this process{}", visible()),
        Err(_) => "no GPU: --device cuda is refused".into(),
    });
    lines
}

/// Tries whether MPI sums in the cards' memory; the findings, on rank 0. Collective, and a job of its own: a library that says it
/// does and does not ends it by a signal.
pub fn try_cuda_aware(share_gpu: bool) -> Result<Option<String>, Error> {
    if let Choice::Refused(error) = choose(Wanted::Cuda) {
        return refused(error);
    }
    let mut session = Session::join(Comm::launch())?;
    let found = cuda_aware(&mut session, share_gpu);
    session.conclude(found)
}

fn cuda_aware(session: &mut Session, share_gpu: bool) -> Result<Option<String>, Error> {
    session.same_program()?;
    session.same_device(OnCuda::NAME)?;
    let node_rank = session.world.node_rank;
    let seat = Seat { threads: 1, node_rank, precision: Precision::F32, tf32: false, deterministic: true };
    let backend = session.agree(OnCuda.open(&seat).map_err(Error::from))?;
    let cards = gpus::check(session, OnCuda.card(&backend).as_ref(), share_gpu)?;
    cards.notes.iter().filter(|_| session.is_root()).for_each(|note| eprintln!("{note}"));
    path::try_aware(session, &backend)
}

/// Trains as requested; `started` is when the process began. A dry run gives the text to print on rank 0.
pub fn train(request: &Request, started: Instant) -> Result<Option<String>, Error> {
    on!(request.device, kind => start::run(kind, request, started))
}

/// Scores a split over all ranks.
pub fn score(request: &scoring::Request) -> Result<Scored, Error> {
    on!(request.device, kind => scoring::score(kind, request))
}

/// Scores the files of a run as they appear, see [`follow::follow`].
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
