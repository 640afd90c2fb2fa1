//! Concatenation of tensors along the channels. Whole blocks are copied where the blocks of input and output line up.
//! Otherwise, channels that are contiguous in both are copied together.

use net::Concat;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::SharedSlice;
use super::flat::clear_padding;
use super::lanes::gcd;
use super::relayout;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// An input and its position in the output.
#[derive(Clone)]
struct Part {
    x: TensorDesc,
    /// The channel of y at which the input begins.
    first: usize,
}

/// Returns the number of channels that are contiguous both in the input and in the output.
fn step(part: &Part, y: &TensorDesc) -> usize {
    if part.x.block == part.x.shape.c && y.block == y.shape.c {
        return part.x.block;
    }
    gcd(gcd(part.x.block, part.first), part.x.shape.c)
}

impl Part {
    /// Calls `f(offset in x's sample, offset in y's sample, elements)` for stretches that cover the input.
    fn stretches(&self, y: &TensorDesc, mut f: impl FnMut(usize, usize, usize)) {
        let (c, plane, step) = (self.x.shape.c, self.x.shape.plane(), step(self, y));
        if step == self.x.block && self.x.block == y.block {
            return f(0, y.at(self.first, 0), self.x.sample_elems());
        }
        for channel in (0..c).step_by(step) {
            (0..plane).for_each(|p| f(self.x.at(channel, p), y.at(self.first + channel, p), step));
        }
    }
}

pub(super) fn plan(cpu: &Cpu, _: &Concat, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, y_desc) = (cpu.threads, relayout::output_layout(cpu, &r.x[0], r.output()?));
    let sample = y_desc.sample_elems();
    let mut first = 0;
    let part = |x: &TensorDesc| {
        first += x.shape.c;
        Part { x: *x, first: first - x.shape.c }
    };
    let parts: Vec<Part> = r.x.iter().map(part).collect();
    let parts_back = parts.clone();
    let forward = move |_: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let y = &mut y.as_mut_slice()[..y_desc.elems()];
        clear_padding(threads, &y_desc, y);
        let shared = SharedSlice::new(y);
        // An item is a sample's part of an input, so that all threads have work even if there are few samples.
        threads.each(y_desc.n * parts.len(), |_, items| {
            for (n, i) in items.map(|item| (item / parts.len(), item % parts.len())) {
                let (part, x) = (&parts[i], x[i].as_slice());
                part.stretches(&y_desc, |from, at, len| {
                    let from = n * part.x.sample_elems() + from;
                    // SAFETY: inputs write to different parts of y, which is borrowed exclusively for the whole call.
                    let y = unsafe { shared.part(n * sample + at..n * sample + at + len) };
                    y.copy_from_slice(&x[from..from + len]);
                });
            }
        });
        Ok(())
    };
    let backward = move |_: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>| {
        let dy = g.dy.as_slice();
        for (part, dx) in parts_back.iter().zip(g.dx) {
            let Some(dx) = dx else { continue };
            let dx = &mut dx.as_mut_slice()[..part.x.elems()];
            threads.each_item(dx, part.x.sample_elems(), |n, dx| {
                part.stretches(&y_desc, |to, from, len| {
                    dx[to..to + len].copy_from_slice(&dy[n * sample + from..][..len]);
                });
            });
            clear_padding(threads, &part.x, dx);
        }
        Ok(())
    };
    Ok(Box::new(ClosurePlan::new(y_desc, Keeps::NOTHING, forward, backward)))
}
