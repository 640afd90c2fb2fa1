//! Neighbouring pixels as channels. If the channels fill whole blocks, whole blocks are copied.

use net::{PixelChannel, SpaceToDepth};

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::relayout;
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    threads: Threads,
    op: SpaceToDepth,
    x: TensorDesc,
    y: TensorDesc,
}

pub(super) fn plan(cpu: &Cpu, op: &SpaceToDepth, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let y = relayout::output_layout(cpu, &r.x[0], r.output()?);
    Ok(Box::new(Plan { threads: cpu.threads, op: *op, x: r.x[0], y }))
}

impl Plan {
    /// Writes all channels of all pixels in `to`, including padding channels. For each of them, `source` returns the
    /// pixel and channel in `from` to copy, or `None` for the value 0.
    fn gather(
        &self,
        (from, values): (&TensorDesc, &[f32]),
        (to, target): (&TensorDesc, &mut [f32]),
        source: impl Fn(PixelChannel) -> Option<PixelChannel> + Sync,
    ) {
        let (block, plane, blocks) = (to.block, to.shape.plane(), to.blocks());
        let whole = from.block == block && self.x.shape.c.is_multiple_of(block);
        self.threads.split(&mut target[..to.elems()], plane * block, |first, run| {
            for (item, out) in (first..).zip(run.chunks_exact_mut(plane * block)) {
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
            }
        });
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let shape = self.x.shape;
        self.gather((&self.x, x[0].as_slice()), (&self.y, y.as_mut_slice()), |to| self.op.source(shape, to));
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let shape = self.x.shape;
        self.gather((&self.y, g.dy.as_slice()), (&self.x, dx.as_mut_slice()), |to| Some(self.op.target(shape, to)));
        Ok(())
    }
}
