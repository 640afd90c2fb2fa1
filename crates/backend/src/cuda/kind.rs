//! NVIDIA's GPUs as a kind of device.

use super::device::Cuda;
use super::driver::context::gpu_count;
use super::driver::library;
use super::driver::switches::switches;
use super::settings::Settings;
use crate::{DeviceKind, DeviceSettings, Error, Gpu, Precision, Unavailable};

/// NVIDIA's GPUs.
pub struct CudaDevice {
    notes: Vec<String>,
}

/// The GPUs that CUDA_VISIBLE_DEVICES leaves to this process, in words; empty if the variable is not set.
pub fn visible() -> String {
    std::env::var("CUDA_VISIBLE_DEVICES").map_or(String::new(), |list| format!(" (CUDA_VISIBLE_DEVICES is \"{list}\")"))
}

impl DeviceKind for CudaDevice {
    type Backend = Cuda;
    const NAME: &'static str = "cuda";
    const ABOUT: &'static str = "An NVIDIA GPU";
    const REMOVABLE: bool = true;
    const LAYOUT_CURE: &'static str = "the ranks' GPUs or their libraries differ; use nodes of one kind";

    fn find(notes: Vec<String>) -> Result<Self, Unavailable> {
        let count = gpu_count();
        let present = matches!(count, Ok(1..));
        let unavailable = |why: String| Err(Unavailable { why, present });
        match library::require_all().and(count) {
            Ok(1..) => Ok(Self { notes }),
            Ok(_) => unavailable(format!(
                "this process sees no GPU{}; `nvidia-smi -L` lists those of the machine",
                visible()
            )),
            Err(error) => unavailable(error.to_string()),
        }
    }

    fn threads(&self, _: usize) -> usize {
        // the thread only queues work and waits for it
        1
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Cuda, Error> {
        let DeviceSettings { precision, tf32, deterministic, node_rank, .. } = *settings;
        let settings = Settings { precision, allow_tf32: tf32, deterministic, ..Settings::default() };
        // a launcher that binds a rank to its own GPU shows it no other; else each rank takes the GPU of its number
        let gpus = gpu_count()?.max(1);
        Cuda::open(node_rank % gpus, settings)
    }

    fn notes(&self, _: Precision) -> Vec<String> {
        self.notes.iter().cloned().chain(switches().notes()).collect()
    }

    fn gpu(&self, backend: &Cuda) -> Option<Gpu> {
        let properties = backend.gpu();
        let uuid: String = properties.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Gpu { host: String::new(), name: properties.name.clone(), uuid: format!("GPU-{uuid}") })
    }
}
