//! The CPU as a kind of device.

use std::ffi::OsString;

use super::choices::{Table, VARIABLE};
use super::device::Cpu;
use super::environment;
use crate::{DeviceKind, DeviceSettings, Error, Precision, Unavailable};

/// The processors of this machine.
#[derive(Default)]
pub struct CpuDevice {
    notes: Vec<String>,
    /// The table that the environment names.
    table: Option<Table>,
}

impl CpuDevice {
    /// With what the environment says of the table.
    fn new(notes: Vec<String>, variable: Option<OsString>) -> Result<Self, Unavailable> {
        let named = |value: OsString| {
            let name = value.to_string_lossy();
            Table::named(&name).map_err(|why| Unavailable {
                why: format!("{VARIABLE}: {why}; unset {VARIABLE} to go by this processor's table"),
                present: true,
            })
        };
        let table = variable.filter(|value| !value.is_empty()).map(named).transpose()?;
        Ok(Self { notes, table })
    }
}

impl DeviceKind for CpuDevice {
    type Backend = Cpu;
    const NAME: &'static str = "cpu";
    const ABOUT: &'static str = "The CPU";
    const REMOVABLE: bool = false;
    const LAYOUT_CURE: &'static str = "the ranks' processors differ; set ONEDNN_MAX_CPU_ISA=AVX2 on all, or use nodes of one kind; \
         set TRIREME_CPU_TABLE on all or none";

    fn find(notes: Vec<String>) -> Result<Self, Unavailable> {
        // before MPI changes the environment
        Self::new(notes, std::env::var_os(VARIABLE))
    }

    fn read_environment(&self) -> Result<bool, Error> {
        environment::read().map(|()| true)
    }

    fn threads(&self, cores: usize) -> usize {
        cores
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Cpu, Error> {
        match settings.precision {
            Precision::F32 => {
                let cpu = Cpu::new(settings.threads)?;
                Ok(match &self.table {
                    Some(table) => cpu.by(table.clone()),
                    None => cpu,
                })
            }
            Precision::Bf16 => Cpu::in_bf16(settings.threads),
            Precision::F16 => Err(Error::Unsupported {
                op: "precision = \"f16\"".into(),
                why: "the CPU computes in f32 or, where its instructions allow, in bf16; use one of those, or --device cuda"
                    .into(),
            }),
        }
    }

    fn notes(&self, precision: Precision) -> Vec<String> {
        let idle = self.table.is_some() && precision != Precision::F32;
        let table = idle.then(|| format!("warning: {VARIABLE} has no effect: the tables are for f32 alone"));
        self.notes.iter().cloned().chain(table).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;

    #[test]
    fn the_environment_names_a_table_or_is_refused() {
        let of = |value: Option<&str>| CpuDevice::new(Vec::new(), value.map(OsString::from));
        let settings =
            DeviceSettings { threads: 1, node_rank: 0, precision: Precision::F32, tf32: false, deterministic: false };
        let described = |value| of(value).map(|device| device.open(&settings).unwrap().describe());
        assert!(described(Some("none")).unwrap().ends_with("1 thread, no table)"));
        assert!(described(Some("avx2")).unwrap().contains("1 thread, table avx2"));
        let own = Cpu::new(1).unwrap().describe();
        assert_eq!(described(None).unwrap(), own);
        assert_eq!(described(Some("")).unwrap(), own);
        let notes = |value, precision| of(value).map(|device| device.notes(precision)).ok().unwrap();
        assert!(notes(None, Precision::Bf16).is_empty() && notes(Some("avx2"), Precision::F32).is_empty());
        assert_eq!(notes(Some("avx2"), Precision::Bf16).len(), 1);
        let Err(Unavailable { why, .. }) = described(Some("zen")) else { panic!("taken") };
        assert!(why.starts_with("TRIREME_CPU_TABLE: \"zen\" is neither built in"), "{why}");
        assert!(why.ends_with("; unset TRIREME_CPU_TABLE to go by this processor's table"), "{why}");
    }
}
