//! The CUDA backend: convolutions are cuDNN's, matrix products cuBLASLt's, everything else kernels of our own, compiled by NVRTC for
//! the card that is found. Images lie channels last. Everything is enqueued on one stream; the host waits only for a pass's sums.
//!
//! NVIDIA's libraries are looked up when a card is asked for, so one binary runs with and without them.

mod algorithms;
mod cublaslt;
mod cudnn;
mod driver;
mod format;
mod kernels;
mod nccl;
mod ops;
mod pass;
mod record;
mod settings;
mod shared;

use std::ops::Range;
use std::rc::Rc;

pub use driver::context::{Card, cards};
pub use driver::library;
pub use driver::memory::CudaBuf;
pub use format::Format;
pub use settings::{Precision, Settings};

use super::op::{Op, Shape};
use super::{
    Algorithms, Arena, Backend, Buffer, Coder, Coding, Collective, CrossEntropy, Error, Input, LossScale, LossSums,
    Norms, ParamGroup, Planned, Request, Start, TensorDesc, Update,
};
use driver::context::Context;
use kernels::module::Arg::{At, U64};
use ops::{codec, conv, dropout, elementwise, input, linear, loss, lrn, norm, norms, pool, shortcut, update};
use shared::Shared;

/// One card. Use it from the thread that opened it; its buffers may go elsewhere.
pub struct Cuda {
    shared: Rc<Shared>,
    feed: input::Feed,
    records: record::Records,
}

impl Cuda {
    /// The card of this number among those that CUDA_VISIBLE_DEVICES leaves. Fails, and says what to do, where a library, the driver
    /// or the card is missing or too old.
    pub fn open(ordinal: usize, settings: Settings) -> Result<Self, Error> {
        library::require_all()?;
        let context = Context::open(ordinal)?;
        let shared = Rc::new(Shared::new(&context, settings)?);
        Ok(Self { shared, feed: input::Feed::default(), records: record::Records::default() })
    }

    /// What the card is.
    pub fn card(&self) -> &Card {
        &self.shared.context().card
    }
}

/// n images whose channels lie side by side.
fn channels_last(n: usize, shape: Shape) -> TensorDesc {
    TensorDesc { n, shape, block: shape.c.max(1) }
}

/// Bytes of a buffer.
fn bytes(buffer: &CudaBuf) -> usize {
    4 * buffer.len()
}

/// Whether memory order is (n, h, w, c).
fn is_channels_last(desc: &TensorDesc) -> bool {
    desc.block == desc.shape.c || desc.shape.plane() == 1 || desc.shape.c == 1
}

/// The inputs' layouts as the operation must see them: those of vectors as vectors.
fn layouts(r: &Request<'_, Cuda>) -> Result<Vec<TensorDesc>, Error> {
    let unfit = |why: &str| Error::Unsupported { op: r.name.into(), why: why.into() };
    let by_channel = matches!(r.op, Op::Conv(_) | Op::Norm(_) | Op::Pool(_) | Op::Lrn(_) | Op::Shortcut(_));
    if !r.x.iter().all(is_channels_last) {
        return Err(unfit("on a card it reads images whose channels lie side by side, not planes"));
    }
    let flattened = r.x.iter().zip(r.shapes).any(|(d, s)| d.shape != *s && d.shape.plane() > 1 && d.shape.c > 1);
    if flattened
        && !matches!(r.op, Op::Linear(_) | Op::Relu | Op::Tanh | Op::Dropout(_))
        && (by_channel || r.x.len() > 1)
    {
        return Err(unfit(
            "it reads a flattened image, whose memory order is not that of a vector; put a linear layer between",
        ));
    }
    // a flattened image stays an image for the linear layer behind it, and for what only passes it on
    let seen = |(d, s): (&TensorDesc, &Shape)| if flattened { *d } else { channels_last(d.n, *s) };
    Ok(r.x.iter().zip(r.shapes).map(seen).collect())
}

impl Backend for Cuda {
    type Buf = CudaBuf;
    type Format = Format;

    fn describe(&self) -> String {
        let (card, settings) = (self.card(), &self.shared.settings);
        let (major, minor) = card.capability;
        let tf32 = if settings.precision == Precision::F32 && settings.allow_tf32 { " with tf32" } else { "" };
        let same = if settings.deterministic { ", deterministic" } else { "" };
        format!(
            "cuda ({}, compute capability {major}.{minor}, {} multiprocessors, {:.0} GB, cuDNN {}, {}{tf32}{same})",
            card.name,
            card.multiprocessors,
            card.memory as f64 / 1e9,
            library::cudnn_version(),
            settings.precision
        )
    }

    fn scratch_bytes(&self) -> usize {
        self.shared.scratch_bytes()
    }

    fn free_bytes(&self) -> Result<Option<usize>, Error> {
        self.shared.context().memory().map(|(free, _)| Some(free))
    }

    fn alloc(&self, elems: usize) -> Result<CudaBuf, Error> {
        self.shared.start()?;
        self.shared.alloc(elems, "tensors")
    }

    fn words(&self, elems: usize) -> usize {
        self.shared.words(elems)
    }

    fn input(&self, n: usize, shape: Shape) -> TensorDesc {
        channels_last(n, shape)
    }

    fn collective_id() -> Result<Option<Vec<u8>>, Error> {
        nccl::new_id().map(Some)
    }

    fn collective(&self, id: &[u8], rank: usize, ranks: usize) -> Result<Box<dyn Collective<Self>>, Error> {
        Ok(Box::new(nccl::Ring::join(self, id, rank, ranks)?))
    }

    fn coder(&self, coding: &Coding, workers: Range<usize>) -> Result<Option<Box<dyn Coder<Self>>>, Error> {
        Ok(Some(Box::new(codec::Coder::new(&self.shared, coding, workers)?)))
    }

    fn algorithms(&self) -> Option<Algorithms> {
        Some(self.shared.chosen.used())
    }

    fn adopt(&self, algorithms: &Algorithms) {
        self.shared.chosen.adopt(algorithms);
    }

    fn plan(&self, r: &Request<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        let shared = &self.shared;
        shared.start()?;
        let x = layouts(r)?;
        let r = &Request { x: &x, ..*r };
        Ok(match r.op {
            Op::Conv(op) => Box::new(conv::Plan::new(shared, op, r)?),
            Op::Linear(op) => Box::new(linear::Plan::new(shared, op, r)?),
            Op::Norm(op) => Box::new(norm::Plan::new(shared, op, r)?),
            Op::Pool(op) => Box::new(pool::Plan::new(shared, op, r)?),
            Op::Lrn(op) => Box::new(lrn::Plan::new(shared, op, r)?),
            Op::Shortcut(op) => Box::new(shortcut::Plan::new(shared, op, r)?),
            Op::Dropout(p) => Box::new(dropout::Plan::new(shared, *p, r)),
            Op::Relu => Box::new(elementwise::Plan::new(shared, elementwise::Kind::Relu, r)),
            Op::Tanh => Box::new(elementwise::Plan::new(shared, elementwise::Kind::Tanh, r)),
            Op::Add => Box::new(elementwise::Plan::new(shared, elementwise::Kind::Add, r)),
            Op::Flatten => Box::new(elementwise::Plan::new(shared, elementwise::Kind::Copy, r)),
        })
    }

    fn format_elems(&self, format: &Format) -> usize {
        format.elems()
    }

    fn pack(format: &Format, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        format.pack(plain, packed)
    }

    fn unpack(format: &Format, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        format.unpack(packed, plain)
    }

    fn upload(&self, values: &[f32], to: &mut CudaBuf) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let to = shared.holds(to, values.len())?;
        let mut host = shared.pinned(values.len(), "values")?;
        host.as_mut_slice().copy_from_slice(values);
        shared.start()?;
        if shared.settings.precision == Precision::F32 {
            host.send(values.len(), to, shared.stream())?;
            return shared.settle();
        }
        let wide = shared.alloc(values.len(), "values")?;
        host.send(values.len(), wide.address(), shared.stream())?;
        let args = [At(wide.address()), At(to), U64(values.len() as u64)];
        // SAFETY: both hold as many elements (checked).
        unsafe { shared.launch("cast_weights", shared.grid(values.len()), &args)? };
        shared.settle()
    }

    fn begin(&self, start: &Start<'_>, desc: &TensorDesc, to: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start()?;
        {
            let mut blocks = shared.blocks.borrow_mut();
            let rows = start.key.ids.len();
            let moved =
                [blocks.fit_rows(&shared.queues, rows)?, blocks.fit_running(&shared.queues, start.running.len())?];
            if moved.contains(&true) {
                shared.moved.set(shared.moved.get() + 1);
            }
            let stream = shared.stream();
            blocks.ids.write(start.key.ids, stream)?;
            blocks.epoch.write(&[start.key.epoch], stream)?;
            if !start.training {
                blocks.running.write(start.running, stream)?;
            }
            blocks.asked = start.loss.is_some();
            blocks.rows = 0;
            if let Some(ask) = &start.loss {
                blocks.labels.write(ask.labels, stream)?;
                blocks.ask.write(&[ask.smoothing, ask.scale], stream)?;
                blocks.rows = ask.labels.len() as u64;
            }
        }
        self.feed.take(shared, &start.images, desc, to)
    }

    fn queues(&self) -> bool {
        true
    }

    fn prefetch(&self, images: &Input<'_>) -> Result<(), Error> {
        self.feed.send(&self.shared, images).map(|_| ())
    }

    fn keep(&self, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error> {
        self.shared.start()?;
        self.feed.keep(&self.shared, pictures, height, width)
    }

    fn repeat<E: From<Error>>(&self, key: u64, work: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        self.records.run(&self.shared, key, work)
    }

    fn mark(&self, buffer: &mut CudaBuf) -> Result<(), Error> {
        buffer.mark(self.shared.recording.get())
    }

    fn sums(&self) -> Result<LossSums, Error> {
        loss::sums(&self.shared)
    }

    fn download(&self, desc: &TensorDesc, from: &CudaBuf) -> Result<Vec<f32>, Error> {
        let elems = desc.elems();
        let mut words = vec![0.0; self.shared.words(elems)];
        // a mark on the buffer may be older than its last change
        self.shared.settle()?;
        from.read(0, &mut words)?;
        let halves = || words.iter().flat_map(|w| [w.to_bits() as u16, (w.to_bits() >> 16) as u16]).take(elems);
        let values: Vec<f32> = match self.shared.settings.precision {
            Precision::F32 => words,
            Precision::Bf16 => halves().map(|h| half::bf16::from_bits(h).to_f32()).collect(),
            Precision::F16 => halves().map(|h| half::f16::from_bits(h).to_f32()).collect(),
        };
        let mut plain = vec![0.0; desc.n * desc.shape.elems()];
        desc.to_plain(&values, &mut plain);
        Ok(plain)
    }

    fn copy(&self, to: &mut CudaBuf, from: &CudaBuf) -> Result<(), Error> {
        self.shared.start()?;
        to.copy_from(from)
    }

    fn zero(&self, to: &mut CudaBuf) -> Result<(), Error> {
        self.shared.start()?;
        to.clear()
    }

    fn add(&self, to: &mut CudaBuf, from: &CudaBuf) -> Result<(), Error> {
        update::add(&self.shared, to, from)
    }

    fn add_tensors(&self, to: &mut CudaBuf, from: &CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let n = 4 / shared.activation_bytes() * to.len().min(from.len());
        let (a, b) = (At(to.address()), At(from.address()));
        // SAFETY: both hold n activations.
        unsafe { shared.launch("sum_of_two", shared.grid(n.div_ceil(4)), &[a, b, a, U64(n as u64)]) }
    }

    fn scale(&self, to: &mut CudaBuf, factor: f32) -> Result<(), Error> {
        update::scale(&self.shared, to, factor)
    }

    fn inspect(&self, gradients: &[CudaBuf]) -> Result<(), Error> {
        update::inspect(&self.shared, gradients)
    }

    fn loss_scale(&self) -> Result<Option<LossScale>, Error> {
        if self.shared.settings.precision != Precision::F16 {
            return Ok(None);
        }
        self.shared.settle()?;
        Ok(Some(self.shared.blocks.borrow().scale()))
    }

    fn set_loss_scale(&self, scale: LossScale) -> Result<(), Error> {
        self.shared.settle()?;
        self.shared.blocks.borrow_mut().set_scale(scale)
    }

    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &CudaBuf,
        w: &mut CudaBuf,
        g: &CudaBuf,
        slots: &mut [&mut CudaBuf],
    ) -> Result<bool, Error> {
        update::update(&self.shared, update, groups, rates, w, g, slots)?;
        Ok(true)
    }

    fn begin_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        update::begin(&self.shared, update, average)
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut CudaBuf,
    ) -> Result<(), Error> {
        norms::rates(&self.shared, norms, update, weights, gradients, to)
    }

    fn clamp(&self, x: &mut CudaBuf, limit: f32) -> Result<(), Error> {
        update::clamp(&self.shared, x, limit)
    }

    fn lerp(&self, to: &mut CudaBuf, from: &CudaBuf, _: f32) -> Result<(), Error> {
        update::lerp(&self.shared, to, from)
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &CudaBuf,
        dx: Option<&mut CudaBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::cross_entropy(&self.shared, desc, ask, x, dx)?;
        Ok(None)
    }
}
