//! Fully connected layers: cuBLASLt's products. Behind an image the weights lie in the image's order of memory.

use std::rc::Rc;

use crate::backend::cuda::Cuda;
use crate::backend::cuda::cublaslt::product::{After, Factor, Product};
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::format::Format;
use crate::backend::cuda::kernels::module::Arg::{At, U64};
use crate::backend::cuda::settings::Precision;
use crate::backend::cuda::shared::Shared;
use crate::backend::op::{Linear, Shape};
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// A linear layer of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    op: Linear,
    x: TensorDesc,
    y: TensorDesc,
    forward: Product,
    data: Option<Product>,
    filter: Option<Product>,
    /// Weights and bias in the type of activations, where that is not f32.
    narrow: Option<[CudaBuf; 2]>,
    /// Parts of the bias's gradient.
    partial: CudaBuf,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Linear, r: &Request<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let (n, inputs, outputs) = (x.n, x.shape.elems(), op.out_features);
        let after = match (op.bias, op.relu) {
            (true, true) => After::BiasRelu,
            (true, false) => After::Bias,
            (false, true) => After::Relu,
            (false, false) => After::Nothing,
        };
        let factor = |rows, columns| Factor { rows, columns, transposed: false };
        let settings = &shared.settings;
        let tf32 = if settings.allow_tf32 { ", tf32" } else { "" };
        // one algorithm whatever the number of rows, so that every share of a batch is computed alike
        let product = |factors, wide, after, what: &str| {
            let of = format!("linear {inputs} to {outputs}, {}{tf32}, {what}{after}", settings.precision);
            Product::new(shared, factors, wide, after, (&of, n), r.name)
        };
        // y = x w'; dw = dy' x; dx = dy w
        let (x_rows, dy_rows, w) = (factor(n, inputs), factor(n, outputs), factor(outputs, inputs));
        let turned = |f: Factor| Factor { transposed: true, ..f };
        let forward = product([x_rows, turned(w)], false, after, "forward")?;
        let filter = || product([turned(dy_rows), x_rows], true, After::Nothing, "gradient of the weights");
        let data = || product([dy_rows, w], false, After::Nothing, "gradient of the input");
        let filter = r.train.then(filter).transpose()?;
        let data = (r.train && r.wants_dx).then(data).transpose()?;
        let all = [Some(&forward), data.as_ref(), filter.as_ref()];
        shared.reserve(all.iter().flatten().map(|p| p.workspace()).max().unwrap_or(0), r.name)?;
        let half = |elems: usize| shared.alloc(elems.div_ceil(2), r.name);
        let narrow = match settings.precision {
            Precision::F32 => None,
            _ => Some([half(inputs * outputs)?, half(outputs)?]),
        };
        let splits = shared.column_grid(n, outputs).1 as usize;
        let partial = shared.alloc(if r.train && op.bias { 2 * splits * outputs } else { 0 }, r.name)?;
        let y = TensorDesc::plain(n, Shape::vector(outputs));
        Ok(Self { shared: shared.clone(), op: op.clone(), x, y, forward, data, filter, narrow, partial })
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
        let (outer, shape) = (self.op.out_features, self.x.shape);
        let weight = Format::ChannelsLast { outer, channels: shape.c, plane: shape.plane() };
        if self.op.bias { vec![weight, Format::Plain(outer)] } else { vec![weight] }
    }

    fn state_bytes(&self) -> usize {
        self.narrow.iter().flatten().map(crate::backend::cuda::bytes).sum::<usize>()
            + crate::backend::cuda::bytes(&self.partial)
    }

    fn implementation(&self) -> String {
        "cuBLASLt".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let mut w = pass.params.at(pass.slots[0])?;
        let mut bias = if self.op.bias { Some(pass.params.at(pass.slots[1])?) } else { None };
        if let Some([narrow_w, narrow_b]) = &self.narrow {
            w = self.cast(w, narrow_w, self.x.shape.elems() * self.op.out_features)?;
            bias = bias.map(|b| self.cast(b, narrow_b, self.op.out_features)).transpose()?;
        }
        shared.start()?;
        // SAFETY: all matrices are as large as planned (checked), the work space was reserved.
        unsafe { self.forward.run(shared.matmul()?, shared.stream(), [x, w, y], bias, shared.scratch()) }
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let shared = &self.shared;
        let (x_elems, y_elems) = (self.x.elems(), self.y.elems());
        let (x, y, dy) = (shared.holds(g.x[0], x_elems)?, shared.holds(g.y, y_elems)?, shared.holds(g.dy, y_elems)?);
        if self.op.bias {
            let dbias = g.dparams.at(pass.slots[1])?;
            let size = (self.y.n, self.op.out_features);
            crate::backend::cuda::ops::bias::backward(shared, (y, dy), &self.partial, size, self.op.relu, dbias)?;
        } else if self.op.relu {
            // SAFETY: both hold as many activations.
            unsafe { shared.launch("relu_backward", shared.grid(y_elems), &[At(y), At(dy), U64(y_elems as u64)])? };
        }
        let dw = g.dparams.at(pass.slots[0])?;
        shared.start()?;
        if let Some(filter) = &self.filter {
            // SAFETY: all matrices are as large as planned (checked), the work space was reserved.
            unsafe { filter.run(shared.matmul()?, shared.stream(), [dy, x, dw], None, shared.scratch())? };
        }
        if let (Some(data), Some(dx)) = (&self.data, g.dx) {
            let w = match &self.narrow {
                Some([w, _]) => w.address(),
                None => pass.params.at(pass.slots[0])?,
            };
            let dx = shared.holds(dx, x_elems)?;
            // SAFETY: as above.
            unsafe { data.run(shared.matmul()?, shared.stream(), [dy, w, dx], None, shared.scratch())? };
        }
        Ok(())
    }
}
