//! Convolutions with cuDNN. Bias and ReLU are part of the same call if cuDNN has an engine for that, otherwise our own
//! kernel adds them.

use std::rc::Rc;

use net::{Activation, Conv};

use super::bias::PartialSums;
use super::fold::Fold;
use super::narrow_params::{gradient, weights};
use super::{activation, bias};
use crate::cuda::cudnn::candidates::PreparedAlgorithm;
use crate::cuda::cudnn::choice::choose;
use crate::cuda::cudnn::convolution::{Convolution, Direction, Tensor};
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation as Element, Slice};
use crate::cuda::driver::status::attempted;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::{Format, channels_last};
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// Sets values to 0.
    clear_values: ClearValues over threads(n) {
        values: [f32; n],
        n: u32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    name: String,
    op: Conv,
    y: TensorDesc,
    sizes: Convolution,
    /// The folded convolution that replaces this one, if the gradient of x is not needed and folding is faster.
    fold: Option<Fold>,
    forward: PreparedAlgorithm,
    /// True if our own kernel computes bias and ReLU after cuDNN.
    separate: bool,
    data: Option<PreparedAlgorithm>,
    filter: Option<PreparedAlgorithm>,
    /// Work memory for the bias gradient.
    parts: Option<PartialSums>,
}

/// Returns the forward algorithm, and true if a kernel of our own must compute bias and ReLU. Prefers an algorithm that
/// includes bias and ReLU.
fn choose_forward(shared: &Shared, op: &Conv, sizes: &Convolution) -> Result<(PreparedAlgorithm, bool), Error> {
    let fused = Direction::Forward { bias: op.bias, relu: op.relu };
    let plain = Direction::Forward { bias: false, relu: false };
    if fused != plain
        && let Some(forward) = attempted(choose(shared, sizes, fused))?
    {
        return Ok((forward, false));
    }
    Ok((choose(shared, sizes, plain)?, fused != plain))
}

pub fn plan(gpu: &Cuda, op: &Conv, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let shared = &gpu.shared;
    let x = r.x[0];
    let shape = r.output()?;
    let y = channels_last(x.n, shape);
    let sizes = Convolution::new(op, x.n, [x.shape, shape], shared.settings.precision);
    let wants_dx = r.train && r.wants_dx;
    let fold = if wants_dx { None } else { Fold::new(shared, &sizes, r.name)? };
    let computed = fold.as_ref().map_or(&sizes, |fold| &fold.convolution);
    let (forward, separate) = choose_forward(shared, op, computed)?;
    let data = wants_dx.then(|| choose(shared, &sizes, Direction::Data)).transpose()?;
    let filter = r.train.then(|| choose(shared, computed, Direction::Filter)).transpose()?;
    let most = [Some(&forward), data.as_ref(), filter.as_ref()];
    shared.reserve(most.iter().flatten().map(|p| p.workspace).max().unwrap_or(0), r.name)?;
    let bias_parts = || PartialSums::new(shared, y.n * shape.plane(), 1, shape.c, 1, r.name);
    let parts = (r.train && op.bias).then(bias_parts).transpose()?;
    let (shared, name, op) = (shared.clone(), r.name.into(), op.clone());
    Ok(Box::new(Plan { shared, name, op, y, sizes, fold, forward, separate, data, filter, parts }))
}

impl Plan {
    /// Applies bias and ReLU after cuDNN.
    fn finish(&self, pass: &Pass<'_, Cuda>, y: Slice<'_, Element>) -> Result<(), Error> {
        if !self.op.bias {
            return activation::forward(&self.shared, Activation::Relu, y, y, self.y.elems());
        }
        let sizes = [self.y.n * self.y.shape.plane(), self.y.shape.c];
        bias::forward(&self.shared, y, sizes, self.op.relu, pass.params.at(pass.slots[1])?)
    }

    /// Enqueues a prepared algorithm.
    fn run(&self, prepared: &PreparedAlgorithm, tensors: &[(Tensor, Slice<'_, u8>)]) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start()?;
        shared.context().launches.add(1);
        prepared.run(shared.cudnn()?, tensors, shared.scratch().slice(), &self.name)?;
        shared.stream().settle(&self.name)
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        let [channels, ..] = self.sizes.x;
        let plane = self.op.kernel[0] * self.op.kernel[1];
        let weight = Format::ChannelsLast { outer: self.y.shape.c, channels: channels / self.op.groups, plane };
        if self.op.bias { vec![weight, Format::Plain(self.y.shape.c)] } else { vec![weight] }
    }

    fn state_bytes(&self) -> usize {
        self.parts.as_ref().map_or(0, PartialSums::bytes) + self.fold.as_ref().map_or(0, Fold::bytes)
    }

    fn implementation(&self) -> String {
        let engine = |p: &PreparedAlgorithm| p.algorithm.engine.to_string();
        let more = [&self.data, &self.filter].map(|p| p.as_ref().map_or("-".into(), engine));
        let separate = if self.separate { " + own bias or ReLU" } else { "" };
        let folded = if self.fold.is_some() { ", folded" } else { "" };
        format!("cuDNN engines {}, {}, {}{separate}{folded}", self.forward.algorithm.engine, more[0], more[1])
    }

    fn tensors_for_backward(&self) -> Keeps {
        // a folded convolution has its own copy of the input
        Keeps { inputs: usize::from(self.fold.is_none()), output: self.op.relu }
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let computed = self.fold.as_ref().map_or(&self.sizes, |fold| &fold.convolution);
        let (Conv { bias, relu, .. }, [x, w, y]) = (&self.op, computed.elems());
        let [folding, unfolding] = self.fold.as_ref().map_or([0, 0], Fold::traffic);
        let products = [&self.data, &self.filter].into_iter().flatten().count();
        let after = if self.separate { 2 * y } else { 0 };
        let backward = products * (x + w + y) + bias::traffic(*bias, *relu, y) + unfolding;
        Some(self.shared.traffic(x + w + y + after + folding, backward))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, precision) = (&self.shared, self.shared.settings.precision);
        let [x_elems, _, y_elems] = self.sizes.elems();
        let (x, y) = (shared.holds(x[0], x_elems)?, shared.holds(y, y_elems)?);
        let narrow_params = shared.narrow_params.borrow();
        let w = weights(precision, &narrow_params, pass.params, pass.slots[0])?;
        let (x, w) = match &self.fold {
            Some(fold) => {
                fold.fold(shared, x, w)?;
                (fold.x(shared)?, fold.w(shared)?)
            }
            None => (x, w),
        };
        let mut tensors = vec![(Tensor::X, x.bytes()), (Tensor::W, w.bytes()), (Tensor::Y, y.bytes())];
        if self.op.bias && !self.separate {
            tensors.push((Tensor::Bias, weights(precision, &narrow_params, pass.params, pass.slots[1])?.bytes()));
        }
        self.run(&self.forward, &tensors)?;
        if self.separate { self.finish(pass, y) } else { Ok(()) }
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let wanted = g.take_dx(0);
        let (shared, [x_elems, _, y_elems]) = (&self.shared, self.sizes.elems());
        let dy = shared.holds(g.dy, y_elems)?;
        let relu_output = self.op.relu.then(|| shared.holds(g.y, y_elems)).transpose()?;
        if let Some(parts) = self.parts.as_ref().filter(|_| !pass.frozen) {
            let (gradient, zeros) = (g.dparams.at(pass.slots[1])?, self.op.zero_bias());
            bias::backward(shared, relu_output, dy, self.y.shape.c, parts, gradient)?;
            if !zeros.is_empty() {
                shared.launch(&ClearValues {
                    values: gradient.range(zeros.start, zeros.len())?,
                    n: zeros.len() as u32,
                })?;
            }
        } else if let Some(y) = relu_output {
            activation::mask(shared, y, dy, y_elems)?;
        }
        if let Some(filter) = self.filter.as_ref().filter(|_| !pass.frozen) {
            let mut narrow_params = shared.narrow_params.borrow_mut();
            let dw = gradient(shared, &mut narrow_params, g.dparams, pass.slots[0])?;
            let (x, to) = match &self.fold {
                Some(fold) => (fold.x(shared)?, fold.w(shared)?),
                None => (shared.holds(g.x[0], x_elems)?, dw),
            };
            self.run(filter, &[(Tensor::X, x.bytes()), (Tensor::W, to.bytes()), (Tensor::Y, dy.bytes())])?;
            self.fold.as_ref().map_or(Ok(()), |fold| fold.unfold(shared, dw))?;
        }
        if let (Some(data), Some(dx)) = (&self.data, wanted) {
            let narrow_params = shared.narrow_params.borrow();
            let w = weights(shared.settings.precision, &narrow_params, pass.params, pass.slots[0])?;
            let dx = shared.holds(dx, x_elems)?;
            self.run(data, &[(Tensor::X, dx.bytes()), (Tensor::W, w.bytes()), (Tensor::Y, dy.bytes())])?;
        }
        Ok(())
    }
}
