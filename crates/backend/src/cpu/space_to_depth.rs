//! Neighbouring pixels as channels. If the channels fill whole blocks, whole blocks are copied.

use net::{PixelChannel, SpaceToDepth};

use super::device::Cpu;
use super::relayout;
use super::threads::Threads;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(cpu: &Cpu, op: &SpaceToDepth, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, op, x, y) = (cpu.threads, *op, r.x[0], relayout::output_layout(cpu, &r.x[0], r.output()?));
    let whole = x.block == y.block && x.shape.c.is_multiple_of(x.block);
    unary::<Cpu>(
        y,
        Keeps::NOTHING,
        move |from, to| {
            gather(threads, whole, (&x, from.as_slice()), (&y, to.as_mut_slice()), |to| op.source(x.shape, to));
        },
        move |_, dy, dx| {
            gather(threads, whole, (&y, dy.as_slice()), (&x, dx.as_mut_slice()), |to| Some(op.target(x.shape, to)));
        },
    )
}

/// Writes all channels of all pixels in `to`, including padding channels. For each of them, `source` returns the pixel
/// and channel in `from` to copy, or `None` for the value 0. If `whole` is set, whole blocks are copied.
fn gather(
    threads: Threads,
    whole: bool,
    (from, values): (&TensorDesc, &[f32]),
    (to, target): (&TensorDesc, &mut [f32]),
    source: impl Fn(PixelChannel) -> Option<PixelChannel> + Sync,
) {
    let (block, plane, blocks) = (to.block, to.shape.plane(), to.blocks());
    threads.each_item(&mut target[..to.elems()], plane * block, |item, out| {
        let (sample, channels) = (item / blocks, item % blocks * block);
        let values = &values[sample * from.sample_elems()..][..from.sample_elems()];
        let at = |channel, position| {
            let of = source(PixelChannel { channel, position })?;
            Some(from.at(of.channel, of.position))
        };
        for (position, out) in out.chunks_exact_mut(block).enumerate() {
            if whole {
                match at(channels, position) {
                    Some(at) => out.copy_from_slice(&values[at..][..block]),
                    None => out.fill(0.0),
                }
                continue;
            }
            for (channel, out) in (channels..).zip(out) {
                let at = if channel < to.shape.c { at(channel, position) } else { None };
                *out = at.map_or(0.0, |at| values[at]);
            }
        }
    });
}
