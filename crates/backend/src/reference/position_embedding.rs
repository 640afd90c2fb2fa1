//! A learned vector for each position.

use net::PositionEmbedding;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(
    _: &PositionEmbedding,
    r: &PlanRequest<'_, Reference>,
) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (desc, plane, channels) = (r.x[0], r.x[0].shape.plane(), r.x[0].shape.c);
    // The index of an element's parameter.
    let parameter = move |i: usize| i % plane * channels + i / plane % channels;
    let forward = move |pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        let vectors = pass.params.get(pass.slots[0]);
        for i in 0..desc.elems() {
            y.0[i] = x[0].0[i] + vectors[parameter(i)];
        }
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Reference>, g: Gradients<'_, Reference>| {
        if !pass.frozen {
            let mut sums = vec![0.0; desc.shape.elems()];
            for i in 0..desc.elems() {
                sums[parameter(i)] += f64::from(g.dy.0[i]);
            }
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        Ok(())
    };
    let plan = ClosurePlan::new(desc, Keeps::ALL, forward, backward);
    Ok(Box::new(ClosurePlan { formats: vec![desc.shape.elems()], in_place: true, ..plan }))
}
