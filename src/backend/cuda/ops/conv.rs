//! Convolutions: cuDNN's, with bias and ReLU in the same pass where it has an engine for that, else by a kernel of our own.

use std::rc::Rc;

use super::bias;
use super::copies::{Copies, Sizes, copied, restore};
use crate::backend::cuda::cudnn::candidates::Prepared;
use crate::backend::cuda::cudnn::choice::choose;
use crate::backend::cuda::cudnn::convolution::{Convolution, Direction, Tensor};
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::{Activation, Slice};
use crate::backend::cuda::format::Format;
use crate::backend::cuda::kernels::bias::BiasForward;
use crate::backend::cuda::kernels::elementwise::{ReluBackward, ReluForward};
use crate::backend::cuda::layout::channels_last;
use crate::backend::cuda::shared::Shared;
use crate::backend::op::Conv;
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// A convolution of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    name: String,
    op: Conv,
    y: TensorDesc,
    sizes: Convolution,
    forward: Prepared,
    /// Bias and ReLU are a kernel of our own, after cuDNN.
    separate: bool,
    data: Option<Prepared>,
    filter: Option<Prepared>,
    copies: Option<Copies>,
    /// Parts of the bias's gradient.
    partial: CudaBuf,
}

/// The algorithm of the forward pass, and whether bias and ReLU come after it: with them in one graph where cuDNN can.
fn choose_forward(shared: &Shared, op: &Conv, sizes: &Convolution) -> Result<(Prepared, bool), Error> {
    let fused = Direction::Forward { bias: op.bias, relu: op.relu };
    let plain = Direction::Forward { bias: false, relu: false };
    match choose(shared, sizes, fused) {
        Ok(forward) => Ok((forward, false)),
        Err(_) if fused != plain => Ok((choose(shared, sizes, plain)?, true)),
        Err(e) => Err(e),
    }
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Conv, r: &PlanRequest<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let shape = r.output()?;
        let y = channels_last(x.n, shape);
        let sizes = Convolution {
            n: x.n,
            x: [x.shape.c, x.shape.h, x.shape.w],
            y: [shape.c, shape.h, shape.w],
            kernel: op.kernel,
            stride: op.stride,
            pads: op.pads,
            groups: op.groups,
            precision: shared.settings.precision,
        };
        let (forward, separate) = choose_forward(shared, op, &sizes)?;
        let data = (r.train && r.wants_dx).then(|| choose(shared, &sizes, Direction::Data)).transpose()?;
        let filter = r.train.then(|| choose(shared, &sizes, Direction::Filter)).transpose()?;
        let most = [Some(&forward), data.as_ref(), filter.as_ref()];
        shared.reserve(most.iter().flatten().map(|p| p.workspace).max().unwrap_or(0), r.name)?;
        let weights = sizes.elems()[1];
        let parts = Sizes { weights, gradient: if r.train { weights } else { 0 }, bias: shape.c };
        let copies = Copies::new(shared, parts, r.name)?;
        let partial = match r.train && op.bias {
            true => bias::partial(shared, y.n * shape.plane(), shape.c, r.name)?,
            false => CudaBuf::default(),
        };
        let (shared, name, op) = (shared.clone(), r.name.into(), op.clone());
        Ok(Self { shared, name, op, y, sizes, forward, separate, data, filter, copies, partial })
    }

    fn rows(&self) -> usize {
        self.y.n * self.y.shape.plane()
    }

    /// Bias and ReLU after cuDNN.
    fn finish(&self, pass: &Pass<'_, Cuda>, y: Slice<'_, Activation>) -> Result<(), Error> {
        if !self.op.bias {
            return self.shared.launch(&ReluForward { x: y, y, n: self.y.elems() as u64 });
        }
        let bias = pass.params.at(pass.slots[1])?;
        let (rows, channels, with_relu) = (self.rows() as u64, self.y.shape.c as u32, i32::from(self.op.relu));
        self.shared.launch(&BiasForward { y, bias, rows, channels, with_relu })
    }

    /// Enqueues one of the prepared algorithms.
    fn run(&self, prepared: &Prepared, tensors: &[(Tensor, Slice<'_, u8>)]) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start()?;
        prepared.run(shared.cudnn()?, tensors, shared.scratch().slice(), &self.name)?;
        shared.stream().settle(&self.name)
    }
}

/// Plans the op.
pub fn plan(gpu: &Cuda, op: &Conv, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan::new(&gpu.shared, op, r)?))
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
        self.copies.as_ref().map_or(0, Copies::bytes) + self.partial.bytes()
    }

    fn implementation(&self) -> String {
        let engine = |p: &Prepared| p.algorithm.engine.to_string();
        let more = [&self.data, &self.filter].map(|p| p.as_ref().map_or("-".into(), engine));
        let separate = if self.separate { " + own bias or ReLU" } else { "" };
        format!("cuDNN engines {}, {}, {}{separate}", self.forward.algorithm.engine, more[0], more[1])
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, copies) = (&self.shared, self.copies.as_ref());
        let [x_elems, _, y_elems] = self.sizes.elems();
        let (x, y) = (shared.holds(x[0], x_elems)?, shared.holds(y, y_elems)?);
        let w = copied(shared, pass.params.at(pass.slots[0])?, copies.map(|c| &c.weights))?;
        let mut tensors = vec![(Tensor::X, x.bytes()), (Tensor::W, w), (Tensor::Y, y.bytes())];
        if self.op.bias && !self.separate {
            let bias = copied(shared, pass.params.at(pass.slots[1])?, copies.map(|c| &c.bias))?;
            tensors.push((Tensor::Bias, bias));
        }
        self.run(&self.forward, &tensors)?;
        if self.separate { self.finish(pass, y) } else { Ok(()) }
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, relu) = (&self.shared, self.op.relu);
        let [x_elems, _, y_elems] = self.sizes.elems();
        let (x, y, dy) = (shared.holds(g.x[0], x_elems)?, shared.holds(g.y, y_elems)?, shared.holds(g.dy, y_elems)?);
        if self.op.bias {
            let output = bias::Output { y, dy, rows: self.rows(), channels: self.y.shape.c };
            bias::backward(shared, output, relu, &self.partial, g.dparams.at(pass.slots[1])?)?;
        } else if relu {
            shared.launch(&ReluBackward { y, dy, n: y_elems as u64 })?;
        }
        let dw = g.dparams.at(pass.slots[0])?;
        if let Some(filter) = &self.filter {
            let copy = self.copies.as_ref().map(|c| &c.gradient);
            let to = copy.map_or(dw.bytes(), CudaBuf::slice);
            self.run(filter, &[(Tensor::X, x.bytes()), (Tensor::W, to), (Tensor::Y, dy.bytes())])?;
            copy.map_or(Ok(()), |copy| restore(shared, copy, dw))?;
        }
        if let (Some(data), Some(dx)) = (&self.data, g.dx) {
            // the forward pass of this batch has left the weights in their type
            let w = match &self.copies {
                Some(copies) => copies.weights.slice(),
                None => pass.params.at(pass.slots[0])?.bytes(),
            };
            let dx = shared.holds(dx, x_elems)?;
            self.run(data, &[(Tensor::X, dx.bytes()), (Tensor::W, w), (Tensor::Y, dy.bytes())])?;
        }
        Ok(())
    }
}
