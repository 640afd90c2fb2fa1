//! Product of a tensor with one factor per image and channel.

use net::Multiply;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(_: &Multiply, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let desc = r.x[0];
    let plane = desc.shape.plane();
    let forward = move |_: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        for i in 0..desc.elems() {
            y.0[i] = x[0].0[i] * x[1].0[i / plane];
        }
        Ok(())
    };
    elementwise(desc, Keeps::ALL, None, forward, move |_, mut g: Gradients<'_, Reference>| {
        let mut sums = vec![0f64; desc.n * desc.shape.c];
        for i in 0..desc.elems() {
            sums[i / plane] += f64::from(g.dy.0[i]) * f64::from(g.x[0].0[i]);
            g.dy.0[i] *= g.x[1].0[i / plane];
        }
        if let Some(ds) = g.take_dx(1) {
            store(&mut ds.0, &sums);
        }
        Ok(())
    })
}
