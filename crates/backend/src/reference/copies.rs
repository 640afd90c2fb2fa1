//! Operations that only copy values from the input to the output.

use super::device::{HostBuf, Reference};
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

/// Plans an operation that copies values. `indices` yields pairs: the position in an input sample and the position in an
/// output sample. Backward copies in the other direction. All positions that do not occur are filled with zeros.
pub(super) fn plan(
    r: &PlanRequest<'_, Reference>,
    indices: impl Iterator<Item = [usize; 2]> + Clone + 'static,
) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (n, x, y) = (r.x[0].n, r.x[0].shape.elems(), TensorDesc::plain(r.x[0].n, r.output()?));
    let (y_elems, backward) = (y.shape.elems(), indices.clone().map(|[x, y]| [y, x]));
    unary::<Reference>(
        y,
        Keeps::ALL,
        move |from, to| copy(n, &indices, (from, x), (to, y_elems)),
        move |_, dy, dx| copy(n, &backward, (dy, y_elems), (dx, x)),
    )
}

/// Copies values in each of `n` samples. Both tensors come with their number of elements per sample.
fn copy(
    n: usize,
    indices: &(impl Iterator<Item = [usize; 2]> + Clone),
    (from, read): (&HostBuf, usize),
    (to, written): (&mut HostBuf, usize),
) {
    to.0[..n * written].fill(0.0);
    for sample in 0..n {
        for [i, k] in indices.clone() {
            to.0[sample * written + k] = from.0[sample * read + i];
        }
    }
}
