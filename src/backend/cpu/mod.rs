//! The CPU backend. Convolutions and matrix products are oneDNN's, in blocked layouts from the first convolution to the last
//! pool; the passes between them (batch norm with residual and ReLU, pooling, LRN, optimizer) are loops of our own that read
//! memory once, on oneDNN's thread pool.

mod affine;
mod bf16;
mod buf;
mod dropout;
mod elementwise;
mod isa;
mod layout;
mod loss;
mod lrn;
mod narrow;
mod norm;
mod onednn;
mod pool;
mod product;
mod shortcut;
mod signals;
mod threads;
mod update;
mod winograd;

use std::rc::Rc;

use crate::simd;
use bf16::Bf16;
pub use buf::AlignedBuf;
use buf::Scratch;
use isa::Isa;
use layout::Md;
use onednn::Engine;
use threads::Threads;

use super::op::{Op, Shape};
use super::{
    Arena, Backend, Buffer, CrossEntropy, Error, LossSums, Norms, ParamGroup, Planned, Request, Slot, TensorDesc,
    Update,
};

/// Compute threads of one rank at most: beyond any node's cores.
const MOST_THREADS: usize = 1024;

/// oneDNN on the cores of this rank. Use it from the thread that made it: the OpenMP pool belongs to that thread.
pub struct Cpu {
    engine: Rc<Engine>,
    threads: Threads,
    /// Work space of our own convolutions.
    scratch: Rc<Scratch>,
    /// Channels per block: what one vector register of the instruction set holds.
    block: usize,
    /// How factors of products are rounded, if they are.
    bf16: Option<Bf16>,
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
                "{threads} are asked for, {MOST_THREADS} is the most; leave --threads out to use this rank's cores"
            );
            return Err(Error::Unsupported { op: "compute threads".into(), why });
        }
        let threads = threads.max(1);
        let engine = Rc::new(Engine::new(threads)?);
        Ok(Self { engine, threads: Threads(threads), scratch: Rc::default(), block: Isa::effective().block(), bf16 })
    }
}

/// How a parameter lies in the arena.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Weights in a layout of oneDNN's choice.
    Weights(Box<Md>),
    /// A vector of this many elements.
    Plain(usize),
}

impl Arena<Cpu> {
    /// The elements of a slot.
    fn get(&self, slot: Slot) -> &[f32] {
        &self.chunks[slot.chunk].as_slice()[slot.range()]
    }

    /// The elements of a slot for writing.
    fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.chunks[slot.chunk].as_mut_slice()[slot.range()]
    }
}

/// Whether both sides of a copy of weights are as long as their layout says.
fn fits(md: &Md, plain: &[f32], packed: &[f32]) -> Result<(), Error> {
    for (what, elems, len) in [("plain", md.plain_elems(), plain.len()), ("packed", md.elems(), packed.len())] {
        if len < elems {
            let (expected, got) = (format!("{elems} elements"), len.to_string());
            return Err(Error::Size { op: format!("{what} side of a weight copy"), expected, got });
        }
    }
    Ok(())
}

/// The inputs' layouts as the operation must see them: a flattened image in plain order is a vector. Errors where the channel
/// blocks of an input would be taken for something else.
fn layouts(r: &Request<'_, Cpu>) -> Result<Vec<TensorDesc>, Error> {
    let seen = |(d, s): (&TensorDesc, &Shape)| if d.is_plain() { TensorDesc { shape: *s, ..*d } } else { *d };
    let x: Vec<TensorDesc> = r.x.iter().zip(r.shapes).map(seen).collect();
    let alike = |d: &TensorDesc| *d == x[0] || (d.is_plain() && x[0].is_plain());
    let by_channel = matches!(r.op, Op::Conv(_) | Op::Norm(_) | Op::Pool(_) | Op::Lrn(_) | Op::Shortcut(_));
    let why = if !x.iter().all(alike) {
        "its inputs have different memory layouts, as the image itself and what a convolution made of it have; \
         put a convolution or a linear layer between"
    } else if by_channel && x[0].shape != r.shapes[0] {
        "it reads a flattened image whose memory layout is not that of a vector; put a linear layer between"
    } else {
        return Ok(x);
    };
    Err(Error::Unsupported { op: r.name.into(), why: why.into() })
}

impl Backend for Cpu {
    type Buf = AlignedBuf;
    type Format = Format;

    fn describe(&self) -> String {
        let (library, isa, threads) = (onednn::version(), Isa::effective().name(), self.threads.0);
        let plural = if threads == 1 { "" } else { "s" };
        let factors = self.bf16.map_or("", Bf16::name);
        format!("cpu ({library}, {isa}, {threads} thread{plural}{factors})")
    }

    fn scratch_bytes(&self) -> usize {
        self.engine.scratch_bytes() + self.scratch.bytes()
    }

    fn alloc(&self, elems: usize) -> Result<AlignedBuf, Error> {
        AlignedBuf::zeroed(elems, "tensors")
    }

    fn plan(&self, r: &Request<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        let threads = self.threads;
        let x = layouts(r)?;
        let r = &Request { x: &x, ..*r };
        Ok(match r.op {
            Op::Conv(op) => match winograd::plan(self, r, op) {
                Some(plan) => plan?,
                None => Box::new(affine::Plan::conv(self, r, op)?),
            },
            Op::Linear(op) => Box::new(affine::Plan::linear(self, r, op)?),
            Op::Norm(op) => Box::new(norm::Plan::new(threads, op.clone(), r)),
            Op::Pool(op) => Box::new(pool::Plan::new(threads, op, r)?),
            Op::Lrn(op) => Box::new(lrn::Plan::new(threads, *op, r)),
            Op::Shortcut(op) => Box::new(shortcut::Plan::new(threads, *op, r)?),
            Op::Dropout(p) => Box::new(dropout::Plan::new(threads, *p, r)?),
            Op::Relu => Box::new(elementwise::Plan::new(threads, elementwise::Kind::Relu, r)),
            Op::Tanh => Box::new(elementwise::Plan::new(threads, elementwise::Kind::Tanh, r)),
            Op::Add => Box::new(elementwise::Plan::new(threads, elementwise::Kind::Add, r)),
            Op::Flatten => Box::new(elementwise::Plan::new(threads, elementwise::Kind::Copy, r)),
        })
    }

    fn format_elems(&self, format: &Format) -> usize {
        match format {
            Format::Weights(md) => md.elems(),
            Format::Plain(n) => *n,
        }
    }

    fn pack(format: &Format, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        match format {
            Format::Weights(md) => {
                fits(md, plain, packed)?;
                md.pack(plain, packed);
            }
            Format::Plain(n) => packed[..*n].copy_from_slice(plain),
        }
        Ok(())
    }

    fn unpack(format: &Format, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        match format {
            Format::Weights(md) => {
                fits(md, plain, packed)?;
                md.unpack(packed, plain);
            }
            Format::Plain(n) => plain.copy_from_slice(&packed[..*n]),
        }
        Ok(())
    }

    fn upload(&self, images: &[f32], to: &mut AlignedBuf) -> Result<(), Error> {
        to.as_mut_slice()[..images.len()].copy_from_slice(images);
        Ok(())
    }

    fn download(&self, desc: &TensorDesc, from: &AlignedBuf) -> Result<Vec<f32>, Error> {
        let mut plain = vec![0.0; desc.n * desc.shape.elems()];
        desc.to_plain(from.as_slice(), &mut plain);
        Ok(plain)
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
        elementwise::add_to(self.threads, to.as_mut_slice(), from.as_slice());
        Ok(())
    }

    fn scale(&self, to: &mut AlignedBuf, factor: f32) -> Result<(), Error> {
        // asked for in a few steps of a run, if at all: not worth waking the threads
        to.as_mut_slice().iter_mut().for_each(|x| *x *= factor);
        Ok(())
    }

    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &AlignedBuf,
        w: &mut AlignedBuf,
        g: &AlignedBuf,
        slots: &mut [&mut AlignedBuf],
    ) -> Result<bool, Error> {
        let slots: Vec<&mut [f32]> = slots.iter_mut().map(|slot| slot.as_mut_slice()).collect();
        let (w, g) = (w.as_mut_slice(), g.as_slice());
        Ok(update::update(self.threads, update, groups, rates.as_slice(), w, g, slots))
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut AlignedBuf,
    ) -> Result<(), Error> {
        let squares = |arena: &Arena<Self>| -> Vec<f64> {
            let chunks = arena.chunks.iter().zip(&norms.tensors);
            chunks.flat_map(|(x, tensors)| update::squares(self.threads, x.as_slice(), tensors)).collect()
        };
        let weights = if update.rule.adapts() { squares(weights) } else { Vec::new() };
        to.write(0, &norms.rates(update, &squares(gradients), &weights))
    }

    fn clamp(&self, x: &mut AlignedBuf, limit: f32) -> Result<(), Error> {
        update::clamp(self.threads, x.as_mut_slice(), limit);
        Ok(())
    }

    fn lerp(&self, to: &mut AlignedBuf, from: &AlignedBuf, weight: f32) -> Result<(), Error> {
        update::lerp(self.threads, to.as_mut_slice(), from.as_slice(), weight);
        Ok(())
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &AlignedBuf,
        dx: Option<&mut AlignedBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::cross_entropy(desc, ask, x.as_slice(), dx.map(AlignedBuf::as_mut_slice)).map(Some)
    }
}
