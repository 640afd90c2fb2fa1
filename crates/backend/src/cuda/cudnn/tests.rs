//! Lets cuDNN check every graph that this backend builds, without a GPU. From version 9.8 on, cuDNN can plan for a GPU
//! that is described by its properties.

use cudarc::cudnn::sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::candidates::{candidates, prepare_known};
use super::convolution::{Convolution, Direction};
use super::descriptor::Descriptor;
use super::descriptor::Device;
use crate::Precision;
use crate::cuda::driver::load::{Library, require};
use crate::cuda::settings::Settings;

/// cuDNN's description of an H100.
const H100: &str = r#"{"deviceName": "NVIDIA H100 80GB HBM3", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 52428800,
    "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "totalGlobalMem": 85899345920, "isTccDriver": 0, "supportCoopLaunch": 1, "pciDeviceId": 0}"#;

/// Maximum number of algorithms to check per graph.
const MAX_CANDIDATES: usize = 12;

/// Returns the described GPU. If cuDNN is missing or cannot plan without a GPU, reports a skipped test.
#[track_caller]
fn described() -> Option<Device<'static>> {
    let found = require(Library::Cudnn).and_then(|()| require(Library::CublasLt)).and_then(|()| {
        let properties = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        properties.set(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, H100.as_bytes())?;
        properties.finalize("a described GPU")?;
        Ok(Device::Described(properties))
    });
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

/// Layers of the catalogue's networks, and one with uneven padding.
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
            // the gradient of an image is never needed
            let needed = |d: &Direction| *d != Direction::Data || layer.x[0] >= 8;
            for direction in directions.into_iter().filter(needed) {
                let settings = Settings { precision, deterministic: i % 2 == 1, ..Settings::default() };
                let all =
                    candidates(&device, &layer, direction, &settings, MAX_CANDIDATES).unwrap_or_else(|e| panic!("{e}"));
                assert!(all.iter().all(|w| w.workspace <= settings.workspace));
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
fn a_graph_that_makes_no_sense_is_refused_by_cudnn() {
    let Some(device) = described() else { return };
    // the output has one row too many
    let layer = Convolution { y: [64, 57, 56], ..square(32, (64, 56), (64, 3), [1, 1, 1]) };
    let direction = Direction::Forward { bias: false, relu: false };
    assert!(candidates(&device, &layer, direction, &Settings::default(), 1).is_err());
}
