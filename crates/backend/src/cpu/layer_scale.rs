//! Multiplication of each channel by a learned factor.

use net::LayerScale;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::Items;
use super::lanes::{LANES, add_lanes, lanes, scale_row, scale_row_back};
use super::layout::Format;
use super::moments::ChannelSums;
use super::threads::Threads;
use crate::memory::store;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    threads: Threads,
    x: TensorDesc,
    sums: ChannelSums,
}

pub(super) fn plan(cpu: &Cpu, _: &LayerScale, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    Ok(Box::new(Plan { threads: cpu.threads, x, sums: ChannelSums::new(cpu.threads, x.blocks() * x.block) }))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c)]
    }

    fn state_bytes(&self) -> usize {
        self.sums.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (block, blocks, row) = (self.x.block, self.x.blocks(), self.x.shape.plane() * self.x.block);
        let (factors, x, n) = (pass.params.get(pass.slots[0]), x[0].as_slice(), self.x.elems());
        self.threads.each_item(&mut y.as_mut_slice()[..n], row, |i, y| {
            scale_row(&x[i * row..], &lanes(factors, i % blocks * block, block), y);
        });
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let (block, blocks, row) = (self.x.block, self.x.blocks(), self.x.shape.plane() * self.x.block);
        let (factors, x) = (pass.params.get(pass.slots[0]), g.x[0].as_slice());
        let dy = Items::new(g.dy.as_mut_slice(), blocks * row);
        let sums = self.sums.compute(self.x.n, dy, |samples, sums, dy| {
            for (i, dy) in (samples.start * blocks..).zip(dy.chunks_exact_mut(row)) {
                let (first, mut own) = (i % blocks * block, [0.0; LANES]);
                scale_row_back(dy, &x[i * row..], &lanes(factors, first, block), &mut own);
                add_lanes(&own, block, &mut sums[first..first + block]);
            }
        });
        if !pass.frozen {
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        Ok(())
    }
}
