//! How tensors lie on the GPU: channels last.

use net::{Reads, Shape};

use super::device::Cuda;
use crate::{Error, PlanRequest, TensorDesc};

/// n images in (h, w, c) order.
pub fn channels_last(n: usize, shape: Shape) -> TensorDesc {
    TensorDesc { n, shape, block: shape.c.max(1), bf16: false }
}

/// Whether memory order is (n, h, w, c).
fn is_channels_last(desc: &TensorDesc) -> bool {
    desc.block == desc.shape.c || desc.shape.plane() == 1 || desc.shape.c == 1
}

/// The inputs' layouts as the operation must see them: those of vectors as vectors.
pub fn layouts(r: &PlanRequest<'_, Cuda>) -> Result<Vec<TensorDesc>, Error> {
    let unfit = |why: &str| Error::Unsupported { op: r.name.into(), why: why.into() };
    let by_channel = r.op.reads() == Reads::Channels;
    if !r.x.iter().all(is_channels_last) {
        return Err(unfit("on a GPU it reads images in channels-last order, not planes"));
    }
    let flattened = r.x.iter().zip(r.shapes).any(|(d, s)| d.shape != *s && d.shape.plane() > 1 && d.shape.c > 1);
    if flattened && (by_channel || r.x.len() > 1) {
        return Err(unfit(
            "it reads a flattened image, whose memory order is not that of a vector; put a linear layer between",
        ));
    }
    // a flattened image stays an image for the linear layer behind it, and for what only passes it on
    let seen = |(d, s): (&TensorDesc, &Shape)| if flattened { *d } else { channels_last(d.n, *s) };
    Ok(r.x.iter().zip(r.shapes).map(seen).collect())
}
