//! Implements the backend traits for [`Cuda`]: memory, arithmetic on whole buffers, planning of operations, the start
//! of a pass, the loss and the optimizer.

use std::ops::Range;
use std::time::Instant;

use net::{Op, Shape, for_each_op};

use super::device::Cuda;
use super::driver::library;
use super::driver::memory::{self, CudaBuf};
use super::kernels::declarations::{ArenaAdd, ArenaClamp, ArenaScale, CastWeights, SumOfTwo};
use super::layout::{Format, channels_last, layouts};
use super::nccl;
use super::ops::{codec, loss, narrow_params, shortcut, update};
use super::pass::PLACES;
use crate::update::Units;
use crate::{
    AlgorithmChoice, Algorithms, Arena, Backend, Buffer, CodeSpec, Collectives, CrossEntropy, DeviceCodec,
    DeviceMemory, Error, Input, LossScale, LossScaling, LossSums, MemoryLimit, Norms, ParamGroup, PassInput,
    PlanRequest, Planned, Precision, Queue, Ready, Region, ShapedShortcut, SoftLoss, TensorDesc, Update,
};

impl DeviceMemory for Cuda {
    type Buf = CudaBuf;
    type Format = Format;
    type Fusion = ();

    fn alloc(&self, elems: usize) -> Result<CudaBuf, Error> {
        self.shared.start()?;
        self.shared.alloc(elems, "tensors")
    }

    fn region(&self, elems: usize, _: &[Range<usize>]) -> Result<Box<dyn Region<CudaBuf>>, Error> {
        Ok(Box::new(memory::Region::new(self.alloc(elems)?)))
    }

    /// Returns the free memory of the GPU, which does not include memory that is already allocated.
    fn memory_limit(&self, _: usize) -> Result<Option<MemoryLimit>, Error> {
        let (free, _) = self.shared.context().memory()?;
        Ok(Some(MemoryLimit { bytes: free, text: format!("{} are free", memory::megabytes(free)) }))
    }

    fn scratch_bytes(&self) -> usize {
        self.shared.scratch_bytes()
    }

    fn parameter_bytes(&self) -> usize {
        // with 16-bit activations, a parameter has an f32 value and a 16-bit copy
        if self.shared.settings.precision == Precision::F32 { 4 } else { 6 }
    }

    fn words(&self, desc: &TensorDesc) -> usize {
        self.shared.words(desc.elems())
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
        let n = to.len().min(from.len()) as u64;
        self.shared.launch(&ArenaAdd { to: to.slice(), from: from.slice(), n })
    }

    fn scale(&self, to: &mut CudaBuf, factor: f32) -> Result<(), Error> {
        self.shared.launch(&ArenaScale { to: to.slice(), factor, n: to.len() as u64 })
    }

    fn clamp(&self, x: &mut CudaBuf, limit: f32) -> Result<(), Error> {
        self.shared.launch(&ArenaClamp { to: x.slice(), limit, n: x.len() as u64 })
    }

    fn lerp(&self, to: &mut CudaBuf, from: &CudaBuf, _: f32) -> Result<(), Error> {
        update::lerp(&self.shared, to, from)
    }
}

macro_rules! plan_op {
    ($($file:ident $name:ident,)*) => {
        fn plan_op(gpu: &Cuda, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
            match r.op { $(Op::$name(op) => super::ops::$file::plan(gpu, op, r),)* }
        }
    };
}
for_each_op!(plan_op);

impl Backend for Cuda {
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

    fn input(&self, n: usize, shape: Shape) -> TensorDesc {
        channels_last(n, shape)
    }

    fn plan(&self, r: &PlanRequest<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        self.shared.start()?;
        plan_op(self, &PlanRequest { x: &layouts(r)?, ..*r })
    }

    fn reads_through(&self, shortcut: &ShapedShortcut) -> bool {
        shortcut::in_whole_packs(&self.shared, shortcut)
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

    fn download(&self, desc: &TensorDesc, from: &CudaBuf) -> Result<Vec<f32>, Error> {
        let elems = desc.elems();
        let mut words = vec![0.0; self.shared.words(elems)];
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

    fn begin(&self, start: &PassInput<'_>, desc: &TensorDesc, to: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start()?;
        {
            let mut blocks = shared.blocks.borrow_mut();
            let rows = start.key.ids.len();
            shared.note_moved(blocks.fit_rows(&shared.queues, rows)?);
            shared.note_moved(blocks.running.fit(start.running.len(), "running statistics")?);
            let stream = shared.stream();
            blocks.outbox.begin(stream)?;
            blocks.inbox.set_pass(start.key.epoch, start.key.ids);
            if !start.training {
                blocks.running.write(start.running, stream)?;
            }
            blocks.labelled = start.loss.is_some();
            if let Some(args) = &start.loss {
                blocks.inbox.set_loss(args);
                blocks.outbox.expect(args.labels.len());
            }
        }
        if let Some(targets) = &start.targets {
            loss::copy_targets(shared, targets)?;
        }
        self.feed.take(shared, start, desc, to)
    }

    fn weights_changed(&self, weights: &Arena<Self>) -> Result<(), Error> {
        narrow_params::copy_weights(&self.shared, weights)
    }

    fn untrained_weights_changed(&self, weights: &Arena<Self>) -> Result<(), Error> {
        narrow_params::copy_untrained_weights(&self.shared, weights)
    }

    fn gradients_done(&self, bucket: usize, gradients: &mut CudaBuf) -> Result<(), Error> {
        narrow_params::convert_gradients(&self.shared, bucket, gradients)
    }

    fn add_tensors(&self, _: &TensorDesc, to: &mut CudaBuf, from: &CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let precision = shared.settings.precision;
        let (a, b) = (to.activations(precision), from.activations(precision));
        shared.launch(&SumOfTwo { a, b, y: a, n: a.len().min(b.len()) as u64 })
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        args: CrossEntropy<'_>,
        x: &CudaBuf,
        dx: Option<&mut CudaBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::cross_entropy(&self.shared, desc, args, x, dx)?;
        Ok(None)
    }

    fn soft_loss(
        &self,
        desc: &TensorDesc,
        args: SoftLoss<'_>,
        x: &CudaBuf,
        teacher: Option<(&TensorDesc, &CudaBuf)>,
        dx: Option<&mut CudaBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::soft_loss(&self.shared, desc, args, x, teacher.map(|(_, scores)| scores), dx)?;
        Ok(None)
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut CudaBuf,
    ) -> Result<(), Error> {
        update::rates(&self.shared, norms, update, weights, gradients, to)
    }

    fn limit_units(&self, units: &Units, w: &CudaBuf, g: &mut CudaBuf) -> Result<(), Error> {
        update::limit(&self.shared, units, w, g)
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

    fn queue(&self) -> Option<&dyn Queue<Self>> {
        Some(self)
    }

    fn collectives(&self) -> Option<&dyn Collectives<Self>> {
        Some(self)
    }

    fn device_codec(
        &self,
        spec: &CodeSpec,
        workers: Range<usize>,
    ) -> Result<Option<Box<dyn DeviceCodec<Self>>>, Error> {
        Ok(Some(Box::new(codec::GpuCodec::new(&self.shared, spec, workers)?)))
    }

    fn algorithm_choice(&self) -> Option<&dyn AlgorithmChoice> {
        Some(self)
    }

    fn loss_scaling(&self) -> Option<&dyn LossScaling<Self>> {
        (self.shared.settings.precision == Precision::F16).then_some(self)
    }
}

// Implements [`crate::Queue`] and the other optional GPU traits.

impl Queue<Cuda> for Cuda {
    fn prefetch(&self, images: &Input<'_>) -> Result<(), Error> {
        self.feed.send(&self.shared, images).map(|_| ())
    }

    fn keep(&self, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error> {
        self.shared.start()?;
        self.feed.keep(&self.shared, pictures, height, width)
    }

    fn repeat(&self, name: &str, key: u64, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        // a captured pass contains the address of the outbox's current place, so each place needs its own captured pass
        let place = self.shared.blocks.borrow().outbox.current() as u64;
        self.records.run(&self.shared, name, key ^ place, work)
    }

    fn take_notes(&self) -> Vec<String> {
        self.records.take_notes()
    }

    fn stamp(&self) -> Result<(), Error> {
        self.clock.stamp(&self.shared)
    }

    fn take_stamps(&self) -> Result<Vec<Instant>, Error> {
        self.clock.take(&self.shared)
    }

    fn mark(&self, buffer: &mut CudaBuf) -> Result<(), Error> {
        buffer.mark(self.shared.recording.get())
    }

    fn mark_pass(&self) -> Result<(), Error> {
        self.shared.blocks.borrow_mut().outbox.mark(self.shared.stream())
    }

    fn wait_for_pass(&self) -> Result<(), Error> {
        self.shared.blocks.borrow().outbox.wait_for_pass()
    }

    fn passes_ahead(&self) -> usize {
        PLACES - 1
    }

    fn hold(&self, images: &[f32]) -> Result<(), Error> {
        self.shared.start()?;
        self.feed.hold(&self.shared, images)
    }

    fn announce_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        update::announce(&self.shared, update, average).map(|_| ())
    }

    fn begin_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        update::begin(&self.shared, update, average)
    }

    fn launches(&self) -> u64 {
        self.shared.context().launches.made()
    }

    fn loss_sums(&self) -> Result<LossSums, Error> {
        loss::sums(&self.shared)
    }
}

impl Collectives<Cuda> for Cuda {
    fn ready(&self) -> Result<Box<dyn Ready<Self>>, Error> {
        Ok(Box::new(nccl::Entry::new(self)?))
    }
}

impl AlgorithmChoice for Cuda {
    fn used(&self) -> Algorithms {
        self.shared.chosen.used()
    }

    fn adopt(&self, algorithms: &Algorithms) {
        self.shared.chosen.adopt(algorithms);
    }
}

impl LossScaling<Cuda> for Cuda {
    fn inspect(&self, gradients: &[&CudaBuf]) -> Result<(), Error> {
        update::inspect(&self.shared, gradients)
    }

    fn count_update(&self) {
        self.shared.blocks.borrow_mut().updates += 1;
    }

    fn scale(&self) -> Result<LossScale, Error> {
        self.shared.settle()?;
        Ok(self.scale_before(0))
    }

    fn scale_before(&self, updates: u64) -> LossScale {
        self.shared.blocks.borrow().scale(updates)
    }

    fn set_scale(&self, scale: LossScale) -> Result<(), Error> {
        self.shared.settle()?;
        self.shared.blocks.borrow_mut().set_scale(scale)
    }
}
