//! A learned vector for each position. The parameter has the layout (positions, channels).

use net::PositionEmbedding;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::DividedMatrix;
use super::layout::Format;
use crate::memory::store;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(cpu: &Cpu, _: &PositionEmbedding, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, desc) = (cpu.threads, r.x[0]);
    let TensorDesc { n, shape, block, .. } = desc;
    // A row is a channel block of a sample.
    let row = shape.plane() * block;
    let forward = move |pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let (vectors, x) = (pass.params.get(pass.slots[0]), x[0].as_slice());
        threads.each_item(&mut y.as_mut_slice()[..desc.elems()], row, |i, y| {
            y.copy_from_slice(&x[i * row..][..row]);
            let channels = i % desc.blocks() * block..shape.c;
            for (y, vector) in y.chunks_exact_mut(block).zip(vectors.chunks_exact(shape.c)) {
                y.iter_mut().zip(&vector[channels.clone()]).for_each(|(y, v)| *y += v);
            }
        });
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>| {
        if pass.frozen {
            return Ok(());
        }
        let dy = g.dy.as_slice();
        let gradient = &mut g.dparams.get_mut(pass.slots[0])[..shape.elems()];
        let columns = DividedMatrix::by_columns(gradient, shape.c, block);
        threads.divide(desc.blocks(), columns, |own, mut gradient| {
            for b in own {
                let mut sums = vec![0.0; row];
                for sample in 0..n {
                    let dy = &dy[sample * desc.sample_elems() + b * row..][..row];
                    sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += f64::from(*dy));
                }
                let channels = b * block..((b + 1) * block).min(shape.c);
                for (position, sums) in sums.chunks_exact(block).enumerate() {
                    store(gradient.row(position, channels.clone()), sums);
                }
            }
        });
        Ok(())
    };
    let plan = ClosurePlan::new(desc, Keeps::NOTHING, forward, backward);
    Ok(Box::new(ClosurePlan { formats: vec![Format::Plain(shape.elems())], in_place: true, ..plan }))
}
