//! A range of channels, and the channel shuffle. Both copy one channel after another, because adjacent channels in one
//! tensor can be in different blocks in the other.

use net::Channels;

use super::device::Cpu;
use super::relayout;
use super::threads::Threads;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(cpu: &Cpu, op: &Channels, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, x, y) = (cpu.threads, r.x[0], relayout::output_layout(cpu, &r.x[0], r.output()?));
    // For each channel of y, the offset in a sample of x at which the channel to copy begins.
    let forward: Vec<_> = (0..y.shape.c).map(|channel| Some(x.at(op.source(channel), 0))).collect();
    // For each channel of x, the offset of its gradient in a sample of dy. `None` if y does not have the channel.
    let mut backward = vec![None; x.shape.c];
    for channel in 0..y.shape.c {
        backward[op.source(channel)] = Some(y.at(channel, 0));
    }
    unary::<Cpu>(
        y,
        Keeps::NOTHING,
        move |from, to| gather(threads, &forward, (&x, from.as_slice()), (&y, to.as_mut_slice())),
        move |_, dy, dx| gather(threads, &backward, (&y, dy.as_slice()), (&x, dx.as_mut_slice())),
    )
}

/// Writes all channels of all samples in `to`, including padding channels. For each channel, `places` has the offset of
/// its source within a sample of `from`. A channel without an offset becomes zero.
fn gather(
    threads: Threads,
    places: &[Option<usize>],
    (from, source): (&TensorDesc, &[f32]),
    (to, target): (&TensorDesc, &mut [f32]),
) {
    let (plane, sample) = (to.shape.plane(), from.sample_elems());
    let blocks = to.blocks();
    threads.each_item(&mut target[..to.elems()], plane * to.block, |item, out| {
        let (n, block) = (item / blocks, item % blocks);
        let source = &source[n * sample..][..sample];
        for lane in 0..to.block {
            let out = out[lane..].iter_mut().step_by(to.block);
            match places.get(block * to.block + lane).copied().flatten() {
                Some(place) => {
                    out.zip(source[place..].iter().step_by(from.block)).for_each(|(out, value)| *out = *value);
                }
                None => out.for_each(|out| *out = 0.0),
            }
        }
    });
}
