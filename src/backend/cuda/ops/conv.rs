//! Convolutions: cuDNN's, with bias and ReLU in the same pass where it has an engine for that, else by a kernel of our own.

use std::rc::Rc;

use crate::backend::cuda::cudnn::{Convolution, Direction, Prepared, Tensor, choose};
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::format::Format;
use crate::backend::cuda::kernels::module::Arg::{At, I32, U32, U64};
use crate::backend::cuda::settings::Precision;
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::{Cuda, channels_last};
use crate::backend::op::Conv;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// A convolution of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    name: String,
    op: Conv,
    y: TensorDesc,
    sizes: Convolution,
    forward: Prepared,
    /// Bias and ReLU come after cuDNN.
    apart: bool,
    data: Option<Prepared>,
    filter: Option<Prepared>,
    /// Weights, their gradient and the bias in the type of activations, where that is not f32.
    narrow: Option<[CudaBuf; 3]>,
    /// Parts of the bias's gradient.
    partial: CudaBuf,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Conv, r: &Request<'_, Cuda>) -> Result<Self, Error> {
        let (x, settings) = (r.x[0], &shared.settings);
        let shape = crate::backend::op::Op::Conv(op.clone()).output(&[x.shape]);
        let shape = shape.map_err(|why| Error::Unsupported { op: r.name.into(), why })?;
        let y = channels_last(x.n, shape);
        let sizes = Convolution {
            n: x.n,
            x: [x.shape.c, x.shape.h, x.shape.w],
            y: [shape.c, shape.h, shape.w],
            kernel: op.kernel,
            stride: op.stride,
            pads: op.pads,
            groups: op.groups,
            precision: settings.precision,
        };
        let way = |direction| choose(shared, &sizes, direction);
        let fused = Direction::Forward { bias: op.bias, relu: op.relu };
        let plain = Direction::Forward { bias: false, relu: false };
        let (forward, apart) = match way(fused) {
            Ok(forward) => (forward, false),
            Err(_) if fused != plain => (way(plain)?, true),
            Err(e) => return Err(e),
        };
        let data = (r.train && r.wants_dx).then(|| way(Direction::Data)).transpose()?;
        let filter = r.train.then(|| way(Direction::Filter)).transpose()?;
        let most = [Some(&forward), data.as_ref(), filter.as_ref()];
        let workspace = most.iter().flatten().map(|p| p.workspace).max().unwrap_or(0);
        shared.reserve(workspace, r.name)?;
        let weights = sizes.elems()[1];
        let half = |elems: usize| shared.alloc(elems.div_ceil(2), r.name);
        let narrow = match settings.precision {
            Precision::F32 => None,
            _ => Some([half(weights)?, half(if r.train { weights } else { 0 })?, half(shape.c)?]),
        };
        let splits = shared.column_grid(y.n * shape.plane(), shape.c).1 as usize;
        let partial = shared.alloc(if r.train && op.bias { 2 * splits * shape.c } else { 0 }, r.name)?;
        Ok(Self {
            shared: shared.clone(),
            name: r.name.into(),
            op: op.clone(),
            y,
            sizes,
            forward,
            apart,
            data,
            filter,
            narrow,
            partial,
        })
    }

    fn rows(&self) -> usize {
        self.y.n * self.y.shape.plane()
    }

    /// Weights in the type of activations.
    fn weights(&self, pass: &Pass<'_, Cuda>) -> Result<u64, Error> {
        let from = pass.params.at(pass.slots[0])?;
        let Some([to, ..]) = &self.narrow else { return Ok(from) };
        self.cast(from, to, self.sizes.elems()[1])
    }

    fn bias(&self, pass: &Pass<'_, Cuda>) -> Result<u64, Error> {
        let from = pass.params.at(pass.slots[1])?;
        let Some([.., to]) = &self.narrow else { return Ok(from) };
        self.cast(from, to, self.y.shape.c)
    }

    fn cast(&self, from: u64, to: &CudaBuf, elems: usize) -> Result<u64, Error> {
        let args = [At(from), At(to.address()), U64(elems as u64)];
        // SAFETY: a parameter's slot and a buffer of as many 16-bit elements, both checked.
        unsafe { self.shared.launch("cast_weights", self.shared.grid(elems), &args)? };
        Ok(to.address())
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
        let own = self.narrow.iter().flatten().map(crate::backend::cuda::bytes).sum::<usize>();
        own + crate::backend::cuda::bytes(&self.partial)
    }

    fn implementation(&self) -> String {
        let engine = |p: &Prepared| p.way.engine.to_string();
        let more = [&self.data, &self.filter].map(|p| p.as_ref().map_or("-".into(), engine));
        let apart = if self.apart { " + own bias or ReLU" } else { "" };
        format!("cuDNN engines {}, {}, {}{apart}", self.forward.way.engine, more[0], more[1])
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let [x_elems, _, y_elems] = self.sizes.elems();
        let (x, y) = (shared.holds(x[0], x_elems)?, shared.holds(y, y_elems)?);
        let mut tensors = vec![(Tensor::X, x), (Tensor::W, self.weights(pass)?), (Tensor::Y, y)];
        if self.op.bias && !self.apart {
            tensors.push((Tensor::Bias, self.bias(pass)?));
        }
        shared.start()?;
        // SAFETY: all tensors are as large as planned (checked), the work space was reserved.
        unsafe { self.forward.run(shared.cudnn()?, &tensors, shared.scratch(), &self.name)? };
        if self.apart && !self.op.bias {
            // SAFETY: y is as large as planned.
            unsafe { shared.launch("relu_forward", shared.grid(y_elems), &[At(y), At(y), U64(y_elems as u64)])? };
        } else if self.apart {
            let (rows, channels) = (self.rows(), self.y.shape.c);
            let relu = I32(i32::from(self.op.relu));
            let args = [At(y), At(pass.params.at(pass.slots[1])?), U64(rows as u64), U32(channels as u32), relu];
            // SAFETY: as above; the bias has a value a channel.
            unsafe { shared.launch("bias_forward", shared.column_grid(rows, channels), &args)? };
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let shared = &self.shared;
        let [x_elems, w_elems, y_elems] = self.sizes.elems();
        let (x, y, dy) = (shared.holds(g.x[0], x_elems)?, shared.holds(g.y, y_elems)?, shared.holds(g.dy, y_elems)?);
        if self.op.bias {
            let dbias = g.dparams.at(pass.slots[1])?;
            crate::backend::cuda::ops::bias::backward(
                shared,
                (y, dy),
                &self.partial,
                (self.rows(), self.y.shape.c),
                self.op.relu,
                dbias,
            )?;
        } else if self.op.relu {
            // SAFETY: both hold as many activations.
            unsafe { shared.launch("relu_backward", shared.grid(y_elems), &[At(y), At(dy), U64(y_elems as u64)])? };
        }
        let dw = g.dparams.at(pass.slots[0])?;
        if let Some(filter) = &self.filter {
            let to = self.narrow.as_ref().map_or(dw, |[_, to, _]| to.address());
            shared.start()?;
            let tensors = [(Tensor::X, x), (Tensor::W, to), (Tensor::Y, dy)];
            // SAFETY: all tensors are as large as planned (checked), the work space was reserved.
            unsafe { filter.run(shared.cudnn()?, &tensors, shared.scratch(), &self.name)? };
            if to != dw {
                let args = [At(to), At(dw), U64(w_elems as u64)];
                // SAFETY: a buffer of as many 16-bit elements, and the parameter's slot.
                unsafe { shared.launch("cast_gradients", shared.grid(w_elems), &args)? };
            }
        }
        if let (Some(data), Some(dx)) = (&self.data, g.dx) {
            // the forward pass of this batch has left the weights in their type
            let w = match &self.narrow {
                Some([w, ..]) => w.address(),
                None => pass.params.at(pass.slots[0])?,
            };
            shared.start()?;
            let tensors = [(Tensor::X, shared.holds(dx, x_elems)?), (Tensor::W, w), (Tensor::Y, dy)];
            // SAFETY: as above.
            unsafe { data.run(shared.cudnn()?, &tensors, shared.scratch(), &self.name)? };
        }
        Ok(())
    }
}
