//! A learned token before a sequence.

use net::ClassToken;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::layout::Format;
use super::relayout;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(cpu: &Cpu, _: &ClassToken, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, x_desc) = (cpu.threads, r.x[0]);
    let y_desc = relayout::output_layout(cpu, &x_desc, r.output()?);
    let (channels, block, blocks) = (y_desc.shape.c, y_desc.block, y_desc.blocks());
    // A row is a channel block of a sample.
    let [x_row, y_row] = [x_desc, y_desc].map(|desc| desc.shape.plane() * desc.block);
    let forward = move |pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let (token, x) = (pass.params.get(pass.slots[0]), x[0].as_slice());
        threads.each_item(&mut y.as_mut_slice()[..y_desc.elems()], y_row, |i, y| {
            let (class, rest) = y.split_at_mut(block);
            for (lane, value) in class.iter_mut().enumerate() {
                *value = token.get(i % blocks * block + lane).copied().unwrap_or(0.0);
            }
            rest.copy_from_slice(&x[i * x_row..][..x_row]);
        });
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>| {
        let dx = g.take_dx(0);
        let dy = g.dy.as_slice();
        if !pass.frozen {
            for (c, gradient) in g.dparams.get_mut(pass.slots[0])[..channels].iter_mut().enumerate() {
                let samples = (0..y_desc.n).map(|n| f64::from(dy[n * y_desc.sample_elems() + y_desc.at(c, 0)]));
                *gradient = samples.sum::<f64>() as f32;
            }
        }
        if let Some(dx) = dx {
            threads.each_item(&mut dx.as_mut_slice()[..x_desc.elems()], x_row, |i, dx| {
                dx.copy_from_slice(&dy[i * y_row + block..][..x_row]);
            });
        }
        Ok(())
    };
    let plan = ClosurePlan::new(y_desc, Keeps::NOTHING, forward, backward);
    Ok(Box::new(ClosurePlan { formats: vec![Format::Plain(channels)], ..plan }))
}
