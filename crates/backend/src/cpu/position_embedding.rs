//! A learned vector for each position. The parameter has the layout (positions, channels).

use net::PositionEmbedding;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::DividedMatrix;
use super::layout::Format;
use super::threads::Threads;
use crate::memory::store;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    threads: Threads,
    x: TensorDesc,
}

pub(super) fn plan(cpu: &Cpu, _: &PositionEmbedding, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    Ok(Box::new(Plan { threads: cpu.threads, x: r.x[0] }))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.elems())]
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let TensorDesc { shape, block, .. } = self.x;
        let (vectors, x, row) = (pass.params.get(pass.slots[0]), x[0].as_slice(), shape.plane() * block);
        self.threads.each_item(&mut y.as_mut_slice()[..self.x.elems()], row, |i, y| {
            y.copy_from_slice(&x[i * row..][..row]);
            let channels = i % self.x.blocks() * block..shape.c;
            for (y, vector) in y.chunks_exact_mut(block).zip(vectors.chunks_exact(shape.c)) {
                y.iter_mut().zip(&vector[channels.clone()]).for_each(|(y, v)| *y += v);
            }
        });
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        if pass.frozen {
            return Ok(());
        }
        let TensorDesc { n, shape, block, .. } = self.x;
        let (dy, row) = (g.dy.as_slice(), shape.plane() * block);
        let gradient = &mut g.dparams.get_mut(pass.slots[0])[..shape.elems()];
        self.threads.divide(
            self.x.blocks(),
            DividedMatrix::by_columns(gradient, shape.c, block),
            |own, mut gradient| {
                for b in own {
                    let mut sums = vec![0.0; row];
                    for sample in 0..n {
                        let dy = &dy[sample * self.x.sample_elems() + b * row..][..row];
                        sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += f64::from(*dy));
                    }
                    let channels = b * block..((b + 1) * block).min(shape.c);
                    for (position, sums) in sums.chunks_exact(block).enumerate() {
                        store(gradient.row(position, channels.clone()), sums);
                    }
                }
            },
        );
        Ok(())
    }
}
