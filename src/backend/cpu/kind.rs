//! The CPU as a kind of device.

use super::device::Cpu;
use super::environment;
use crate::backend::{DeviceKind, DeviceSettings, Error, Precision, Unavailable};

/// The processors of this machine.
#[derive(Default)]
pub struct CpuDevice {
    notes: Vec<String>,
}

impl DeviceKind for CpuDevice {
    type Backend = Cpu;
    const NAME: &'static str = "cpu";
    const ABOUT: &'static str = "The CPU";
    const REMOVABLE: bool = false;
    const LAYOUT_CURE: &'static str =
        "the ranks' processors differ; set ONEDNN_MAX_CPU_ISA=AVX2 on all, or use nodes of one kind";

    fn find(notes: Vec<String>) -> Result<Self, Unavailable> {
        Ok(Self { notes })
    }

    fn read_environment(&self) -> Result<bool, Error> {
        environment::read().map(|()| true)
    }

    fn threads(&self, cores: usize) -> usize {
        cores
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Cpu, Error> {
        match settings.precision {
            Precision::F32 => Cpu::new(settings.threads),
            Precision::Bf16 => Cpu::in_bf16(settings.threads),
            Precision::F16 => Err(Error::Unsupported {
                op: "precision = \"f16\"".into(),
                why: "the CPU computes in f32 or, where its instructions allow, in bf16; use one of those, or --device cuda"
                    .into(),
            }),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
