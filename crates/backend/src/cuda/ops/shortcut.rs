//! The parameter-free shortcut of a residual block: as a separate operation, and its sizes for a batch normalisation
//! that reads its input directly.

use std::rc::Rc;

use net::{OpSpec, Shortcut};

use super::unary;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Slice;
use crate::cuda::kernels::declarations::{ShortcutBackward, ShortcutForward, ShortcutSizes};
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, PlanRequest, Planned, ShapedShortcut, TensorDesc};

/// A shortcut for fixed sizes, with its description on the GPU.
pub struct GpuShortcut {
    sizes: CudaBuf,
    pub x: TensorDesc,
    pub y: TensorDesc,
    /// Number of elements that the shortcut copies.
    pub copied_elems: usize,
}

impl GpuShortcut {
    /// Creates the shortcut for `n` images.
    pub fn new(shared: &Shared, of: &ShapedShortcut, n: usize, name: &str) -> Result<Self, Error> {
        let (x, shortcut) = (of.x, of.shortcut);
        let y = shortcut.output(&[x]).map_err(|why| Error::Unsupported { op: name.into(), why })?;
        let all = [x.h, x.w, x.c, y.h, y.w, y.c, shortcut.stride, shortcut.before(x)];
        let [h, w, c, out_h, out_w, out_c, stride, before] = all.map(|v| v as u32);
        let sizes = shared.constant(&[ShortcutSizes { h, w, c, out_h, out_w, out_c, stride, before }], name)?;
        Ok(Self { sizes, x: channels_last(n, x), y: channels_last(n, y), copied_elems: n * y.plane() * x.c })
    }

    pub fn sizes(&self) -> Slice<'_, ShortcutSizes> {
        self.sizes.slice()
    }

    pub fn bytes(&self) -> usize {
        self.sizes.bytes()
    }
}

/// Returns true if the batch-norm kernels can do a shortcut's work. They read 16 bytes of channels at a time, so all
/// numbers of channels of the shortcut must fill whole groups of 16 bytes.
pub fn in_whole_packs(shared: &Shared, of: &ShapedShortcut) -> bool {
    let pack = shared.geometry().widest();
    [of.x.c, of.shortcut.before(of.x), of.shortcut.out_channels].iter().all(|channels| channels.is_multiple_of(pack))
}

/// Plans a shortcut that is computed as a separate operation.
pub fn plan(gpu: &Cuda, op: &Shortcut, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let of = ShapedShortcut { shortcut: *op, x: r.x[0].shape };
    let forward = Rc::new(GpuShortcut::new(&gpu.shared, &of, r.x[0].n, r.name)?);
    let (backward, bytes, copied) = (forward.clone(), forward.bytes(), forward.copied_elems);
    let tensors = [forward.x, forward.y];
    let [from, to] = tensors.map(|tensor| tensor.elems());
    unary::plan(
        gpu,
        tensors,
        gpu.shared.traffic(copied + to, copied + from),
        bytes,
        move |shared, x, y| shared.launch(&ShortcutForward { x, y, shortcut: forward.sizes(), n: to as u64, from }),
        move |shared, dy, dx| {
            shared.launch(&ShortcutBackward { dy, dx, shortcut: backward.sizes(), n: from as u64, from: to })
        },
    )
}
