//! Linear layers. With AVX2, large layers use products of our own over weights in panels, because oneDNN 2.6 has
//! blocked products only for AVX-512. All other layers use oneDNN.

mod plan;
mod products;
#[cfg(test)]
mod tests;

use net::{Linear, Shape};

use super::affine;
use super::device::Cpu;
use super::isa::Isa;
use super::layout::Format;
use super::panels::{PANEL, Panels};
use super::register_tile::UNROLLED;
use super::vector::Avx2;
use crate::{Error, PlanRequest, Planned, TensorDesc};

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
pub(super) fn in_panels(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Linear) -> Result<Option<plan::Plan>, Error> {
    let x = r.x[0];
    let (inputs, outputs) = (x.sample_elems(), op.out_features);
    let fits = cpu.isa == Isa::Avx2
        && cpu.bf16.is_none()
        && x.shape.c.is_multiple_of(x.block)
        && inputs.is_multiple_of(UNROLLED)
        && outputs.is_multiple_of(UNROLLED)
        && outputs >= PANEL
        && inputs * outputs >= LEAST_WEIGHTS;
    let Some(set) = Avx2::detect().filter(|_| fits) else { return Ok(None) };
    // An image in plain order has the order of a vector.
    let image = if x.is_plain() { TensorDesc::plain(1, Shape::vector(inputs)) } else { x };
    plan::Plan::new(set, cpu, r, op, Panels::new(outputs, &image)).map(Some)
}

pub(super) fn by_onednn(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Linear) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(affine::Plan::linear(cpu, r, op)?))
}
