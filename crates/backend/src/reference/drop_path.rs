//! Stochastic depth.

use net::DropPath;

use super::device::{HostBuf, Reference};
use crate::draws::drop_path_factor;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

pub(super) fn plan(op: &DropPath, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (p, index, desc) = (op.0, r.index, r.x[0]);
    let factor = move |pass: &Pass<'_, Reference>, i: usize| {
        if pass.training { drop_path_factor(p, index, &pass.key, i / desc.shape.elems()) } else { 1.0 }
    };
    let forward = move |pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        (0..desc.elems()).for_each(|i| y.0[i] = x[0].0[i] * factor(pass, i));
        Ok(())
    };
    elementwise(desc, Keeps::ALL, None, forward, move |pass, g: Gradients<'_, Reference>| {
        (0..desc.elems()).for_each(|i| g.dy.0[i] *= factor(pass, i));
        Ok(())
    })
}
