//! `trireme bench`: its arguments, and one JSON line per measurement.

use std::path::PathBuf;
use std::time::Instant;

use backend::Precision;
use base::screen;
use clap::Subcommand;
use recipe::TransportSetting;
use serde_json::{Value, json};
use training::bench::allreduce::AllreduceRequest;
use training::bench::roofline::{BEST, Forecast, Layer, Roofline, WORST};
use training::{Error, bench, launch};

use super::output::{Failure, print};
use super::value::{
    DeviceName, bytes, gigabytes, measurement_seconds, positive, precision, thread_count, transforms, transport,
};
use super::{ops, scale, set_wait_policy};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme bench step --model resnet20 --batch 128 --threads 2
  trireme bench ops --model resnet20 --threads 2
  trireme bench loader data/cifar10 --threads 1
  trireme bench loader+step data/cifar10 --model resnet20 --loader-threads 4
  mpirun -n 2 trireme bench allreduce --sizes 64K,4M,64M
  mpirun -n 4 trireme bench scale --model resnet20 --threads 1")]
pub struct Args {
    /// What to measure
    #[command(subcommand)]
    pub what: What,
}

#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Measure the training step on data in memory: forward pass, backward pass, update
    Step(Step),
    /// Compare the implementations of a network's convolutions on the CPU
    Ops(ops::Args),
    /// Measure the loader: read, check, transform, batch
    Loader(Loader),
    /// Measure the training step with images from a loader: does the device wait for them?
    #[command(name = "loader+step")]
    LoaderStep(LoaderStep),
    /// Measure the sum over all ranks, as gradients need it
    Allreduce(Allreduce),
    /// Measure the training step on 1, 2, 4 ... ranks, and forecast it for more
    Scale(scale::Args),
}

/// Device, number format and threads of a training step.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Compute {
    /// Device to compute on
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceName,
    /// Number format of the arithmetic
    #[arg(long, value_name = "NAME", default_value = "f32", value_parser = precision())]
    pub precision: Precision,
    /// Allow tf32 for products of f32 (GPU)
    #[arg(long)]
    pub tf32: bool,
    /// Number of compute threads [default: number of cores; 1 with a GPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme bench step --model resnet20 --batch 128 --threads 2
  trireme bench step --model lenet --batch 64 --profile
  trireme bench step --model resnet50 --batch 32 --roofline \\
      --cores 64 --bandwidth 350
  trireme bench step --model resnet18 --size 112 --batch 64"
)]
pub struct Step {
    /// Network
    #[arg(long, value_name = "NAME", default_value = "resnet20")]
    pub model: String,
    /// Height and width of the images in pixels [default: the network's usual size]
    #[arg(long, value_name = "PX", value_parser = positive)]
    pub size: Option<usize>,
    /// Images per step
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    pub batch: usize,
    #[command(flatten)]
    pub compute: Compute,
    /// Also print the time of every layer, and its parallel regions
    #[arg(long)]
    pub profile: bool,
    /// Compare every layer with the limits of the cores and their memory
    #[arg(long)]
    pub roofline: bool,
    /// Forecast the step for this number of cores in one socket
    #[arg(long, value_name = "N", requires = "roofline", value_parser = positive)]
    pub cores: Option<usize>,
    /// Memory bandwidth of that socket in GB/s [default: a range from this machine's bandwidth to this bandwidth times
    /// the ratio of the numbers of cores]
    #[arg(long, value_name = "GB/S", requires = "cores", value_parser = gigabytes)]
    pub bandwidth: Option<f64>,
    /// Seconds to measure after the warm-up
    #[arg(long, value_name = "S", default_value = "5", value_parser = measurement_seconds)]
    pub seconds: f64,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme bench loader data/cifar10 --threads 1
  trireme bench loader data/cifar10 --split test \\
      --transform 'normalize' --epochs 10
  trireme bench loader data/cifar10 --io read \\
      --transform 'random_crop(28),flip,normalize' --shuffle 'window(2)'"
)]
pub struct Loader {
    /// Data set
    pub dir: PathBuf,
    /// Split to read
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub split: String,
    /// Transforms as in a recipe, separated by commas. Can be repeated
    #[arg(long, value_name = "LIST", default_value = "pad_crop(4),flip,normalize")]
    pub transform: Vec<String>,
    /// Images per batch
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    pub batch: usize,
    /// Produce stored values, which a GPU normalizes itself, instead of floats as for a CPU
    #[arg(long)]
    pub bytes: bool,
    /// Number of loader threads [default: number of cores]
    #[arg(long, alias = "loader-threads", value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
    /// Number of passes over the split
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// How records are read: auto, mmap or read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub io: loaders::Io,
    /// Order of the samples: full or window(k)
    #[arg(long, value_name = "ORDER", default_value = "full")]
    pub shuffle: loaders::Shuffle,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme bench loader+step data/cifar10 --model resnet20 --loader-threads 4
  trireme bench loader+step data/photos --model resnet50 --batch 256 \\
      --device cuda --precision bf16 --loader-threads 4 \\
      --transform 'random_resized_crop(224),flip,normalize'"
)]
pub struct LoaderStep {
    /// Data set
    pub dir: PathBuf,
    /// Split to train on
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub split: String,
    /// Transforms as in a recipe, separated by commas. Can be repeated
    #[arg(long, value_name = "LIST", default_value = "pad_crop(4),flip,normalize")]
    pub transform: Vec<String>,
    /// Network
    #[arg(long, value_name = "NAME", default_value = "resnet20")]
    pub model: String,
    /// Images per step
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    pub batch: usize,
    #[command(flatten)]
    pub compute: Compute,
    /// Number of loader threads [default: from the cores without compute threads]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub loader_threads: Option<usize>,
    /// How records are read: auto, mmap or read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub io: loaders::Io,
    /// Seconds to measure after the warm-up
    #[arg(long, value_name = "S", default_value = "5", value_parser = measurement_seconds)]
    pub seconds: f64,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  mpirun -n 2 trireme bench allreduce --sizes 64K,4M,64M
  mpirun -n 2 trireme bench allreduce --codec ternary"
)]
pub struct Allreduce {
    /// Bytes to sum, such as 4096, 64K or 4M, or a list separated by commas
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64K,1M,4M,16M,64M", value_parser = bytes)]
    pub sizes: Vec<usize>,
    /// Split each sum into parts of this size, as reduce.bucket_mb does with gradients
    #[arg(long, value_name = "BYTES", default_value = "4000000", value_parser = bytes)]
    pub bucket: usize,
    /// Encoding of the numbers, as in reduce.codec
    #[arg(long, value_name = "NAME", default_value = "float")]
    pub codec: String,
    /// Device whose memory has the numbers
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceName,
    /// Transport between GPUs, as in reduce.path
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = transport())]
    pub path: TransportSetting,
    /// Allow ranks to share a GPU
    #[arg(long)]
    pub share_gpu: bool,
}

impl Args {
    /// Returns the measurement's name if it uses a single process, or `None` if it uses all ranks.
    pub fn single_process(&self) -> Option<&'static str> {
        match self.what {
            What::Step(_) => Some("bench step"),
            What::Ops(_) => Some("bench ops"),
            What::Loader(_) => Some("bench loader"),
            What::LoaderStep(_) => Some("bench loader+step"),
            What::Allreduce(_) | What::Scale(_) => None,
        }
    }
}

/// Measures and prints one JSON line per measurement.
pub fn run(args: &Args, started: Instant) -> Result<(), Failure> {
    match &args.what {
        What::Step(args) => step(args, started),
        What::Ops(args) => ops::run(args),
        What::LoaderStep(both) => loader_step(both),
        What::Loader(l) => {
            loaders::sigbus::install().map_err(Failure::failed)?;
            let threads = l.threads.unwrap_or_else(base::cores::available);
            let request = loaders::bench::LoaderRequest {
                dir: l.dir.clone(),
                split: l.split.clone(),
                transforms: l.transform.iter().flat_map(|list| transforms(list)).collect(),
                batch: l.batch,
                epochs: l.epochs,
                shuffle: l.shuffle,
                options: loaders::Options { threads, io: l.io, ..loaders::Options::default() },
                stored: l.bytes,
            };
            let rate = loaders::bench::run(&request, bench::memory_mb)?;
            print(json!({
                "bench": "loader", "data": l.dir, "split": l.split, "transform": request.transforms, "batch": l.batch,
                "bytes": l.bytes, "threads": threads, "epochs": l.epochs, "img_per_s": rate.img_per_s,
                "img_per_s_first": rate.img_per_s_first, "bytes_per_s": rate.bytes_per_s,
                "copy_bytes_per_s": rate.copy_bytes_per_s, "wait_s": rate.wait_s,
                "stages": rate.stages, "queue_depth": rate.queue_depth, "io": rate.io, "advice": rate.advice,
                "memory_mb": rate.memory_mb, "rss_mb": rate.rss_mb, "cpu": bench::processor(),
            }))
        }
        What::Allreduce(a) => allreduce(a),
        What::Scale(args) => scale::run(args),
    }
}

fn step(args: &Step, started: Instant) -> Result<(), Failure> {
    if let Some(cores) = args.cores {
        check_forecast(cores, args.compute.threads.unwrap_or_else(base::cores::available))?;
    }
    set_wait_policy()?;
    let compute = args.compute;
    let request = bench::StepRequest {
        model: args.model.clone(),
        size: args.size,
        batch: args.batch,
        device: compute.device.0,
        precision: compute.precision,
        tf32: compute.tf32,
        threads: compute.threads,
        profile: args.profile,
        roofline: args.roofline,
        seconds: args.seconds,
    };
    let result = launch::bench_step(&request, started)?;
    if let Some(table) = &result.profile {
        screen::say(table.trim_end());
    }
    let mut json = json!({
        "bench": "step", "model": args.model, "size": result.size, "batch": args.batch, "threads": result.threads,
        "device": result.device, "precision": request.precision,
        "img_per_s": result.img_per_s, "img_per_s_best": result.img_per_s_best, "step_ms": result.step_ms,
        "steps": result.steps, "first_step_s": result.first_step_s, "memory_mb": result.memory_mb,
        "backend": result.backend, "cpu": bench::processor(),
    });
    if let Some(launches) = result.launches {
        json["launches"] = launches.into();
    }
    if let Some(regions) = result.regions {
        json["regions"] = regions.all().into();
        json["regions_own"] = regions.own.into();
    }
    if let Some(barrier_us) = result.barrier_us {
        json["barrier_us"] = barrier_us.into();
    }
    if let Some(roofline) = &result.roofline {
        screen::say(roofline.table().trim_end());
        json["roofline"] = roofline_json(roofline);
        if let Some(cores) = args.cores {
            json["forecast"] = roofline_forecast(roofline, cores, args.bandwidth, args.batch)?;
        }
    }
    print(json)
}

fn loader_step(args: &LoaderStep) -> Result<(), Failure> {
    set_wait_policy()?;
    loaders::sigbus::install().map_err(Failure::failed)?;
    let compute = args.compute;
    let request = bench::LoaderStepRequest {
        dir: args.dir.clone(),
        split: args.split.clone(),
        transforms: args.transform.iter().flat_map(|list| transforms(list)).collect(),
        model: args.model.clone(),
        batch: args.batch,
        device: compute.device.0,
        precision: compute.precision,
        tf32: compute.tf32,
        threads: compute.threads,
        loader_threads: args.loader_threads,
        io: args.io,
        seconds: args.seconds,
    };
    let result = launch::bench_loader_step(&request).map_err(|error| match error {
        // for example, a name that does not exist is a usage error
        Error::Data(error) => Failure::from(error),
        error => error.into(),
    })?;
    print(json!({
        "bench": "loader+step", "data": args.dir, "split": args.split, "transform": request.transforms, "model": args.model,
        "batch": args.batch, "threads": result.threads, "loader_threads": result.loader_threads, "device": result.device,
        "precision": compute.precision, "img_per_s": result.img_per_s, "step_ms": result.step_ms, "steps": result.steps,
        "data_wait_ms": result.data_wait_ms, "data_wait_share": result.data_wait_ms / result.step_ms,
        "queue_depth": result.queue_depth, "input": result.input, "advice": result.advice, "backend": result.backend,
        "cpu": bench::processor(),
    }))
}

fn allreduce(args: &Allreduce) -> Result<(), Failure> {
    set_wait_policy()?;
    let request = AllreduceRequest {
        sizes: args.sizes.clone(),
        bucket: args.bucket,
        codec: args.codec.clone(),
        device: args.device.0,
        path: args.path,
        share_gpu: args.share_gpu,
    };
    launch::bench_allreduce(&request)?.into_iter().try_for_each(|r| {
        let rate = |ms: f64| r.bytes as f64 / ms / 1e6;
        let mut line = json!({
            "bench": "allreduce", "codec": args.codec, "bytes": r.bytes, "bucket": r.bucket, "ranks": r.ranks, "ms": r.ms,
            "ms_best": r.ms_best, "gb_per_s": rate(r.ms), "queued_gb_per_s": rate(r.queued_ms),
            "plain_ms": r.plain_ms, "plain_ms_best": r.plain_ms_best, "plain_gb_per_s": rate(r.plain_ms),
            "of_plain": r.plain_ms / r.ms, "queued_of_plain": r.plain_ms / r.queued_ms,
            "wire_bytes": r.wire_bytes, "path": r.path, "path_why": r.why, "mpi": r.library,
        });
        let parts = r.parts_ms.into_iter().flat_map(|parts| ["encode_ms", "wire_ms", "decode_ms"].into_iter().zip(parts));
        parts.for_each(|(key, ms)| line[key] = ms.into());
        print(line)
    })
}

/// Converts a roofline to JSON.
fn roofline_json(roofline: &Roofline) -> Value {
    let machine = roofline.machine;
    let layer = |layer: &Layer| {
        json!({
            "layer": layer.name, "ms": 1e3 * layer.seconds, "gflop": layer.operations / 1e9, "mb": layer.bytes / 1e6,
            "regions": layer.regions, "of_roof": roofline.of_roof(layer), "bound": roofline.bound(layer),
        })
    };
    let layers: Vec<Value> = roofline.layers.iter().filter(|l| l.bytes > 0.0).map(layer).collect();
    json!({
        "gflops_per_thread": machine.peak / 1e9, "gb_per_s": machine.bandwidth / 1e9,
        "gb_per_s_one_thread": machine.bandwidth_one / 1e9, "of_roof": roofline.of_roof_together(),
        "outside_layers_ms": 1e3 * roofline.rest, "layers": layers,
    })
}

/// Returns an error unless a forecast for `cores` cores is possible with `threads` measured threads. Called before the
/// measurement.
fn check_forecast(cores: usize, threads: usize) -> Result<(), Failure> {
    if threads < 2 {
        return Err(one_thread(cores));
    }
    if cores <= threads {
        let why = format!("a forecast needs more cores than the {threads} measured threads");
        return Err(Error::Usage(format!("--cores {cores}: {why}")).into());
    }
    Ok(())
}

fn one_thread(cores: usize) -> Failure {
    let why = "a forecast needs the cost of a barrier, which cannot be measured with one thread; add --threads 2";
    Error::Usage(format!("--cores {cores}: {why}")).into()
}

/// Forecasts the time of a step with `batch` images on more cores, prints it, and returns it as JSON.
fn roofline_forecast(
    roofline: &Roofline,
    cores: usize,
    bandwidth: Option<f64>,
    batch: usize,
) -> Result<Value, Failure> {
    let forecast = roofline.forecast(cores, bandwidth).ok_or_else(|| one_thread(cores))?;
    let Forecast { cores, bandwidth, barrier, step } = forecast;
    let ms = step.map(|seconds| 1e3 * seconds);
    let rates = [step[1], step[0]].map(|seconds| batch as f64 / seconds);
    screen::say(&format!(
        "forecast, not measured: {cores} cores, {:.2} to {:.2} ms per step ({:.0} to {:.0} images/s). At best, {BEST}. At worst, \
         {WORST}.",
        ms[0], ms[1], rates[0], rates[1]
    ));
    Ok(json!({
        "forecast": true, "cores": cores, "step_ms": ms, "img_per_s": rates,
        "gb_per_s": bandwidth.map(|rate| rate / 1e9), "barrier_us": barrier.map(|seconds| 1e6 * seconds),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn parse(line: &str) -> What {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Some(Command::Bench(args)) => args.what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_are_split_and_options_ask_for_each_other() {
        let What::Loader(loader) = parse("trireme bench loader d --transform contrast(0.2,1.8),flip --transform flip")
        else {
            panic!("not a loader bench");
        };
        let all: Vec<String> = loader.transform.iter().flat_map(|list| transforms(list)).collect();
        assert_eq!(all, ["contrast(0.2,1.8)", "flip", "flip"]);
        let What::Allreduce(allreduce) = parse("trireme bench allreduce --sizes 512,64K") else {
            panic!("not an allreduce bench");
        };
        assert_eq!(allreduce.sizes, [512, 65_536]);
        let What::Step(step) = parse("trireme bench step --roofline --cores 64 --bandwidth 350") else {
            panic!("not a step bench");
        };
        assert_eq!((step.roofline, step.cores, step.bandwidth), (true, Some(64), Some(350e9)));
        let refused =
            ["--cores 64", "--roofline --bandwidth 350", "--roofline --cores 0", "--roofline --cores 4 --bandwidth -1"];
        for line in refused {
            assert!(Cli::try_parse_from(format!("trireme bench step {line}").split(' ')).is_err(), "{line}");
        }
        let What::Allreduce(allreduce) = parse("trireme bench allreduce") else { panic!("not an allreduce bench") };
        assert_eq!(allreduce.sizes.len(), 5);
    }
}
