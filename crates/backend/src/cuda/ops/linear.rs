//! Fully connected layers with cuBLASLt. If a layer has few weights, a single kernel of our own computes all gradients.
//! If the input is an image, the weights are stored in the image's memory order.

use std::rc::Rc;

use net::{Linear, Shape};

use super::bias::{PartialSums, rows_of};
use super::narrow_params::weights;
use super::{activation, bias};
use crate::cuda::cublaslt::{Epilogue, Factor, Product, ProductRequest};
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::Format;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

/// Largest number of weights for which a layer uses our own kernel for all gradients. In such small layers, launches
/// take longer than the arithmetic. The choice does not depend on the number of rows, so that all parts of a batch are
/// computed with the same algorithm.
const FEW: usize = 1 << 14;

kernels! {
    /// Computes the gradients of the weights, the bias and the input.
    linear_gradients: LinearGradients over blocks(outputs * (inputs + 1).div_ceil(32) + (rows * inputs).div_ceil(256)) {
        x: [Activation; rows * inputs],
        w: [Activation; outputs * inputs],
        y: (null or [Activation; rows * outputs]),
        dy: [Activation; rows * outputs],
        dx: (null or [Activation; rows * inputs]),
        dw: (null or [f32; outputs * inputs]),
        dbias: (null or [f32; outputs]),
        rows: u32,
        inputs: u32,
        outputs: u32,
        with_relu: i32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    op: Linear,
    x: TensorDesc,
    y: TensorDesc,
    forward: Product,
    /// True if our own kernel computes the gradients.
    own: bool,
    /// Number of times that the backward pass reads x, w and y.
    passes: usize,
    data: Option<Product>,
    filter: Option<Product>,
    /// Work memory for the bias gradient.
    parts: Option<PartialSums>,
}

fn epilogue(op: &Linear) -> Epilogue {
    match (op.bias, op.relu) {
        (true, true) => Epilogue::BiasRelu,
        (true, false) => Epilogue::Bias,
        (false, true) => Epilogue::Relu,
        (false, false) => Epilogue::Nothing,
    }
}

pub fn plan(gpu: &Cuda, op: &Linear, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let shared = &gpu.shared;
    let x = r.x[0];
    let (n, inputs, outputs) = (x.n, x.shape.elems(), op.out_features);
    let factor = |rows, columns| Factor { rows, columns, transposed: false };
    let settings = &shared.settings;
    let tf32 = if settings.allow_tf32 { ", tf32" } else { "" };
    // the algorithm must not depend on the number of rows, so that all parts of a batch are computed alike
    let product = |factors, wide, epilogue, what: &str| {
        let operation = format!("linear {inputs} to {outputs}, {}{tf32}, {what}{epilogue}", settings.precision);
        let request = ProductRequest { factors, wide, epilogue, operation, n, name: r.name };
        Product::new(shared.cublaslt()?, &shared.settings, &shared.chosen, &request)
    };
    // y = x w^T, dw = dy^T x, dx = dy w
    let (x_rows, dy_rows, w) = (factor(n, inputs), factor(n, outputs), factor(outputs, inputs));
    let turned = |f: Factor| Factor { transposed: true, ..f };
    let forward = product([x_rows, turned(w)], false, epilogue(op), "forward")?;
    let filter = || product([turned(dy_rows), x_rows], true, Epilogue::Nothing, "gradient of the weights");
    let data = || product([dy_rows, w], false, Epilogue::Nothing, "gradient of the input");
    let own = inputs * outputs <= FEW;
    let (train, passes) = (r.train && !own, usize::from(r.train) + usize::from(r.train && r.wants_dx));
    let filter = train.then(filter).transpose()?;
    let data = (train && r.wants_dx).then(data).transpose()?;
    let all = [Some(&forward), data.as_ref(), filter.as_ref()];
    shared.reserve(all.iter().flatten().map(|p| p.workspace()).max().unwrap_or(0), r.name)?;
    let parts = (train && op.bias).then(|| PartialSums::new(shared, n, 1, outputs, 1, r.name)).transpose()?;
    let y = TensorDesc::plain(n, Shape::vector(outputs));
    let (shared, op) = (shared.clone(), op.clone());
    Ok(Box::new(Plan { shared, op, x, y, forward, own, passes, data, filter, parts }))
}

impl Plan {
    /// Enqueues our own kernel, which computes all gradients.
    fn all_gradients(&self, pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let dx = g.take_dx(0);
        let (shared, narrow_params) = (&self.shared, self.shared.narrow_params.borrow());
        let (x, y) = (self.x.elems(), self.y.elems());
        shared.launch(&LinearGradients {
            x: shared.holds(g.x[0], x)?,
            w: weights(shared.settings.precision, &narrow_params, pass.params, pass.slots[0])?,
            y: self.op.relu.then(|| shared.holds(g.y, y)).transpose()?,
            dy: shared.holds(g.dy, y)?,
            dx: dx.map(|dx| shared.holds(dx, x)).transpose()?,
            dw: (!pass.frozen).then(|| g.dparams.at(pass.slots[0])).transpose()?,
            dbias: (self.op.bias && !pass.frozen).then(|| g.dparams.at(pass.slots[1])).transpose()?,
            rows: rows_of(self.x.n, "a batch")?,
            inputs: self.x.shape.elems() as u32,
            outputs: self.op.out_features as u32,
            with_relu: i32::from(self.op.relu),
        })
    }

    fn run(&self, product: &Product, factors: [Slice<'_, u8>; 3], bias: Option<Slice<'_, u8>>) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start()?;
        shared.context().launches.add(1);
        product.run(shared.cublaslt()?, shared.stream(), factors, bias, shared.scratch().slice())
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
        self.parts.as_ref().map_or(0, PartialSums::bytes)
    }

    fn implementation(&self) -> String {
        if self.own && self.passes > 0 { "cuBLASLt, gradients own" } else { "cuBLASLt" }.into()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps { inputs: 1, output: self.op.relu }
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let (x, y) = (self.x.elems(), self.y.elems());
        let w = self.x.shape.elems() * self.op.out_features;
        let after = if self.own { 0 } else { bias::traffic(self.op.bias, self.op.relu, y) };
        Some(self.shared.traffic(x + w + y, self.passes * (x + w + y) + after))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, precision) = (&self.shared, self.shared.settings.precision);
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let narrow_params = shared.narrow_params.borrow();
        let parameter = |i: usize| weights(precision, &narrow_params, pass.params, pass.slots[i]);
        let (w, bias) = (parameter(0)?, self.op.bias.then(|| parameter(1)).transpose()?);
        self.run(&self.forward, [x, w, y].map(Slice::bytes), bias.map(Slice::bytes))
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        if self.own {
            return self.all_gradients(pass, g);
        }
        let wanted = g.take_dx(0);
        let (shared, x_elems, y_elems) = (&self.shared, self.x.elems(), self.y.elems());
        let (x, dy) = (shared.holds(g.x[0], x_elems)?, shared.holds(g.dy, y_elems)?);
        let relu_output = self.op.relu.then(|| shared.holds(g.y, y_elems)).transpose()?;
        if let Some(parts) = self.parts.as_ref().filter(|_| !pass.frozen) {
            let dbias = g.dparams.at(pass.slots[1])?;
            bias::backward(shared, relu_output, dy, self.op.out_features, parts, dbias)?;
        } else if let Some(y) = relu_output {
            activation::mask(shared, y, dy, y_elems)?;
        }
        let dw = g.dparams.at(pass.slots[0])?;
        if let Some(filter) = self.filter.as_ref().filter(|_| !pass.frozen) {
            self.run(filter, [dy.bytes(), x.bytes(), dw.bytes()], None)?;
        }
        if let (Some(data), Some(dx)) = (&self.data, wanted) {
            let narrow_params = shared.narrow_params.borrow();
            let w = weights(shared.settings.precision, &narrow_params, pass.params, pass.slots[0])?;
            self.run(data, [dy, w, shared.holds(dx, x_elems)?].map(Slice::bytes), None)?;
        }
        Ok(())
    }
}
