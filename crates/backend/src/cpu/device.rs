//! The CPU as a device: oneDNN's engine and threads, its memory, and the passes over flat arrays.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::bf16::Bf16;
use super::buf::{self, AlignedBuf, Scratch};
use super::choices::Table;
use super::format::Format;
use super::fusion::Fusion;
use super::isa::Isa;
use super::onednn::Engine;
use super::threads::Threads;
use super::{flat, update};
use crate::{Arena, DeviceMemory, Error, Region, Slot};

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
        &self.chunks[slot.chunk].as_slice()[slot.range()]
    }

    /// The elements of a slot for writing.
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.chunks[slot.chunk].as_mut_slice()[slot.range()]
    }
}
