//! NVIDIA's GPUs as a kind of device.

use super::device::Cuda;
use super::driver::context::gpu_count;
use super::settings::Settings;
use crate::backend::{DeviceKind, DeviceSettings, Error, Gpu};

/// NVIDIA's GPUs.
pub struct CudaDevice;

impl DeviceKind for CudaDevice {
    type Backend = Cuda;
    const NAME: &'static str = "cuda";
    const REMOVABLE: bool = true;
    const LAYOUT_CURE: &'static str = "the ranks' GPUs or their libraries differ; use nodes of one kind";

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

    fn gpu(&self, backend: &Cuda) -> Option<Gpu> {
        let properties = backend.gpu();
        let uuid: String = properties.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Gpu { host: String::new(), name: properties.name.clone(), uuid: format!("GPU-{uuid}") })
    }
}
