//! Declarations of the kernels that several operations or passes launch. Kernels of a single operation are declared in
//! its file in `ops`, and the optimizer's kernels in [`update`](super::update).

use super::kernel::kernels;
use crate::CropRect;
use crate::cuda::driver::slice::{Activation, plain};

/// A piece of a range: `len` elements starting at `from`, their weight decay, the index of their learning-rate factor
/// in the rates, and whether their gradients are in the activations' type.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Piece {
    pub from: u64,
    pub len: u32,
    pub decay: f32,
    pub rate: u32,
    pub narrow: u32,
}

plain! { Piece = "Piece" }

plain! { CropRect = "CropRect" }

/// A shortcut as a kernel argument, see shortcut.cuh.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct ShortcutSizes {
    pub h: u32,
    pub w: u32,
    pub c: u32,
    pub out_h: u32,
    pub out_w: u32,
    pub out_c: u32,
    pub stride: u32,
    pub before: u32,
}

plain! { ShortcutSizes = "Shortcut" }

/// Words in a block of packed codes. Each word has several codes (lanes).
pub const WORDS: usize = 64;

/// A range of consecutive elements of a tensor. The range starts at `from` in the bucket and at `place` in the array of
/// encoded gradients. `first` elements of the tensor come before it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Run {
    pub from: u64,
    pub place: u64,
    pub first: u64,
    pub len: u32,
    pub tensor: u32,
    pub parameter: u32,
    pub in_lanes: u32,
}

plain! { Run = "Run" }

/// A tensor of a codec, with its range of runs. Its scale is `clip` standard deviations, or its largest |g| if `clip`
/// is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Span {
    pub elems: f64,
    pub first: u32,
    pub runs: u32,
    pub clip: f32,
    pub zero: u32,
}

plain! { Span = "Span" }

kernels! {
    // elementwise.cu

    /// y = a + b
    sum_of_two: SumOfTwo over threads(n.div_ceil(4)) {
        a: [Activation; n], b: [Activation; n], y: [Activation; n], n: u64,
    }

    /// Converts weights to the activations' type.
    cast_weights: CastWeights over threads(n) {
        from: [f32; n], to: [Activation; n], n: u64,
    }

    /// y = x
    copy_tensor: CopyTensor over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    // linear.cu

    /// Adds a bias to y, then applies ReLU if `with_relu` is set.
    bias_forward: BiasForward over columns(rows, channels) {
        y: [Activation; rows * channels], bias: [f32; channels], rows: u32, channels: u32, width: u32, with_relu: i32,
    }

    /// Sets dy to zero where ReLU's output is zero if `with_relu` is set, and sums dy over the rows.
    bias_backward: BiasBackward over columns(rows, channels) as grid {
        y: (null or [Activation; rows * channels]),
        dy: [Activation; rows * channels],
        partial: [f64; grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        with_relu: i32,
        dbias: [f32; channels],
    }

    // arena.cu

    /// to += from
    arena_add: ArenaAdd over threads(n) { to: [f32; n], from: [f32; n], n: u64 }

    /// to *= factor
    arena_scale: ArenaScale over threads(n) { to: [f32; n], factor: f32, n: u64 }

    arena_clamp: ArenaClamp over threads(n) { to: [f32; n], limit: f32, n: u64 }

    /// to += average (from - to)
    arena_lerp: ArenaLerp over threads(n) { to: [f32; n], from: [f32; n], average: [f64; 1], n: u64 }

    /// Converts gradients from the activations' type to f32. All pieces are inside the first `end` elements.
    cast_gradients: CastGradients over blocks(count) given(end) {
        pieces: [Piece; count], count: u32, from: [Activation; end], to: [f32; end],
    }

    /// Computes the sum of squares of each piece. All pieces are inside the first `end` elements.
    squares_of_pieces: SquaresOfPieces over blocks(count) given(end) {
        x: [f32; end], pieces: [Piece; count], count: u32, sums: [f64; count],
    }

    /// Adds the sums of each range's pieces. There are `end` pieces.
    sums_of_ranges: SumsOfRanges over threads(ranges) given(end) {
        pieces: [f64; end], first: [u32; ranges + 1], ranges: u32, sums: [f64; ranges],
    }

    /// Records in `state` whether any gradient is Inf or NaN.
    scale_found: ScaleFound over threads(n) { g: [f32; n], n: u64, state: [u32; 5] }

    /// Computes the next loss scale.
    scale_settle: ScaleSettle over one_block() {
        scale: [f32; 2], state: [u32; 6], interval: u32, seen: [f32; 4 * kept], kept: u32,
    }

    /// Divides gradients by the loss scale.
    scale_undo: ScaleUndo over threads(n) { g: [f32; n], scale: [f32; 2], n: u64 }

    // input.cu. The kernels that read a batch also copy the `words` words of the pass's inbox from host memory to the
    // GPU.

    /// Reads f32 values in (n, c, h, w) order.
    input_values: InputValues over threads(rows * plane) {
        images: [f32; rows * channels * plane],
        to: [Activation; rows * channels * plane],
        rows: u32,
        channels: u32,
        plane: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }

    /// Reads bytes in (n, h, w, c) order and converts them with a table per channel.
    input_bytes: InputBytes over threads(n) {
        pixels: [u8; n],
        tables: [f32; 256 * channels],
        to: [Activation; n],
        n: u64,
        channels: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }

    /// Reads stored values of `size` bytes in (n, h, w, c) order and normalises them with a mean and a deviation per
    /// channel.
    input_stored: InputStored over threads(n) given(size) {
        pixels: [u8; n * size],
        pairs: [f32; 2 * channels],
        to: [Activation; n],
        n: u64,
        channels: u32,
        kind: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }

    /// Mixes each row (n, h, w, c) in place with the row at the mirrored position in the batch. Exchanges the pixels
    /// inside the area. If `bottom` is 0, mixes all pixels with weight `share` instead.
    mix_rows: MixRows over threads(rows / 2 * h * w * channels) {
        x: [Activation; rows * h * w * channels],
        rows: u32,
        h: u32,
        w: u32,
        channels: u32,
        share: f32,
        top: u32,
        bottom: u32,
        left: u32,
        right: u32,
    }

    /// Reads crops of pictures on the GPU. The crops refer to the first `pictures_used` pictures.
    input_views: InputViews over threads(rows * h * w) given(pictures_used) {
        pictures: [u8; pictures_used * from_h * from_w * channels],
        from_h: u32,
        from_w: u32,
        views: [CropRect; rows],
        tables: [f32; 256 * channels],
        to: [Activation; rows * h * w * channels],
        rows: u32,
        h: u32,
        w: u32,
        channels: u32,
        numbers: [u64; words],
        inbox: [u64; words],
        words: u32,
    }

    // loss.cu

    /// Computes loss and correctness of each row and, unless dx is null, the gradient of the scores. Then sums the
    /// loss, and counts the rows whose class has the best score, has one of the best five scores, or is invalid.
    cross_entropy: CrossEntropy over threads(32 * rows) {
        x: [Activation; rows * classes],
        dx: (null or [Activation; rows * classes]),
        labels: [u32; rows],
        factors: [f32; 2],
        loss_scale: [f32; 1],
        weight: f32,
        rows: u32,
        classes: u32,
        losses: [f64; rows],
        hits: [u32; rows],
        arrivals: [u32; 1],
        not_finite: [u32; 1],
        sums: [f64; 4],
    }

    // loss.cu, losses with soft targets

    /// Works like `cross_entropy`, with targets for all classes. Each row of targets begins with the row's weight.
    soft_loss: SoftLossKernel over threads(32 * rows) {
        x: [Activation; rows * classes],
        dx: (null or [Activation; rows * classes]),
        teacher: (null or [Activation; rows * classes]),
        labels: [u32; rows],
        targets: [f32; rows * (1 + classes)],
        factors: [f32; 2],
        loss_scale: [f32; 1],
        weight: f32,
        rows: u32,
        classes: u32,
        form: u32,
        gamma: f32,
        alpha: f32,
        mean: f32,
        share: f32,
        temperature: f32,
        losses: [f64; rows],
        hits: [u32; rows],
        arrivals: [u32; 1],
        not_finite: [u32; 1],
        sums: [f64; 4],
    }

    // norm.cu. A byte of the mask covers `pack` channels. `residual_elems` and `second_elems` are the sizes of x or,
    // with a shortcut, the sizes of the tensor that is read through the shortcut. The images are divided into `groups`
    // groups. If there are two or more groups, launch these kernels with `Shared::launch_grouped`.

    /// Sums each value's offset from the first row, and the offset's square. From these sums it computes the batch's
    /// statistics and the affine map of the forward pass.
    norm_moments: NormMoments over groups(rows, channels, groups) as grid {
        x: [Activation; rows.max(1) * channels],
        partial: [f64; 2 * grid.x * grid.y * grid.z * width],
        arrivals: [u32; grid.x * grid.z],
        rows: u32,
        channels: u32,
        width: u32,
        images: u32,
        groups: u32,
        gamma: (null or [f32; channels]),
        beta: [f32; channels],
        eps: f32,
        statistics: [f64; 2 * channels * groups],
        seen: [f64; 2 * channels * groups],
        affine: [f32; 3 * channels * groups],
    }

    /// Computes the affine map from statistics of n values per channel or, if n is 0, from running statistics.
    norm_affine: NormAffine over threads(channels) {
        statistics: (null or [f64; 2 * channels]),
        running: (null or [f32; 2 * channels]),
        n: f64,
        channels: u32,
        gamma: (null or [f32; channels]),
        beta: [f32; channels],
        eps: f32,
        affine: [f32; 3 * channels],
    }

    /// Computes y = affine(x), then adds the residual and applies ReLU depending on `mode`. With a residual, also
    /// writes ReLU's mask.
    norm_forward: NormForward over groups(rows, channels, groups) as grid given(pack, residual_elems) {
        x: [Activation; rows * channels],
        residual: (null or [Activation; residual_elems]),
        y: [Activation; rows * channels],
        mask: (null or [u8; grid.x * rows * width / pack]),
        affine: [f32; 3 * channels * groups],
        shortcut: (null or [ShortcutSizes; 1]),
        rows: u32,
        channels: u32,
        width: u32,
        images: u32,
        groups: u32,
        mode: i32,
    }

    /// Sums the gradient and its product with x - mean. From these sums the kernel computes the parameters' gradients
    /// and the coefficients of dx.
    norm_gradients: NormGradients over groups(rows, channels, groups) as grid given(pack, second_elems) {
        x: [Activation; rows * channels],
        second: (null or [Activation; second_elems]),
        mask: (null or [u8; grid.x * rows * width / pack]),
        dy: [Activation; rows * channels],
        affine: [f32; 3 * channels * groups],
        shortcut: (null or [ShortcutSizes; 1]),
        partial: [f64; 2 * grid.x * grid.y * grid.z * width],
        arrivals: [u32; grid.x * grid.z],
        rows: u32,
        channels: u32,
        width: u32,
        images: u32,
        groups: u32,
        mode: i32,
        statistics: [f64; 2 * channels * groups],
        n: f64,
        eps: f32,
        dgamma: (null or [f32; channels * groups]),
        dbeta: (null or [f32; channels * groups]),
        sums: [f64; 2 * channels * groups],
        slopes: [f32; 2 * channels * groups],
    }

    /// Sums the gradients for gamma and beta over the groups.
    norm_add_groups: NormAddGroups over threads(channels) {
        parts: [f32; 2 * groups * channels],
        groups: u32,
        channels: u32,
        dgamma: (null or [f32; channels]),
        dbeta: (null or [f32; channels]),
    }

    /// Computes dx's coefficients from the sums over all ranks.
    norm_slopes: NormSlopes over threads(channels) {
        sums: [f64; 2 * channels],
        statistics: [f64; 2 * channels],
        n: f64,
        channels: u32,
        eps: f32,
        affine: [f32; 3 * channels],
        slopes: [f32; 2 * channels],
    }

    /// Computes dx from dy and the coefficients.
    norm_backward: NormBackward over groups(rows, channels, groups) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        dx: [Activation; rows * channels],
        affine: [f32; 3 * channels * groups],
        slopes: [f32; 2 * channels * groups],
        rows: u32,
        channels: u32,
        width: u32,
        images: u32,
        groups: u32,
        mode: i32,
    }

    // channels.cu

    /// Copies every `stride`-th pixel of x to y, with x's channels starting at channel `before` and zeros in the other
    /// channels. x has `from` elements.
    shortcut_forward: ShortcutForward over threads(n) given(from) {
        x: [Activation; from], y: [Activation; n], shortcut: [ShortcutSizes; 1], n: u64,
    }

    /// Copies the gradient of each pixel that `shortcut_forward` copies to dx, and sets the rest of dx to zero. dy has
    /// `from` elements.
    shortcut_backward: ShortcutBackward over threads(n) given(from) {
        dy: [Activation; from], dx: [Activation; n], shortcut: [ShortcutSizes; 1], n: u64,
    }

    // codec.cu. A list of runs ends at element `end` of the bucket and at code `codes_end`, and refers to `tensors`
    // tensors.

    /// Adds the residual to g. Then computes, for each run, the largest |g| and, unless `moments` is null, the sum of g
    /// and the sum of squares.
    codec_measure: CodecMeasure over threads(32 * count) given(end) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        residual: (null or [f32; end]),
        largest: [u32; count],
        moments: (null or [f64; 2 * count]),
    }

    /// Computes each tensor's scale from the measured runs of `shares` workers.
    codec_scales: CodecScales over threads(32 * tensors) {
        largest: [u32; shares * count],
        moments: (null or [f64; 2 * shares * count]),
        spans: [Span; tensors],
        tensors: u32,
        count: u32,
        shares: u32,
        scales: [u32; tensors],
    }

    /// Computes fixed-point codes. Adds them to the existing codes if `add` is 1.
    codec_integers: CodecIntegers over blocks(count) given(end, codes_end, tensors) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        room: u32,
        add: u32,
        codes: [u32; codes_end],
    }

    /// Converts sums of fixed-point codes to gradients.
    codec_integers_back: CodecIntegersBack over blocks(count) given(end, codes_end, tensors) {
        codes: [i32; codes_end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        room: u32,
        g: [f32; end],
    }

    /// Computes codes that are packed into words. Adds them to the existing codes if `add` is 1.
    codec_lanes: CodecLanes over threads(count * WORDS) given(end, codes_end, tensors) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        bits: u32,
        per_word: u32,
        steps: u32,
        worker: u32,
        step: u32,
        seed: u64,
        op: u32,
        residual: (null or [f32; end]),
        add: u32,
        words: [u64; codes_end],
    }

    /// Converts sums of packed codes to gradients.
    codec_lanes_back: CodecLanesBack over threads(count * WORDS) given(end, codes_end, tensors) {
        words: [u64; codes_end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        bits: u32,
        per_word: u32,
        steps: u32,
        zero: i32,
        g: [f32; end],
    }

    /// Converts gradients to bf16.
    codec_halves: CodecHalves over threads(n) { g: [f32; n], n: u64, halves: [u16; n] }

    /// Adds the residual to the gradients, rounds them, and stores the rounding errors as the new residual.
    codec_halves_split: CodecHalvesSplit over threads(n) { g: [f32; n], n: u64, residual: [f32; n] }

    /// Converts bf16 to gradients.
    codec_halves_back: CodecHalvesBack over threads(n) { halves: [u16; n], n: u64, g: [f32; n] }
}
