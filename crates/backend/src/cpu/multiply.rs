//! Multiplication by a factor for each channel and sample.

use net::Multiply;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::Items;
use super::lanes::{LANES, add_lanes, lanes, scale_row, scale_row_back};
use crate::memory::store;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(cpu: &Cpu, _: &Multiply, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, desc) = (cpu.threads, r.x[0]);
    // A row is a channel block of a sample.
    let (row, rows, block) = (desc.shape.plane() * desc.block, desc.n * desc.blocks(), desc.block);
    let forward = move |_: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let (x, s) = (x[0].as_slice(), x[1].as_slice());
        threads.each_item(&mut y.as_mut_slice()[..rows * row], row, |i, y| {
            scale_row(&x[i * row..], &lanes(s, i * block, block), y);
        });
        Ok(())
    };
    elementwise(desc, Keeps::INPUTS, None, forward, move |_, mut g: Gradients<'_, Cpu>| {
        let (x, s) = (g.x[0].as_slice(), g.x[1].as_slice());
        let mut none = AlignedBuf::default();
        let ds = g.take_dx(1).unwrap_or(&mut none);
        let parts = (Items::new(g.dy.as_mut_slice(), row), Items::new(ds.as_mut_slice(), block));
        threads.divide(rows, parts, |rows, (dy, ds)| {
            let mut ds = ds.chunks_exact_mut(block);
            for (i, dy) in rows.zip(dy.chunks_exact_mut(row)) {
                let (mut sums, mut total) = ([0.0; LANES], [0f64; LANES]);
                scale_row_back(dy, &x[i * row..], &lanes(s, i * block, block), &mut sums);
                add_lanes(&sums, block, &mut total);
                if let Some(ds) = ds.next() {
                    store(ds, &total);
                }
            }
        });
        Ok(())
    })
}
