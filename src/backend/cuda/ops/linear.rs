//! Fully connected layers: cuBLASLt's products. Behind an image the weights lie in the image's order of memory.

use std::rc::Rc;

use super::bias;
use super::halves::weights;
use super::parts::Parts;
use crate::backend::cuda::cublaslt::product::{Epilogue, Factor, Product, Wanted};
use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::Slice;
use crate::backend::cuda::format::Format;
use crate::backend::cuda::kernels::elementwise::ReluBackward;
use crate::backend::cuda::shared::Shared;
use crate::backend::op::{Linear, Shape};
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

/// A linear layer of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    op: Linear,
    x: TensorDesc,
    y: TensorDesc,
    forward: Product,
    data: Option<Product>,
    filter: Option<Product>,
    /// Of the bias's gradient.
    parts: Option<Parts>,
}

fn epilogue(op: &Linear) -> Epilogue {
    match (op.bias, op.relu) {
        (true, true) => Epilogue::BiasRelu,
        (true, false) => Epilogue::Bias,
        (false, true) => Epilogue::Relu,
        (false, false) => Epilogue::Nothing,
    }
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Linear, r: &PlanRequest<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let (n, inputs, outputs) = (x.n, x.shape.elems(), op.out_features);
        let factor = |rows, columns| Factor { rows, columns, transposed: false };
        let settings = &shared.settings;
        let tf32 = if settings.allow_tf32 { ", tf32" } else { "" };
        // one algorithm whatever the number of rows, so that every share of a batch is computed alike
        let product = |factors, wide, epilogue, what: &str| {
            let operation = format!("linear {inputs} to {outputs}, {}{tf32}, {what}{epilogue}", settings.precision);
            Product::new(shared, &Wanted { factors, wide, epilogue, operation, n, name: r.name })
        };
        // y = x w'; dw = dy' x; dx = dy w
        let (x_rows, dy_rows, w) = (factor(n, inputs), factor(n, outputs), factor(outputs, inputs));
        let turned = |f: Factor| Factor { transposed: true, ..f };
        let forward = product([x_rows, turned(w)], false, epilogue(op), "forward")?;
        let filter = || product([turned(dy_rows), x_rows], true, Epilogue::Nothing, "gradient of the weights");
        let data = || product([dy_rows, w], false, Epilogue::Nothing, "gradient of the input");
        let filter = r.train.then(filter).transpose()?;
        let data = (r.train && r.wants_dx).then(data).transpose()?;
        let all = [Some(&forward), data.as_ref(), filter.as_ref()];
        shared.reserve(all.iter().flatten().map(|p| p.workspace()).max().unwrap_or(0), r.name)?;
        let parts = (r.train && op.bias).then(|| Parts::new(shared, n, outputs, 1, r.name)).transpose()?;
        let y = TensorDesc::plain(n, Shape::vector(outputs));
        Ok(Self { shared: shared.clone(), op: op.clone(), x, y, forward, data, filter, parts })
    }

    /// Enqueues a product.
    fn run(&self, product: &Product, factors: [Slice<'_, u8>; 3], bias: Option<Slice<'_, u8>>) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start()?;
        shared.context().launches.add(1);
        product.run(shared.cublaslt()?, shared.stream(), factors, bias, shared.scratch().slice())
    }
}

/// Plans the op.
pub fn plan(gpu: &Cuda, op: &Linear, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan::new(&gpu.shared, op, r)?))
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
        self.parts.as_ref().map_or(0, Parts::bytes)
    }

    fn implementation(&self) -> String {
        "cuBLASLt".into()
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let (x, y) = (self.x.elems(), self.y.elems());
        let w = self.x.shape.elems() * self.op.out_features;
        let products = [&self.data, &self.filter].into_iter().flatten().count();
        Some(self.shared.traffic(x + w + y, products * (x + w + y) + bias::traffic(self.op.bias, self.op.relu, y)))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, precision) = (&self.shared, self.shared.settings.precision);
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let halves = shared.halves.borrow();
        let parameter = |i: usize| weights(precision, &halves, pass.params, pass.slots[i]);
        let (w, bias) = (parameter(0)?, self.op.bias.then(|| parameter(1)).transpose()?);
        self.run(&self.forward, [x.bytes(), w, y.bytes()], bias)
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, relu) = (&self.shared, self.op.relu);
        let (x_elems, y_elems) = (self.x.elems(), self.y.elems());
        let (x, y, dy) = (shared.holds(g.x[0], x_elems)?, shared.holds(g.y, y_elems)?, shared.holds(g.dy, y_elems)?);
        if let Some(parts) = self.parts.as_ref().filter(|_| !pass.frozen) {
            let output = bias::Output { y, rows: self.y.n, channels: self.op.out_features, relu };
            bias::backward(shared, &output, dy, parts, g.dparams.at(pass.slots[1])?)?;
        } else if relu {
            shared.launch(&ReluBackward { y, dy, n: y_elems as u64 })?;
        }
        let dw = g.dparams.at(pass.slots[0])?;
        if let Some(filter) = self.filter.as_ref().filter(|_| !pass.frozen) {
            self.run(filter, [dy.bytes(), x.bytes(), dw.bytes()], None)?;
        }
        if let (Some(data), Some(dx)) = (&self.data, g.dx) {
            let halves = shared.halves.borrow();
            let w = weights(shared.settings.precision, &halves, pass.params, pass.slots[0])?;
            let dx = shared.holds(dx, x_elems)?;
            self.run(data, [dy.bytes(), w, dx.bytes()], None)?;
        }
        Ok(())
    }
}
