//! The CUDA backend: convolutions are cuDNN's, matrix products cuBLASLt's, everything else kernels of our own, compiled by NVRTC for
//! the GPU that is found. Images lie channels last. Everything is enqueued on one stream; the host waits only for a pass's sums.
//!
//! NVIDIA's libraries are loaded when a GPU is requested, so one binary runs with and without them.

mod algorithms;
mod cublaslt;
mod cudnn;
mod device;
mod driver;
mod format;
mod kernels;
mod layout;
mod nccl;
mod ops;
mod pass;
mod record;
mod settings;
mod shared;
mod step;

use std::ops::Range;

pub use device::Cuda;
pub use driver::context::{Gpu, gpu_count};
pub use driver::library;
pub use driver::memory::CudaBuf;
pub use format::Format;
pub use settings::{Precision, Settings};

use super::op::{Op, Shape};
use super::{
    Algorithms, Arena, Backend, Buffer, Coder, Coding, Collective, CrossEntropy, Error, Input, LossScale, LossSums,
    Norms, ParamGroup, Planned, Request, Start, TensorDesc, Update,
};
use kernels::elementwise::{CastWeights, SumOfTwo};
use layout::{channels_last, layouts};
use ops::{codec, conv, dropout, elementwise, linear, loss, lrn, norm, norms, pool, shortcut, update};

impl Backend for Cuda {
    type Buf = CudaBuf;
    type Format = Format;

    fn describe(&self) -> String {
        let (gpu, settings) = (self.gpu(), &self.shared.settings);
        let (major, minor) = gpu.capability;
        let tf32 = if settings.precision == Precision::F32 && settings.allow_tf32 { " with tf32" } else { "" };
        let same = if settings.deterministic { ", deterministic" } else { "" };
        format!(
            "cuda ({}, compute capability {major}.{minor}, {} multiprocessors, {:.0} GB, cuDNN {}, {}{tf32}{same})",
            gpu.name,
            gpu.multiprocessors,
            gpu.memory as f64 / 1e9,
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
            Op::Relu => Box::new(elementwise::Plan::new(shared, elementwise::Function::Relu, r)),
            Op::Tanh => Box::new(elementwise::Plan::new(shared, elementwise::Function::Tanh, r)),
            Op::Add => Box::new(elementwise::Plan::new(shared, elementwise::Function::Add, r)),
            Op::Flatten => Box::new(elementwise::Plan::new(shared, elementwise::Function::Copy, r)),
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
        let (to, to_words) = (shared.holds(to, values.len())?, to.slice());
        let mut host = shared.pinned(values.len(), "values")?;
        host.as_mut_slice().copy_from_slice(values);
        shared.start()?;
        if shared.settings.precision == Precision::F32 {
            host.send(to_words.range(0, values.len())?, shared.stream())?;
            return shared.settle();
        }
        let from = shared.alloc(values.len(), "values")?;
        host.send(from.slice(), shared.stream())?;
        shared.launch(&CastWeights { from: from.slice(), to, n: values.len() as u64 })?;
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
            blocks.labelled = start.loss.is_some();
            blocks.rows = 0;
            if let Some(ask) = &start.loss {
                blocks.labels.write(ask.labels, stream)?;
                blocks.factors.write(&[ask.smoothing, ask.scale], stream)?;
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
        let precision = shared.settings.precision;
        let (a, b) = (to.activations(precision), from.activations(precision));
        shared.launch(&SumOfTwo { a, b, y: a, n: a.len().min(b.len()) as u64 })
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
