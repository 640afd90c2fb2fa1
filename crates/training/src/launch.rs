//! Starts a request on a device that all ranks agree on. This is the only place that names concrete backends. All other
//! code is generic over [`Device`].

use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use backend::cpu::{Cpu, CpuDevice};
use backend::cuda::{CudaDevice, visible};
use backend::reference::Reference;
use backend::{Backend, Unavailable, cpu, cuda};
use base::screen;
use base::text::plural;
use engine::estimate;
use net::NetSpec;

use crate::bench;
use crate::device::{Device, DeviceChoice, DeviceSettings, F32_SETTINGS};
use crate::error::Error;
use crate::eval::image_reader::ReadingRequest;
use crate::eval::predict::{Predict, Predictor};
use crate::eval::predict_many::{self, ManyRequest, ManySummary};
use crate::eval::request::{EvalRequest, ModelRequest};
use crate::eval::score::SplitScore;
use crate::eval::{follow, score};
use crate::train::agree::Session;
use crate::train::agree::gpus;
use crate::train::plan::request::TrainRequest;
use crate::train::reduce::transport;
use crate::train::start;

/// Values of `--device`. To add a kind of device, change this list, `FoundDevice`, `choose` and `with_device!`.
pub const CHOICES: &[DeviceChoice] =
    &[DeviceChoice::Auto, DeviceChoice::Kind(CpuDevice::NAME), DeviceChoice::Kind(CudaDevice::NAME)];

pub fn about(choice: DeviceChoice) -> &'static str {
    match choice {
        DeviceChoice::Auto => "An NVIDIA GPU if this machine has one with its driver and libraries, otherwise the CPU",
        DeviceChoice::Kind(CudaDevice::NAME) => CudaDevice::ABOUT,
        DeviceChoice::Kind(_) => CpuDevice::ABOUT,
    }
}

/// The device to use, or the reason why it is not available.
enum FoundDevice {
    Cpu(CpuDevice),
    Cuda(CudaDevice),
    Refused(Error),
}

/// Finds the requested kind of device. Looks for libraries and counts GPUs, but opens no device.
fn choose(choice: DeviceChoice) -> FoundDevice {
    let refused = |name: &str, why: String| {
        FoundDevice::Refused(Error::Failed(format!("--device {name}: {why}; or use --device cpu")))
    };
    let cpu = |notes| match CpuDevice::find(notes) {
        Ok(device) => FoundDevice::Cpu(device),
        // the CPU is always available, so the only possible error is an invalid environment variable
        Err(unavailable) => FoundDevice::Refused(Error::Usage(unavailable.why)),
    };
    let cuda = || CudaDevice::find(Vec::new());
    match choice {
        DeviceChoice::Kind(CudaDevice::NAME) => match cuda() {
            Ok(device) => FoundDevice::Cuda(device),
            Err(unavailable) => refused(CudaDevice::NAME, unavailable.why),
        },
        DeviceChoice::Kind(_) => cpu(Vec::new()),
        DeviceChoice::Auto => match cuda() {
            Ok(device) => FoundDevice::Cuda(device),
            Err(Unavailable { why, present: true }) => {
                cpu(vec![format!("note: this machine has a GPU, but it is not used: {why}")])
            }
            Err(_) => cpu(Vec::new()),
        },
    }
}

/// Ends all ranks because this rank has no device of the requested kind. If no rank has such a device, the message is
/// `error`. Otherwise it names the ranks that differ.
fn refused<T>(error: Error) -> Result<T, Error> {
    Session::run(|session| {
        session.same_program()?;
        session.same_device(("none", Some(error.to_string().as_str())))?;
        session.agree(Err(error))
    })
}

/// Evaluates `$work` with `$device` bound to the requested device.
macro_rules! with_device {
    ($wanted:expr, $device:ident => $work:expr) => {
        match choose($wanted) {
            FoundDevice::Cpu(kind) => {
                let $device = &kind;
                $work
            }
            FoundDevice::Cuda(kind) => {
                let $device = &kind;
                $work
            }
            FoundDevice::Refused(error) => refused(error),
        }
    };
}

/// Properties of the CPU backend for `trireme doctor`.
pub struct CpuReport {
    /// Description of device, library and instruction set.
    pub describe: String,
    /// `yes`, or `no` with the reason.
    pub bf16: String,
}

/// Estimates the bytes that a training step on a batch of `images` images needs. Real devices need more, because they
/// pad channels and use larger workspaces.
pub fn training_bytes(net: &NetSpec, images: usize) -> Result<usize, Error> {
    let need = estimate::training(&Reference, net, images)?;
    Ok(need.parameters + need.activations + need.workspace)
}

/// Opens the CPU backend with the given number of cores and describes it.
pub fn cpu_report(cores: usize) -> Result<CpuReport, Error> {
    let bf16 = Cpu::bf16().map_or_else(|why| format!("no: {why}"), |()| "yes".into());
    let device = CpuDevice::find(Vec::new()).map_err(|unavailable| Error::Usage(unavailable.why))?;
    let settings = DeviceSettings { threads: cores, deterministic: false, ..F32_SETTINGS };
    Ok(CpuReport { describe: device.open(&settings)?.describe(), bf16 })
}

/// Lists the backends' libraries with their versions, one per line, for `trireme --version --verbose`.
pub fn library_lines() -> Vec<String> {
    let cuda = cuda::library::report().into_iter().map(|(name, found)| format!("{name}: {found}"));
    std::iter::once(cpu::library()).chain(cuda).collect()
}

/// Lists the CUDA libraries that were found, one per line, for `trireme doctor`. Without a driver this is a single
/// line, unless `verbose` is set.
pub fn cuda_lines(verbose: bool) -> Vec<String> {
    if !verbose && !cuda::library::has_driver() {
        return vec![
            "no GPU: NVIDIA's driver (libcuda) was not found, so --device cuda is not available (-v shows where it was searched)"
                .into(),
        ];
    }
    let mut lines: Vec<String> =
        cuda::library::report().into_iter().map(|(name, found)| format!("{name}: {found}")).collect();
    lines.push(match cuda::gpu_count() {
        Ok(count) => format!("{} for this process{}", plural(count, "GPU"), visible()),
        Err(error) => format!("no GPU can be used: {error}"),
    });
    lines
}

/// Tests whether MPI can sum in GPU memory. Returns the findings on rank 0. Collective. It must run in a separate job,
/// because an MPI library that wrongly claims support crashes the process.
pub fn try_cuda_aware(share_gpu: bool) -> Result<Option<String>, Error> {
    let device = match choose(DeviceChoice::Kind(CudaDevice::NAME)) {
        FoundDevice::Cuda(device) => device,
        FoundDevice::Refused(error) => return refused(error),
        FoundDevice::Cpu(_) => return refused(Error::Failed("--cuda-aware needs a GPU".into())),
    };
    Session::run(|session| cuda_aware(&device, session, share_gpu))
}

fn cuda_aware(device: &CudaDevice, session: &mut Session, share_gpu: bool) -> Result<Option<String>, Error> {
    let options = format!("trireme doctor --cuda-aware\n--share-gpu {share_gpu}");
    session.same_start((CudaDevice::NAME, None), &options)?;
    let settings = DeviceSettings { node_rank: session.world.node_rank, ..F32_SETTINGS };
    let backend = session.agree(device.open(&settings).map_err(Error::from))?;
    let checked = gpus::check(session, device.gpu(&backend).as_ref(), share_gpu)?;
    session.notes.extend(checked.notes);
    session.print_notes();
    transport::try_aware(session, &backend)
}

/// Trains as requested. `started` is the start time of the process. A dry run returns the text that rank 0 prints.
pub fn train(request: &TrainRequest, started: Instant) -> Result<Option<String>, Error> {
    with_device!(request.device, device => start::run(device, request, started))
}

pub fn score(request: &EvalRequest) -> Result<SplitScore, Error> {
    with_device!(request.device, device => score::score(device, request))
}

/// Scores the files of a run as they appear, see [`follow::follow`].
pub fn follow(
    request: &EvalRequest,
    once: bool,
    show: impl FnMut(&Path, &SplitScore) -> Result<(), Error>,
) -> Result<(), Error> {
    with_device!(request.device, device => follow::follow(device, request, once, show))
}

/// Opens a model that classifies pictures.
pub fn predictor(
    wanted: DeviceChoice,
    model: &ModelRequest,
    reading: &ReadingRequest,
) -> Result<Box<dyn Predict>, Error> {
    with_device!(wanted, device => {
        device.why_chosen().into_iter().for_each(screen::say);
        Ok(Box::new(Predictor::open(device, model, reading)?))
    })
}

/// Predicts images on all ranks and writes them to a table. If the request contains `-`, image names are read from
/// `list`.
pub fn predict_many(request: &ManyRequest, list: &mut dyn BufRead) -> Result<Option<ManySummary>, Error> {
    with_device!(request.device, device => predict_many::predict(device, request, list))
}

/// Measures training steps on a synthetic batch.
pub fn bench_step(request: &bench::StepRequest, started: Instant) -> Result<bench::StepResult, Error> {
    with_device!(request.device, device => {
        device.notes(request.precision, request.tf32).iter().for_each(|note| screen::say(note));
        bench::step(device, request, started)
    })
}

/// Measures training steps on images from a loader.
pub fn bench_loader_step(request: &bench::LoaderStepRequest) -> Result<bench::LoaderStepResult, Error> {
    with_device!(request.device, device => {
        device.why_chosen().into_iter().for_each(screen::say);
        bench::run_loader_step(device, request)
    })
}

/// Measures the CPU implementations of convolutions and linear layers.
pub fn bench_ops(
    request: &bench::ops::OpsRequest,
    show: impl FnMut(&bench::ops::MeasuredOn, &bench::ops::OperationTimes) -> Result<(), Error>,
) -> Result<(), Error> {
    with_device!(DeviceChoice::Kind(CpuDevice::NAME), device => bench::ops::run(device, request, show))
}

/// Benchmarks gradient sums over all ranks. Collective. The result is empty on all ranks except 0.
pub fn bench_allreduce(request: &bench::allreduce::AllreduceRequest) -> Result<Vec<bench::allreduce::Sums>, Error> {
    with_device!(request.device, device => bench::allreduce::run(device, request))
}

/// Measures how the time of a step scales with the number of ranks. Collective. Returns `None` on all ranks except 0.
pub fn bench_scale(request: &bench::scale::ScaleRequest) -> Result<Option<bench::scale::ScaleResult>, Error> {
    with_device!(request.device, device => bench::scale::run(device, request))
}

#[cfg(test)]
mod tests {
    use base::cores::{Mask, share};

    use super::*;
    use crate::device::{RequestedThreads, Resources};

    /// Returns the numbers of compute and loader threads per rank on a node with `cores` cores and ranks that are not
    /// bound to cores.
    fn threads<D: Device>(cores: usize, ranks: usize, requested: RequestedThreads) -> (usize, usize) {
        let masks = vec![Mask { host: "node".into(), cpus: (0..cores).collect(), quota: None }; ranks];
        let resources = Resources::new::<D>(share(&masks, 0), requested, ranks > 1);
        (resources.compute, resources.loader)
    }

    fn default_threads<D: Device>(ranks: usize) -> [(usize, usize); 4] {
        [1, 4, 8, 16].map(|cores| threads::<D>(cores, ranks, RequestedThreads::default()))
    }

    #[test]
    fn a_cpu_computes_on_all_cores_and_a_gpu_leaves_all_but_one_to_the_loader() {
        assert_eq!(default_threads::<CpuDevice>(1), [(1, 1), (4, 1), (8, 1), (16, 1)]);
        assert_eq!(default_threads::<CpuDevice>(4), [(1, 1), (1, 1), (2, 1), (4, 1)]);
        assert_eq!(default_threads::<CudaDevice>(1), [(1, 1), (1, 3), (1, 7), (1, 15)]);
        assert_eq!(default_threads::<CudaDevice>(4), [(1, 1), (1, 1), (1, 1), (1, 3)]);
    }

    #[test]
    fn threads_that_the_user_sets_do_not_take_cores_from_the_loader_of_a_gpu() {
        let compute = RequestedThreads { compute: Some(6), loader: None };
        assert_eq!(threads::<CpuDevice>(16, 1, compute), (6, 10));
        // one core is left for MPI
        assert_eq!(threads::<CpuDevice>(64, 4, compute), (6, 9));
        assert_eq!(threads::<CudaDevice>(16, 1, compute), (1, 15));
        let loader = RequestedThreads { compute: None, loader: Some(5) };
        assert_eq!(threads::<CpuDevice>(4, 1, loader), (4, 5));
        assert_eq!(threads::<CudaDevice>(4, 1, loader), (1, 5));
    }
}
