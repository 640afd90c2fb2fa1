//! Concatenation along the channels.

use net::Concat;

use super::device::{HostBuf, Reference};
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Calls `f(input, index in this input, index in y)` for every value.
fn each(inputs: &[TensorDesc], y: &TensorDesc, mut f: impl FnMut(usize, usize, usize)) {
    for n in 0..y.n {
        let mut to = n * y.shape.elems();
        for (input, x) in inputs.iter().enumerate() {
            for i in 0..x.shape.elems() {
                f(input, n * x.shape.elems() + i, to);
                to += 1;
            }
        }
    }
}

pub(super) fn plan(_: &Concat, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (inputs, output) = (r.x.to_vec(), TensorDesc::plain(r.x[0].n, r.output()?));
    let inputs_back = inputs.clone();
    let forward = move |_: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        each(&inputs, &output, |input, from, to| y.0[to] = x[input].0[from]);
        Ok(())
    };
    let backward = move |_: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>| {
        each(&inputs_back, &output, |input, to, from| {
            if let Some(dx) = &mut g.dx[input] {
                dx.0[to] = g.dy.0[from];
            }
        });
        Ok(())
    };
    Ok(Box::new(ClosurePlan::new(output, Keeps::ALL, forward, backward)))
}
