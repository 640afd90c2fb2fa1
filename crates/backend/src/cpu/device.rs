//! The CPU as a device: how it is opened, oneDNN's engine and threads, its memory, and the passes over flat arrays.

use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::Range;
use std::rc::Rc;

use super::buf::{self, AlignedBuf, Scratch};
use super::choices::{Table, VARIABLE};
use super::fusion::Fusion;
use super::isa::Isa;
use super::layout::Format;
use super::number::Bf16;
use super::onednn::Engine;
use super::threads::Threads;
use super::{flat, onednn, update};
use crate::{Arena, DeviceKind, DeviceMemory, DeviceSettings, Error, Precision, Region, Slot, Unavailable};

/// Compute threads of one rank at most: beyond any node's cores.
const MOST_THREADS: usize = 1024;

/// oneDNN on the cores of this rank. Use it from the thread that made it: the OpenMP pool belongs to that thread.
pub struct Cpu {
    pub(super) engine: Rc<Engine>,
    pub(super) threads: Threads,
    /// Work space of our own convolutions.
    pub(super) scratch: Rc<Scratch>,
    /// Work space of oneDNN's: weights in the layout of the pass that runs.
    pub(super) copies: Rc<Scratch>,
    /// What oneDNN uses.
    pub(super) isa: Isa,
    /// Who computes convolutions in f32.
    pub(super) table: RefCell<Table>,
    /// Whether the user has named the table, which then no other replaces.
    pub(super) named: bool,
    /// Channels per block: what one vector register of the instruction set holds.
    pub(super) block: usize,
    /// How factors of products are rounded, if they are.
    pub(super) bf16: Option<Bf16>,
    /// Whether convolutions read and write images channels last, as tiles want them, where there are such for them.
    pub(super) channels_last: bool,
    /// Whether operations may leave their outputs in bf16: where their readers round them anyway.
    pub(super) narrows: bool,
    /// Whether operations whose output costs little offer to make it anew in backward.
    pub(super) recomputes: bool,
    /// Whether operations do parts of their neighbours' work.
    pub(super) fuses: bool,
}

impl Cpu {
    /// With this many threads, in f32.
    pub fn new(threads: usize) -> Result<Self, Error> {
        Self::with_factors(threads, None)
    }

    /// With factors of convolutions and linear layers in bf16, all else in f32; an error that says what is missing where the
    /// processor has no instructions for it.
    pub fn in_bf16(threads: usize) -> Result<Self, Error> {
        Self::bf16().map_err(|why| Error::Unsupported {
            op: "precision = \"bf16\" on the CPU".into(),
            why: format!("{why}; use precision = \"f32\", or --device cuda"),
        })?;
        Self::with_factors(threads, Some(Bf16::Halves))
    }

    /// The same keeping every output that backward reads, to compare with.
    pub fn keeping_outputs(self) -> Self {
        Self { recomputes: false, ..self }
    }

    /// The same with every operation by itself, to compare with.
    pub fn unfused(self) -> Self {
        Self { fuses: false, ..self }
    }

    /// Whether [`Cpu::in_bf16`] can be had, or what is missing.
    pub fn bf16() -> Result<(), String> {
        Isa::effective().bf16()
    }

    /// The same in f32 instructions on rounded factors: slow, for tests on any processor.
    pub fn in_widened_bf16(threads: usize) -> Result<Self, Error> {
        Self::with_factors(threads, Some(Bf16::Widened))
    }

    fn with_factors(threads: usize, bf16: Option<Bf16>) -> Result<Self, Error> {
        if threads > MOST_THREADS {
            let why = format!(
                "{threads} are requested, {MOST_THREADS} is the most; leave --threads out to use this rank's cores"
            );
            return Err(Error::Unsupported { op: "compute threads".into(), why });
        }
        let threads = threads.max(1);
        let (engine, isa) = (Rc::new(Engine::new(threads)?), Isa::effective());
        let (threads, block) = (Threads(threads), isa.block());
        let channels_last = bf16 == Some(Bf16::Halves) && isa.has_tiles();
        let table = RefCell::new(Table::of_processor(isa));
        let [scratch, copies] = std::array::from_fn(|_| Rc::default());
        Ok(Self {
            engine,
            threads,
            scratch,
            copies,
            isa,
            table,
            named: false,
            block,
            bf16,
            channels_last,
            narrows: bf16.is_some() && !channels_last,
            recomputes: true,
            fuses: true,
        })
    }

    /// With this table in place of the processor's, whatever other ranks or an earlier start have.
    pub(super) fn by(self, table: Table) -> Self {
        Self { table: RefCell::new(table), named: true, ..self }
    }
}

impl DeviceMemory for Cpu {
    type Buf = AlignedBuf;
    type Format = Format;
    type Fusion = Fusion;

    fn alloc(&self, elems: usize) -> Result<AlignedBuf, Error> {
        AlignedBuf::touched_by(self.threads, elems, "tensors")
    }

    fn region(&self, elems: usize, _: &[Range<usize>]) -> Result<Box<dyn Region<AlignedBuf>>, Error> {
        Ok(Box::new(buf::Region::new(self.threads, elems, "tensors")?))
    }

    /// All that the machine has: what the page cache holds can be had, too.
    fn free_bytes(&self) -> Result<Option<usize>, Error> {
        Ok(Some(usize::try_from(loaders::memory::total()).unwrap_or(usize::MAX)))
    }

    fn scratch_bytes(&self) -> usize {
        self.engine.scratch_bytes() + self.scratch.bytes() + self.copies.bytes()
    }

    fn copy(&self, to: &mut AlignedBuf, from: &AlignedBuf) -> Result<(), Error> {
        to.as_mut_slice().copy_from_slice(from.as_slice());
        Ok(())
    }

    fn zero(&self, to: &mut AlignedBuf) -> Result<(), Error> {
        to.as_mut_slice().fill(0.0);
        Ok(())
    }

    fn add(&self, to: &mut AlignedBuf, from: &AlignedBuf) -> Result<(), Error> {
        flat::add_to(self.threads, to.as_mut_slice(), from.as_slice());
        Ok(())
    }

    fn scale(&self, to: &mut AlignedBuf, factor: f32) -> Result<(), Error> {
        // needed in a few steps of a run, if at all: not worth waking the threads
        to.as_mut_slice().iter_mut().for_each(|x| *x *= factor);
        Ok(())
    }

    fn clamp(&self, x: &mut AlignedBuf, limit: f32) -> Result<(), Error> {
        update::clamp(self.threads, x.as_mut_slice(), limit);
        Ok(())
    }

    fn lerp(&self, to: &mut AlignedBuf, from: &AlignedBuf, weight: f32) -> Result<(), Error> {
        update::lerp(self.threads, to.as_mut_slice(), from.as_slice(), weight);
        Ok(())
    }
}

impl Arena<Cpu> {
    /// The elements of a slot.
    pub(super) fn get(&self, slot: Slot) -> &[f32] {
        &self.buckets[slot.bucket].as_slice()[slot.range()]
    }

    /// The elements of a slot for writing.
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.buckets[slot.bucket].as_mut_slice()[slot.range()]
    }
}

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
        onednn::read_environment().map(|()| true)
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
