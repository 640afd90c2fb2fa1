//! A learned token before a sequence.

use net::ClassToken;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Calls `f(input index, output index)` for every value that is copied.
fn each(x: &TensorDesc, y: &TensorDesc, mut f: impl FnMut(usize, usize)) {
    let (from, to) = (x.shape.plane(), y.shape.plane());
    for row in 0..x.n * x.shape.c {
        (0..from).for_each(|p| f(row * from + p, row * to + 1 + p));
    }
}

pub(super) fn plan(_: &ClassToken, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (from, to) = (r.x[0], TensorDesc::plain(r.x[0].n, r.output()?));
    let (channels, plane) = (from.shape.c, to.shape.plane());
    let forward = move |pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        let token = pass.params.get(pass.slots[0]);
        for (row, value) in (0..from.n).flat_map(|_| token).enumerate() {
            y.0[row * plane] = *value;
        }
        each(&from, &to, |from, to| y.0[to] = x[0].0[from]);
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>| {
        if !pass.frozen {
            let mut sums = vec![0.0; channels];
            for row in 0..from.n * channels {
                sums[row % channels] += f64::from(g.dy.0[row * plane]);
            }
            store(g.dparams.get_mut(pass.slots[0]), &sums);
        }
        if let Some(dx) = g.take_dx(0) {
            each(&from, &to, |to, from| dx.0[to] = g.dy.0[from]);
        }
        Ok(())
    };
    let plan = ClosurePlan::new(to, Keeps::ALL, forward, backward);
    Ok(Box::new(ClosurePlan { formats: vec![channels], ..plan }))
}
