//! Sum of two tensors.

use net::Add;

use super::device::{HostBuf, Reference};
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(_: &Add, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let desc = TensorDesc::plain(r.x[0].n, r.output()?);
    let n = desc.elems();
    let forward = move |_: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        for i in 0..n {
            y.0[i] = x[0].0[i] + x[1].0[i];
        }
        Ok(())
    };
    elementwise(desc, Keeps::ALL, None, forward, move |_, mut g: Gradients<'_, Reference>| {
        if let Some(dx) = g.take_dx(1) {
            dx.0[..n].copy_from_slice(&g.dy.0[..n]);
        }
        Ok(())
    })
}
