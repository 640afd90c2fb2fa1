//! Selects a single token from a sequence.

use net::Token;

use super::device::Cpu;
use super::relayout;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned};

pub(super) fn plan(cpu: &Cpu, op: &Token, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (x, token, width) = (r.x[0], op.0, r.x[0].block);
    let y = relayout::output_layout(cpu, &x, r.output()?);
    // The index in x where a channel block of the token begins. Blocks are counted over all samples.
    let at = move |block: usize| (block * x.shape.plane() + token) * width;
    unary::<Cpu>(
        y,
        Keeps::NOTHING,
        move |from, to| {
            for (block, to) in to.as_mut_slice()[..y.elems()].chunks_exact_mut(width).enumerate() {
                to.copy_from_slice(&from.as_slice()[at(block)..][..width]);
            }
        },
        move |_, dy, dx| {
            let dx = dx.as_mut_slice();
            dx[..x.elems()].fill(0.0);
            for (block, dy) in dy.as_slice()[..y.elems()].chunks_exact(width).enumerate() {
                dx[at(block)..][..width].copy_from_slice(dy);
            }
        },
    )
}
