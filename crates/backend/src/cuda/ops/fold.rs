//! Folding of a network's first convolution. For photographs it has three input channels and a stride, and cuDNN has no
//! fast engine for that. The folded image has each stride-sized block of pixels as channels, and the folded convolution
//! has neither stride nor padding: a 7x7 convolution with stride 2 over 3x224x224 becomes 4x4 over 16x115x115. Products
//! and sums are the same, except for additional zeros.

use crate::cuda::cudnn::convolution::Convolution;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice, plain};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::settings::Settings;
use crate::cuda::shared::Shared;
use crate::{Error, Precision};

/// Folding is used for images with at most this many channels.
const CHANNELS: usize = 4;
/// The folded image's channels are a multiple of this, as the GPU's matrix units require.
const MULTIPLE: usize = 8;

/// The sizes as kernel arguments, see fold.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    h: u32,
    w: u32,
    c: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    top: u32,
    left: u32,
    fold_h: u32,
    fold_w: u32,
    fold_c: u32,
    fold_kernel_h: u32,
    fold_kernel_w: u32,
}

plain! { Sizes = "Fold" }

kernels! {
    /// Folds x, which has `from` elements.
    fold_image: FoldImage over threads(n) given(from) {
        x: [Activation; from], folded: [Activation; n], fold: [Sizes; 1], n: u64,
    }

    /// Folds w, which has `from` elements.
    fold_filter: FoldFilter over threads(n) given(from) {
        w: [Activation; from], folded: [Activation; n], fold: [Sizes; 1], n: u64,
    }

    /// Unfolds the filter's gradient to dw, which has `to` elements.
    unfold_filter: UnfoldFilter over threads(n) given(to) {
        folded: [Activation; n], dw: [Activation; to], fold: [Sizes; 1], n: u64,
    }
}

/// A convolution that is computed in folded form.
pub struct Fold {
    /// The folded convolution that cuDNN computes.
    pub convolution: Convolution,
    sizes: CudaBuf,
    /// Number of elements of x and w.
    from: [usize; 2],
    /// Number of elements of the folded x and w.
    to: [usize; 2],
    x: CudaBuf,
    w: CudaBuf,
}

/// Returns true if folding is faster: the products use matrix units, the input has few channels, and the convolution
/// has a stride no larger than its kernel, a single group and no dilation.
fn is_faster(of: &Convolution, settings: &Settings) -> bool {
    let units = settings.precision != Precision::F32 || settings.allow_tf32;
    let strided = of.stride != [1, 1] && (0..2).all(|i| of.kernel[i] >= of.stride[i]);
    units && strided && of.x[0] <= CHANNELS && of.groups == 1 && of.dilation == [1, 1]
}

/// Returns the convolution over the folded image, if folding is faster.
pub fn if_faster(of: &Convolution, settings: &Settings) -> Option<Convolution> {
    is_faster(of, settings).then(|| folded(of))
}

/// Returns the convolution over the folded image.
fn folded(of: &Convolution) -> Convolution {
    let [channels, ..] = of.x;
    let kernel = [0, 1].map(|i| of.kernel[i].div_ceil(of.stride[i]));
    let c = (channels * of.stride[0] * of.stride[1]).next_multiple_of(MULTIPLE);
    let x = [c, of.y[1] + kernel[0] - 1, of.y[2] + kernel[1] - 1];
    Convolution { x, kernel, stride: [1, 1], pads: [0; 4], ..of.clone() }
}

impl Fold {
    /// Creates the folded form of a convolution. Returns `None` if folding is not faster. A folded convolution cannot
    /// compute the gradient of x.
    pub fn new(shared: &Shared, what: &Convolution, name: &str) -> Result<Option<Self>, Error> {
        let Some(convolution) = if_faster(what, &shared.settings) else { return Ok(None) };
        let number = |size: usize| size as u32;
        let sizes = Sizes {
            h: number(what.x[1]),
            w: number(what.x[2]),
            c: number(what.x[0]),
            kernel_h: number(what.kernel[0]),
            kernel_w: number(what.kernel[1]),
            stride_h: number(what.stride[0]),
            stride_w: number(what.stride[1]),
            top: number(what.pads[0]),
            left: number(what.pads[1]),
            fold_h: number(convolution.x[1]),
            fold_w: number(convolution.x[2]),
            fold_c: number(convolution.x[0]),
            fold_kernel_h: number(convolution.kernel[0]),
            fold_kernel_w: number(convolution.kernel[1]),
        };
        let ([x, w, _], [folded_x, folded_w, _]) = (what.elems(), convolution.elems());
        let room = |elems| shared.alloc(shared.words(elems), name);
        let sizes = shared.constant(&[sizes], name)?;
        let (from, to) = ([x, w], [folded_x, folded_w]);
        Ok(Some(Self { convolution, sizes, from, to, x: room(folded_x)?, w: room(folded_w)? }))
    }

    /// Returns the bytes of the buffers.
    pub fn bytes(&self) -> usize {
        self.sizes.bytes() + self.x.bytes() + self.w.bytes()
    }

    /// Returns the folded image that [`Fold::fold`] has written.
    pub fn x<'a>(&'a self, shared: &Shared) -> Result<Slice<'a, Activation>, Error> {
        shared.holds(&self.x, self.to[0])
    }

    /// Returns the folded filter. The backward pass stores the gradient of the folded filter in the same buffer.
    pub fn w<'a>(&'a self, shared: &Shared) -> Result<Slice<'a, Activation>, Error> {
        shared.holds(&self.w, self.to[1])
    }

    /// Folds image and filter for a pass.
    pub fn fold(&self, shared: &Shared, x: Slice<'_, Activation>, w: Slice<'_, Activation>) -> Result<(), Error> {
        let (fold, [from, filter]) = (self.sizes.slice(), self.from);
        shared.launch(&FoldImage { x, folded: self.x(shared)?, fold, n: self.to[0] as u64, from })?;
        shared.launch(&FoldFilter { w, folded: self.w(shared)?, fold, n: self.to[1] as u64, from: filter })
    }

    /// Converts the gradient in [`Fold::w`] to the gradient of the filter.
    pub fn unfold(&self, shared: &Shared, dw: Slice<'_, Activation>) -> Result<(), Error> {
        let (fold, folded, to) = (self.sizes.slice(), self.w(shared)?, self.from[1]);
        shared.launch(&UnfoldFilter { folded, dw, fold, n: self.to[1] as u64, to })
    }

    /// Returns the elements that folding reads and writes, in the forward and in the backward pass.
    pub fn traffic(&self) -> [usize; 2] {
        let ([x, w], [folded_x, folded_w]) = (self.from, self.to);
        [x + w + folded_x + folded_w, w + folded_w]
    }
}
