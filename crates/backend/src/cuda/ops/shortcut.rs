//! The parameter-free shortcut of a residual block: as a separate operation, and its sizes for a batch normalisation
//! that reads its input directly.

use std::rc::Rc;

use net::{OpSpec, Shortcut};

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Slice;
use crate::cuda::kernels::declarations::{ShortcutBackward, ShortcutForward, ShortcutSizes};
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, ShapedShortcut, TensorDesc, Traffic};

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

/// Returns true if the batch-norm kernels, which read 16 bytes of channels at a time, can do a shortcut's work: all its
/// numbers of channels must fill whole groups of 16 bytes.
pub fn in_whole_packs(shared: &Shared, of: &ShapedShortcut) -> bool {
    let pack = shared.geometry().widest();
    [of.x.c, of.shortcut.before(of.x), of.shortcut.out_channels].iter().all(|channels| channels.is_multiple_of(pack))
}

/// A shortcut that is computed as a separate operation.
pub struct Plan {
    shared: Rc<Shared>,
    shortcut: GpuShortcut,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Shortcut, r: &PlanRequest<'_, Cuda>) -> Result<Self, Error> {
        let of = ShapedShortcut { shortcut: *op, x: r.x[0].shape };
        Ok(Self { shared: shared.clone(), shortcut: GpuShortcut::new(shared, &of, r.x[0].n, r.name)? })
    }

    /// Returns the numbers of elements of x and y.
    fn elems(&self) -> [usize; 2] {
        [self.shortcut.x.elems(), self.shortcut.y.elems()]
    }
}

pub fn plan(gpu: &Cuda, op: &Shortcut, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan::new(&gpu.shared, op, r)?))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.shortcut.y
    }

    fn state_bytes(&self) -> usize {
        self.shortcut.bytes()
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let [x, y] = self.elems();
        Some(self.shared.traffic(self.shortcut.copied_elems + y, self.shortcut.copied_elems + x))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, [from, to]) = (&self.shared, self.elems());
        let (x, y) = (shared.holds(x[0], from)?, shared.holds(y, to)?);
        shared.launch(&ShortcutForward { x, y, shortcut: self.shortcut.sizes(), n: to as u64, from })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (shared, [to, from]) = (&self.shared, self.elems());
        let (dy, dx) = (shared.holds(g.dy, from)?, shared.holds(dx, to)?);
        shared.launch(&ShortcutBackward { dy, dx, shortcut: self.shortcut.sizes(), n: to as u64, from })
    }
}
