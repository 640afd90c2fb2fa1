//! Multiplies each channel by a learned factor.

use net::LayerScale;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(_: &LayerScale, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let desc = r.x[0];
    let channel = move |i: usize| i / desc.shape.plane() % desc.shape.c;
    let forward = move |pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        let factors = pass.params.get(pass.slots[0]);
        for i in 0..desc.elems() {
            y.0[i] = x[0].0[i] * factors[channel(i)];
        }
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Reference>, g: Gradients<'_, Reference>| {
        let factors = pass.params.get(pass.slots[0]);
        let mut sums = vec![0f64; desc.shape.c];
        for i in 0..desc.elems() {
            sums[channel(i)] += f64::from(g.dy.0[i]) * f64::from(g.x[0].0[i]);
            g.dy.0[i] *= factors[channel(i)];
        }
        if !pass.frozen {
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        Ok(())
    };
    let plan = ClosurePlan::new(desc, Keeps::ALL, forward, backward);
    Ok(Box::new(ClosurePlan { formats: vec![desc.shape.c], in_place: true, ..plan }))
}
