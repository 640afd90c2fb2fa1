//! The bias of a convolution, and ReLU behind it.

use net::Conv;

use super::super::buf::AlignedBuf;
use super::super::device::Cpu;
use super::super::format::Format;
use super::super::lanes::by_block;
use super::super::relu::Relu;
use super::super::threads::Threads;
use super::kernel::padded;
use crate::{Arena, Pass, PlanRequest, TensorDesc};

/// A bias or none, and ReLU or none, of a convolution with this output.
pub struct BiasRelu {
    threads: Threads,
    y: TensorDesc,
    pub relu: Relu,
    /// Padded with zeros; empty without one.
    bias: Vec<f32>,
}

impl BiasRelu {
    pub fn new(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv, y: TensorDesc) -> Self {
        let bias = vec![0.0; if op.bias { padded(op.out_channels) } else { 0 }];
        let reader = r.behind.filter(|_| cpu.fuses).map(|fusion| &fusion.relu);
        Self { threads: cpu.threads, y, relu: Relu::new(op.relu, r.name, reader), bias }
    }

    /// Formats of the parameters, of which a filter has so many taps.
    pub fn formats(&self, inputs: usize, taps: usize) -> Vec<Format> {
        let bias = (!self.bias.is_empty()).then_some(Format::Plain(self.y.shape.c));
        std::iter::once(Format::Plain(self.y.shape.c * inputs * taps)).chain(bias).collect()
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.bias[..])
    }

    /// Takes the bias of a pass.
    pub fn take(&mut self, pass: &Pass<'_, Cpu>) {
        if !self.bias.is_empty() {
            let channels = self.y.shape.c;
            self.bias[..channels].copy_from_slice(&pass.params.get(pass.slots[1])[..channels]);
        }
    }

    /// The bias that was taken.
    pub fn bias(&self) -> Option<&[f32]> {
        (!self.bias.is_empty()).then_some(&self.bias)
    }

    /// Leaves of dy what ReLU let through.
    pub fn mask(&self, dy: &mut AlignedBuf, y: &AlignedBuf) {
        self.relu.mask(self.threads, self.y.elems(), dy, y);
    }

    /// The bias's gradient.
    pub fn gradient(&self, pass: &Pass<'_, Cpu>, dy: &[f32], gradients: &mut Arena<Cpu>) {
        if !self.bias.is_empty() {
            let db = &mut gradients.get_mut(pass.slots[1])[..self.y.shape.c];
            by_block!(self.y.block, sum(self.threads, &self.y, dy, db));
        }
    }
}

/// Sum of dy over images and pixels, by channel.
fn sum<const BLOCK: usize>(threads: Threads, desc: &TensorDesc, dy: &[f32], db: &mut [f32]) {
    let (row, blocks, samples) = (desc.shape.plane() * BLOCK, desc.blocks(), desc.n);
    threads.split(db, BLOCK, |first, db| {
        for (block, db) in (first..).zip(db.chunks_mut(BLOCK)) {
            let mut total = [0f64; BLOCK];
            for n in 0..samples {
                let mut sum = [0f32; BLOCK];
                for lanes in dy[(n * blocks + block) * row..][..row].as_chunks::<BLOCK>().0 {
                    sum.iter_mut().zip(lanes).for_each(|(s, d)| *s += d);
                }
                total.iter_mut().zip(sum).for_each(|(t, s)| *t += f64::from(s));
            }
            db.iter_mut().zip(total).for_each(|(d, t)| *d = t as f32);
        }
    });
}
