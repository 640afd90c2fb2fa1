//! Lets cuDNN check every graph that this backend builds, without a GPU. From version 9.8 on, cuDNN can plan for a GPU
//! that is described by its properties.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use cudarc::cudnn::sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::candidates::{candidates, prepare_known};
use super::convolution::{Convolution, Direction};
use super::descriptor::{Descriptor, Device};
use crate::cuda::driver::load::{Library, require};
use crate::cuda::driver::status::attempted;
use crate::cuda::ops::fold;
use crate::cuda::settings::{Settings, WORKSPACE};
use crate::{Error, Precision};
use net::{Conv, Op, models};

/// A GPU that cuDNN plans for.
struct Gpu {
    name: &'static str,
    /// Compute capability as in `deviceVer`.
    version: u32,
    multiprocessors: u32,
    /// Clock rates in kHz: multiprocessors, memory.
    clocks: [u32; 2],
    /// Size of the L2 cache in bytes.
    cache: u64,
    /// Maximum shared memory per block in bytes.
    shared: u32,
    /// Maximum numbers of blocks and threads per multiprocessor.
    resident: [u32; 2],
    memory: u64,
}

const H100: Gpu = Gpu {
    name: "NVIDIA H100 80GB HBM3",
    version: 900,
    multiprocessors: 132,
    clocks: [1_980_000, 2_619_000],
    cache: 50 << 20,
    shared: 232_448,
    resident: [32, 2048],
    memory: 80 << 30,
};

const A100: Gpu = Gpu {
    name: "NVIDIA A100-SXM4-80GB",
    version: 800,
    multiprocessors: 108,
    clocks: [1_410_000, 1_593_000],
    cache: 40 << 20,
    shared: 166_912,
    resident: [32, 2048],
    memory: 80 << 30,
};

const L4: Gpu = Gpu {
    name: "NVIDIA L4",
    version: 890,
    multiprocessors: 58,
    clocks: [2_040_000, 6_251_000],
    cache: 48 << 20,
    shared: 101_376,
    resident: [24, 1536],
    memory: 23 << 30,
};

impl Gpu {
    /// Returns the GPU's properties in the JSON format that cuDNN reads.
    fn json(&self) -> String {
        let Self { name, version, multiprocessors, clocks: [clock, memory_clock], cache, shared, memory, .. } = self;
        let [blocks, threads] = self.resident;
        format!(
            r#"{{"deviceName": "{name}", "cudaDeviceId": 0, "deviceVer": {version}, "driverVer": 13000,
            "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
            "multiProcessorCount": {multiprocessors}, "smClockRateKHz": {clock}, "memClockRateKHz": {memory_clock},
            "l2CacheSize": {cache}, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
            "maxSharedMemoryPerBlockOptin": {shared}, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
            "maxCtasPerSM": {blocks}, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": {threads},
            "totalGlobalMem": {memory}, "isTccDriver": 0, "supportCoopLaunch": 1, "pciDeviceId": 0}}"#
        )
    }

    fn describe(&self) -> Result<Device<'static>, Error> {
        require(Library::Cudnn).and_then(|()| require(Library::CublasLt))?;
        let properties = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        properties.set(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, self.json().as_bytes())?;
        properties.finalize("a described GPU")?;
        Ok(Device::Described(properties))
    }
}

/// Maximum number of algorithms to check per graph.
const MAX_CANDIDATES: usize = 12;

/// Returns an H100 that is described by recorded properties. If cuDNN is missing or cannot plan without a GPU, reports
/// a skipped test.
#[track_caller]
fn described() -> Option<Device<'static>> {
    let found = H100.describe();
    if let Err(e) = &found {
        crate::skip::skip(&format!("cuDNN's plans without a GPU: {e}"));
    }
    found.ok()
}

/// Returns a convolution of square images with a square kernel. The arguments are: images, (input channels, input
/// size), (output channels, kernel size), [padding, stride, groups].
fn square(
    n: usize,
    (c, size): (usize, usize),
    (k, kernel): (usize, usize),
    [pad, stride, groups]: [usize; 3],
) -> Convolution {
    let out = (size + 2 * pad - kernel) / stride + 1;
    Convolution {
        n,
        x: [c, size, size],
        y: [k, out, out],
        kernel: [kernel; 2],
        stride: [stride; 2],
        pads: [pad; 4],
        dilation: [1, 1],
        groups,
        precision: Precision::F32,
    }
}

/// Layers of built-in networks, and one with uneven padding.
fn layers() -> Vec<Convolution> {
    let uneven = Convolution { pads: [2, 2, 3, 3], y: [64, 56, 56], ..square(8, (3, 224), (64, 7), [3, 4, 1]) };
    vec![
        square(32, (64, 56), (64, 3), [1, 1, 1]),
        square(32, (3, 224), (64, 7), [3, 2, 1]),
        square(32, (96, 27), (256, 5), [2, 1, 2]),
        square(16, (1, 28), (6, 5), [2, 1, 1]),
        square(128, (16, 32), (32, 1), [0, 2, 1]),
        uneven,
    ]
}

#[test]
fn cudnn_has_an_algorithm_for_every_layer_direction_and_precision() {
    let Some(device) = described() else { return };
    // ReLU without bias is left out: some cuDNN versions have no algorithm for it, and our own kernel computes it then
    let directions = [
        Direction::Forward { bias: false, relu: false },
        Direction::Forward { bias: true, relu: false },
        Direction::Forward { bias: true, relu: true },
        Direction::Data,
        Direction::Filter,
    ];
    for (i, layer) in layers().into_iter().enumerate() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let layer = Convolution { precision, ..layer.clone() };
            // the input gradient of a layer that reads images is never needed
            let needed = |d: &Direction| *d != Direction::Data || layer.x[0] >= 8;
            for direction in directions.into_iter().filter(needed) {
                let settings = Settings { precision, deterministic: i % 2 == 1, ..Settings::default() };
                let all =
                    candidates(&device, &layer, direction, &settings, MAX_CANDIDATES).unwrap_or_else(|e| panic!("{e}"));
                assert!(all.iter().all(|w| w.workspace <= WORKSPACE));
                for found in all {
                    let same = prepare_known(&device, &layer, direction, &settings, found.algorithm.clone());
                    let same = same.unwrap_or_else(|e| panic!("{}: {e}", found.algorithm));
                    assert_eq!(
                        (same.algorithm, same.workspace),
                        (found.algorithm, found.workspace),
                        "made again from its numbers"
                    );
                }
            }
        }
    }
}

#[test]
fn tf32_is_left_out_unless_allowed() {
    let Some(device) = described() else { return };
    let layer = square(32, (64, 56), (64, 3), [1, 1, 1]);
    let direction = Direction::Forward { bias: false, relu: false };
    let engines = |allow_tf32: bool| {
        let settings = Settings { allow_tf32, ..Settings::default() };
        let all = candidates(&device, &layer, direction, &settings, MAX_CANDIDATES).unwrap_or_else(|e| panic!("{e}"));
        all.iter().map(|w| w.algorithm.engine).collect::<Vec<_>>()
    };
    assert_ne!(engines(false)[0], engines(true)[0], "the first proposal for f32 uses tensor cores");
}

#[test]
fn cudnn_refuses_a_convolution_with_a_wrong_output_size() {
    let Some(device) = described() else { return };
    // the output has one row too many
    let layer = Convolution { y: [64, 57, 56], ..square(32, (64, 56), (64, 3), [1, 1, 1]) };
    let direction = Direction::Forward { bias: false, relu: false };
    assert!(candidates(&device, &layer, direction, &Settings::default(), 1).is_err());
}

/// Batch size for the built-in networks.
const IMAGES: usize = 32;

/// A convolution of a built-in network, and whether its input is the network's input.
#[derive(Clone)]
struct Layer {
    op: Conv,
    sizes: Convolution,
    first: bool,
}

/// Returns the distinct convolutions in all built-in networks, each with the names of the networks that contain it.
fn catalogue() -> BTreeMap<String, (Layer, BTreeSet<&'static str>)> {
    let mut layers: BTreeMap<String, (Layer, BTreeSet<&'static str>)> = BTreeMap::new();
    for name in models::names() {
        let (input, classes) = models::input(name).zip(models::classes(name)).unwrap();
        let net = models::build(name, input, classes).unwrap();
        let shapes = net.shapes().unwrap_or_else(|e| panic!("{name}: {e}"));
        for (i, node) in net.nodes.iter().enumerate() {
            let Op::Conv(op) = &node.op else { continue };
            let from = node.inputs[0].0;
            let sizes = Convolution::new(op, IMAGES, [shapes[from], shapes[i + 1]], Precision::F32);
            let layer = Layer { op: op.clone(), sizes, first: from == 0 };
            let key = format!("{}, bias {}, ReLU {}, first {}", layer.sizes, op.bias, op.relu, layer.first);
            layers.entry(key).or_insert_with(|| (layer, BTreeSet::new())).1.insert(name);
        }
    }
    layers
}

/// Summary of cuDNN's plans for a layer.
#[derive(Default)]
struct Planned {
    graphs: usize,
    /// True if our own kernel must add bias and ReLU.
    separate: bool,
    largest_workspace: usize,
}

/// Plans a layer as the backend does for training: the forward pass, with bias and ReLU if cuDNN can fuse them, and the
/// gradients.
fn plan_layer(device: &Device<'_>, layer: &Layer, settings: &Settings) -> Result<Planned, Error> {
    let whole = Convolution { precision: settings.precision, ..layer.sizes.clone() };
    let folded = if layer.first { fold::if_faster(&whole, settings) } else { None };
    let computed = folded.as_ref().unwrap_or(&whole);
    let mut planned = Planned::default();
    let mut plan = |of: &Convolution, direction| {
        let found = candidates(device, of, direction, settings, 1)?;
        planned.graphs += 1;
        planned.largest_workspace = found.iter().map(|f| f.workspace).max().unwrap_or(0).max(planned.largest_workspace);
        Ok::<_, Error>(())
    };
    let (fused, plain) = (
        Direction::Forward { bias: layer.op.bias, relu: layer.op.relu },
        Direction::Forward { bias: false, relu: false },
    );
    let together = if fused == plain { None } else { attempted(plan(computed, fused))? };
    if together.is_none() {
        plan(computed, plain)?;
    }
    if !layer.first {
        plan(&whole, Direction::Data)?;
    }
    plan(computed, Direction::Filter)?;
    planned.separate = fused != plain && together.is_none();
    Ok(planned)
}

/// Plans every convolution of the built-in networks for GPUs that are described by recorded properties, prints a table,
/// and fails if a layer has no algorithm. TRIREME_PLAN_GPUS, TRIREME_PLAN_KINDS and TRIREME_PLAN_NETWORKS select GPUs,
/// kinds of arithmetic and networks by parts of their names.
#[test]
#[ignore = "needs cuDNN and takes minutes: make test-cuda-plans"]
fn every_layer_of_the_catalogue_has_algorithms_on_described_gpus() {
    let selects = |variable: &str, names: &[&str]| {
        let wanted = std::env::var(variable).unwrap_or_default();
        wanted.is_empty() || wanted.split(',').any(|part| names.iter().any(|name| name.contains(part)))
    };
    let layers = catalogue();
    let kinds = [
        ("f32", Settings::default()),
        ("tf32", Settings { allow_tf32: true, ..Settings::default() }),
        ("bf16", Settings { precision: Precision::Bf16, ..Settings::default() }),
        ("f16", Settings { precision: Precision::F16, ..Settings::default() }),
        ("bf16, deterministic", Settings { precision: Precision::Bf16, deterministic: true, ..Settings::default() }),
        ("f32, deterministic", Settings { deterministic: true, ..Settings::default() }),
    ];
    let mut missing = Vec::new();
    println!(
        "| GPU | arithmetic | networks | layers | graphs | own bias or ReLU | without an algorithm | workspace MB | s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for gpu in [H100, A100, L4].into_iter().filter(|gpu| selects("TRIREME_PLAN_GPUS", &[gpu.name])) {
        let device = gpu.describe().unwrap_or_else(|e| panic!("{}: {e}", gpu.name));
        for (kind, settings) in kinds.iter().filter(|(kind, _)| selects("TRIREME_PLAN_KINDS", &[kind])) {
            let (start, mut networks) = (Instant::now(), BTreeSet::new());
            let (mut count, mut graphs, mut separate, mut failed, mut largest) = (0, 0, 0, 0, 0);
            for (layer, users) in layers.values() {
                if !selects("TRIREME_PLAN_NETWORKS", &users.iter().copied().collect::<Vec<_>>()) {
                    continue;
                }
                (count, networks) = (count + 1, &networks | users);
                match plan_layer(&device, layer, settings) {
                    Ok(planned) => {
                        graphs += planned.graphs;
                        separate += usize::from(planned.separate);
                        largest = largest.max(planned.largest_workspace);
                    }
                    Err(e) => {
                        failed += 1;
                        missing.push(format!("{} in {kind}: {e} (in {users:?})", gpu.name));
                    }
                }
            }
            println!(
                "| {} | {kind} | {} | {count} | {graphs} | {separate} | {failed} | {} | {:.0} |",
                gpu.name,
                networks.len(),
                largest >> 20,
                start.elapsed().as_secs_f64()
            );
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
