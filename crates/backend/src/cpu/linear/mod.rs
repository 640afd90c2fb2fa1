//! Linear layers. With AVX2 and NEON, large layers use products of our own over weights in panels, because oneDNN 2.6
//! has blocked products only for AVX-512. All other layers use oneDNN.

use std::rc::Rc;

use net::{Linear, Shape};

use super::affine;
use super::buf::{AlignedBuf, Scratch};
use super::device::Cpu;
use super::fusion::Relu;
use super::layout::Format;
use super::panels::{PANEL, Panels};
use super::register_tile::UNROLLED;
use super::threads::Threads;
use super::vector::{Eight, Vectors};
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};
use products::{Forward, InputGradient, Sizes, WeightGradient};

mod products;
#[cfg(test)]
mod tests;

/// Smallest number of weights for which the layout matters. Fewer weights stay in the caches.
const LEAST_WEIGHTS: usize = 1 << 16;

pub(super) fn plan(cpu: &Cpu, op: &Linear, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let given = r.formats.and_then(|formats| formats.first());
    match (in_panels(cpu, r, op)?, given) {
        // A smaller batch uses the same kernels as the largest.
        (Some(plan), None | Some(Format::Panels(_))) if given.is_none_or(|given| *given == plan.formats()[0]) => {
            Ok(Box::new(plan))
        }
        (_, Some(Format::Panels(_))) => Err(Error::Unsupported {
            op: r.name.into(),
            why: "its weights are stored in panels for a layer of other sizes".into(),
        }),
        _ => by_onednn(cpu, r, op),
    }
}

/// Plans the layer with products of our own. Returns `None` if they do not support it.
pub(super) fn in_panels(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Linear) -> Result<Option<Plan>, Error> {
    let x = r.x[0];
    let (inputs, outputs) = (x.sample_elems(), op.out_features);
    let fits = cpu.isa.has_fma()
        && cpu.block == Eight::LANES
        && cpu.bf16.is_none()
        && x.shape.c.is_multiple_of(x.block)
        && inputs.is_multiple_of(UNROLLED)
        && outputs.is_multiple_of(UNROLLED)
        && outputs >= PANEL
        && inputs * outputs >= LEAST_WEIGHTS;
    let Some(set) = Eight::detect().filter(|_| fits) else { return Ok(None) };
    // An image in plain order has the order of a vector.
    let image = if x.is_plain() { TensorDesc::plain(1, Shape::vector(inputs)) } else { x };
    let sizes = Sizes { n: x.n, inputs, outputs };
    cpu.scratch.reserve(sizes.workspace(cpu.threads), r.name)?;
    Ok(Some(Plan {
        set,
        threads: cpu.threads,
        sizes,
        y: TensorDesc::plain(x.n, r.output()?),
        panels: Panels::new(outputs, &image),
        has_bias: op.bias,
        relu: Relu::new(op.relu, r.name, r.output_fusion.filter(|_| cpu.fuses)),
        scratch: cpu.scratch.clone(),
    }))
}

pub(super) fn by_onednn(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Linear) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(affine::Plan::linear(cpu, r, op)?))
}

/// A linear layer with weights in panels, planned for one batch size.
pub(super) struct Plan {
    set: Eight,
    threads: Threads,
    sizes: Sizes,
    y: TensorDesc,
    panels: Panels,
    has_bias: bool,
    relu: Relu,
    /// Workspace for a pass. Other operations use the same memory.
    scratch: Rc<Scratch>,
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        let bias = self.has_bias.then_some(Format::Plain(self.sizes.outputs));
        std::iter::once(Format::Panels(self.panels.clone())).chain(bias).collect()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps { inputs: 1, output: self.relu.reads_output() }
    }

    fn implementation(&self) -> String {
        "own panels".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (w, sizes) = (pass.params.get(pass.slots[0]), self.sizes);
        let bias = self.has_bias.then(|| pass.params.get(pass.slots[1]));
        let forward =
            Forward { sizes, x: &x[0].as_slice()[..sizes.n * sizes.inputs], w, bias, relu: self.relu.is_present() };
        forward.run(self.set, self.threads, self.scratch.borrow().as_mut_slice(), y.as_mut_slice());
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let (wanted, sizes) = (g.take_dx(0), self.sizes);
        self.relu.mask(self.threads, self.y.elems(), g.dy, g.y);
        let (dy, mut workspace) = (&g.dy.as_slice()[..self.y.elems()], self.scratch.borrow());
        if !pass.frozen {
            let mut db = vec![0.0; if self.has_bias { sizes.outputs } else { 0 }];
            let weights = WeightGradient { sizes, x: &g.x[0].as_slice()[..sizes.n * sizes.inputs], dy };
            let dw = g.dparams.get_mut(pass.slots[0]);
            weights.run(self.set, self.threads, workspace.as_mut_slice(), dw, self.has_bias.then_some(&mut db));
            if self.has_bias {
                g.dparams.get_mut(pass.slots[1])[..sizes.outputs].copy_from_slice(&db);
            }
        }
        if let Some(dx) = wanted {
            let inputs = InputGradient { sizes, dy, w: pass.params.get(pass.slots[0]) };
            inputs.run(self.set, self.threads, workspace.as_mut_slice(), dx.as_mut_slice());
        }
        Ok(())
    }
}
