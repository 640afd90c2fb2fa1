//! The CPU as a device: opening it, oneDNN's engine and threads, its memory, and passes over flat arrays.

use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::Range;
use std::rc::Rc;

use super::buf::{AlignedBuf, Scratch};
use super::choices::{Table, VARIABLE};
use super::fusion::Fusion;
use super::isa::Isa;
use super::layout::Format;
use super::number::Bf16;
use super::onednn::Engine;
use super::threads::Threads;
use super::{flat, onednn, update};
use crate::memory::Whole;
use crate::{
    Arena, DeviceKind, DeviceMemory, DeviceSettings, Error, MemoryLimit, Precision, Region, Slot, Unavailable,
};

/// Maximum number of compute threads per rank, more than any node has cores.
const MOST_THREADS: usize = 1024;

/// oneDNN and our loops on the cores of this rank. Use it only from the thread that created it, because the OpenMP pool
/// belongs to that thread.
pub struct Cpu {
    pub(super) engine: Rc<Engine>,
    pub(super) threads: Threads,
    /// Number of ranks that share this node's memory.
    node_ranks: usize,
    /// Workspace of our own kernels.
    pub(super) scratch: Rc<Scratch>,
    /// Workspace for oneDNN: weights in the layout that the running primitive needs.
    pub(super) weight_copies: Rc<Scratch>,
    /// The instruction set that oneDNN uses.
    pub(super) isa: Isa,
    /// Selects the kernels of convolutions in f32.
    pub(super) table: RefCell<Table>,
    /// True if the user has named the table. Then no other table replaces it.
    pub(super) named: bool,
    /// Channels per block: the number of f32 lanes in a vector register.
    pub(super) block: usize,
    /// How factors of products are rounded to bf16, or `None` for f32.
    pub(super) bf16: Option<Bf16>,
    /// True if convolutions with tile primitives read and write images channels last.
    pub(super) channels_last: bool,
    /// True if operations may write their outputs in bf16 when all readers round them anyway.
    pub(super) writes_bf16: bool,
    /// True if operations offer to recompute outputs that are cheap to compute.
    pub(super) recomputes: bool,
    /// True if operations may be fused with their neighbours.
    pub(super) fuses: bool,
}

impl Cpu {
    /// Opens the CPU with f32 factors.
    pub fn new(threads: usize) -> Result<Self, Error> {
        Self::with_factors(threads, None)
    }

    /// Opens the CPU with bf16 factors in convolutions and linear layers and f32 elsewhere. Returns an error that names
    /// the missing instructions if the processor does not support bf16.
    pub fn in_bf16(threads: usize) -> Result<Self, Error> {
        Self::bf16().map_err(|why| Error::Unsupported {
            op: "precision = \"bf16\" on the CPU".into(),
            why: format!("{why}; use precision = \"f32\", or --device cuda"),
        })?;
        Self::with_factors(threads, Some(Bf16::Native))
    }

    /// Turns recomputation off, so that every output that backward reads is kept. For comparisons.
    pub fn without_recomputation(self) -> Self {
        Self { recomputes: false, ..self }
    }

    /// Turns fusions off. For comparisons.
    pub fn unfused(self) -> Self {
        Self { fuses: false, ..self }
    }

    /// Returns an error that says what is missing if [`Cpu::in_bf16`] is not available.
    pub fn bf16() -> Result<(), String> {
        Isa::effective().bf16()
    }

    /// Works like [`Cpu::in_bf16`], but with f32 instructions on rounded factors. It is slow, and tests can use it on
    /// any processor.
    pub fn in_emulated_bf16(threads: usize) -> Result<Self, Error> {
        Self::with_factors(threads, Some(Bf16::Emulated))
    }

    fn with_factors(threads: usize, bf16: Option<Bf16>) -> Result<Self, Error> {
        if threads > MOST_THREADS {
            let why = format!(
                "{threads} are requested, at most {MOST_THREADS} are possible; omit --threads to use this rank's cores"
            );
            return Err(Error::Unsupported { op: "compute threads".into(), why });
        }
        let threads = threads.max(1);
        let (engine, isa) = (Rc::new(Engine::new(threads)?), Isa::effective());
        let (threads, block) = (Threads(threads), isa.block());
        let channels_last = bf16 == Some(Bf16::Native) && isa.has_tiles();
        let table = RefCell::new(Table::for_processor(isa));
        let [scratch, weight_copies] = std::array::from_fn(|_| Rc::default());
        Ok(Self {
            engine,
            threads,
            node_ranks: 1,
            scratch,
            weight_copies,
            isa,
            table,
            named: false,
            block,
            bf16,
            channels_last,
            writes_bf16: bf16.is_some() && !channels_last,
            recomputes: true,
            fuses: true,
        })
    }

    /// Replaces the processor's table. Tables of other ranks or of a checkpoint no longer have an effect.
    pub(super) fn with_table(self, table: Table) -> Self {
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
        Ok(Box::new(Whole::new(self.alloc(elems)?)))
    }

    /// Returns what is left of this rank's share: the node's whole memory divided by its number of ranks. Apart from
    /// the networks of this rank, memory in use also counts, because the system can free its page cache.
    fn memory_limit(&self, allocated: usize) -> Result<Option<MemoryLimit>, Error> {
        let left = loaders::memory::share_left(self.node_ranks, allocated as u64);
        let bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let user = match self.node_ranks {
            1 => "this process".into(),
            ranks => format!("each of the {ranks} ranks on this node"),
        };
        let most = bytes.saturating_add(allocated) as f64 / 1e6;
        Ok(Some(MemoryLimit { bytes, text: format!("{user} can use at most {most:.0} MB") }))
    }

    fn scratch_bytes(&self) -> usize {
        self.engine.scratch_bytes() + self.scratch.bytes() + self.weight_copies.bytes()
    }

    fn copy(&self, to: &mut AlignedBuf, from: &AlignedBuf) -> Result<(), Error> {
        let to = to.as_mut_slice();
        to.copy_from_slice(&from.as_slice()[..to.len()]);
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
        // Only a few steps of a run, if any, scale a buffer, so it is not worth waking the threads.
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
    pub(super) fn get(&self, slot: Slot) -> &[f32] {
        &self.buckets[slot.bucket].as_slice()[slot.range()]
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.buckets[slot.bucket].as_mut_slice()[slot.range()]
    }
}

#[derive(Default)]
pub struct CpuDevice {
    notes: Vec<String>,
    /// The table that the environment variable names.
    table: Option<Table>,
}

impl CpuDevice {
    /// Creates the device kind. `variable` is the value of [`VARIABLE`], or `None` if it is not set.
    fn new(notes: Vec<String>, variable: Option<OsString>) -> Result<Self, Unavailable> {
        let named = |value: OsString| {
            let name = value.to_string_lossy();
            Table::named(&name).map_err(|why| Unavailable {
                why: format!("{VARIABLE}: {why}; unset {VARIABLE} to use this processor's table"),
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
    const USES_CORES: bool = true;
    const LAYOUT_CURE: &'static str = "the ranks' processors differ; set ONEDNN_MAX_CPU_ISA=AVX2 on all ranks, or use nodes of one kind; \
         set TRIREME_CPU_TABLE on all ranks or on none";

    fn find(notes: Vec<String>) -> Result<Self, Unavailable> {
        // Read it now, before MPI changes the environment.
        Self::new(notes, std::env::var_os(VARIABLE))
    }

    fn read_environment(&self) -> Result<bool, Error> {
        onednn::read_environment().map(|()| true)
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Cpu, Error> {
        let cpu = match settings.precision {
            Precision::F32 => {
                let cpu = Cpu::new(settings.threads)?;
                match &self.table {
                    Some(table) => cpu.with_table(table.clone()),
                    None => cpu,
                }
            }
            Precision::Bf16 => Cpu::in_bf16(settings.threads)?,
            Precision::F16 => {
                let why = "the CPU computes in f32, or in bf16 if it has the instructions; use one of these, or use --device cuda";
                return Err(Error::Unsupported { op: "precision = \"f16\"".into(), why: why.into() });
            }
        };
        Ok(Cpu { node_ranks: settings.node_ranks, ..cpu })
    }

    fn notes(&self, precision: Precision, _tf32: bool) -> Vec<String> {
        let idle = self.table.is_some() && precision != Precision::F32;
        let table = idle.then(|| format!("warning: {VARIABLE} has no effect: the tables apply only to f32"));
        self.notes.iter().cloned().chain(table).collect()
    }

    fn why_chosen(&self) -> Option<&str> {
        self.notes.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;

    fn settings(node_ranks: usize) -> DeviceSettings {
        let precision = Precision::F32;
        DeviceSettings { threads: 1, node_rank: 0, node_ranks, precision, tf32: false, deterministic: false }
    }

    #[test]
    fn ranks_of_a_node_share_its_memory() {
        let limit = |ranks, allocated| {
            CpuDevice::default().open(&settings(ranks)).unwrap().memory_limit(allocated).unwrap().unwrap()
        };
        let (one, four) = (limit(1, 0), limit(4, 0));
        assert!(four.bytes <= one.bytes);
        if loaders::memory::limits().is_none() {
            assert_eq!(four.bytes, one.bytes / 4);
            // the first network leaves less memory for a second network
            let second = limit(4, 1 << 20);
            assert_eq!((second.bytes, &second.text), (four.bytes - (1 << 20), &four.text));
        }
        let megabytes = format!("{:.0} MB", four.bytes as f64 / 1e6);
        assert_eq!(four.text, format!("each of the 4 ranks on this node can use at most {megabytes}"));
        assert!(one.text.starts_with("this process can use"), "{}", one.text);
    }

    #[test]
    fn environment_variable_names_a_table_or_is_refused() {
        let of = |value: Option<&str>| CpuDevice::new(Vec::new(), value.map(OsString::from));
        let described = |value| of(value).map(|device| device.open(&settings(1)).unwrap().describe());
        assert!(described(Some("none")).unwrap().ends_with("1 thread, no table)"));
        assert!(described(Some("avx2")).unwrap().contains("1 thread, table avx2"));
        let own = Cpu::new(1).unwrap().describe();
        assert_eq!(described(None).unwrap(), own);
        assert_eq!(described(Some("")).unwrap(), own);
        let notes = |value, precision| of(value).map(|device| device.notes(precision, false)).ok().unwrap();
        assert!(notes(None, Precision::Bf16).is_empty() && notes(Some("avx2"), Precision::F32).is_empty());
        assert_eq!(notes(Some("avx2"), Precision::Bf16).len(), 1);
        let Err(Unavailable { why, .. }) = described(Some("zen")) else { panic!("taken") };
        assert!(why.starts_with("TRIREME_CPU_TABLE: "), "{why}");
        assert!(why.contains("\"zen\"") && why.contains("unset "), "{why}");
    }
}
