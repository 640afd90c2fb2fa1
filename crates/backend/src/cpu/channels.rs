//! A range of channels, and the channel shuffle. Both copy one channel after another, because adjacent channels in one
//! tensor can be in different blocks in the other.

use net::Channels;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::relayout;
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    /// For each channel of y, the offset in a sample of x at which the channel to copy begins.
    forward: Vec<Option<usize>>,
    /// For each channel of x, the offset in a sample of dy at which the channel's gradient begins. `None` if y does not
    /// have the channel.
    backward: Vec<Option<usize>>,
}

pub(super) fn plan(cpu: &Cpu, op: &Channels, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    let y = relayout::output_layout(cpu, &x, r.output()?);
    let mut backward = vec![None; x.shape.c];
    for channel in 0..y.shape.c {
        backward[op.source(channel)] = Some(y.at(channel, 0));
    }
    let forward = (0..y.shape.c).map(|channel| Some(x.at(op.source(channel), 0))).collect();
    Ok(Box::new(Plan { threads: cpu.threads, x, y, forward, backward }))
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
    let blocks = to.sample_elems() / (plane * to.block).max(1);
    threads.split(&mut target[..to.elems()], plane * to.block, |first, run| {
        for (item, out) in (first..).zip(run.chunks_exact_mut(plane * to.block)) {
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
        }
    });
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        gather(self.threads, &self.forward, (&self.x, x[0].as_slice()), (&self.y, y.as_mut_slice()));
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        gather(self.threads, &self.backward, (&self.y, g.dy.as_slice()), (&self.x, dx.as_mut_slice()));
        Ok(())
    }
}
