//! Declarations of the kernels that several operations or passes launch. Those of one operation alone are in its file in `ops`, and those
//! of the optimizer in [`update`](super::update).

use super::kernel::kernels;
use crate::CropRect;
use crate::cuda::driver::slice::{Activation, plain};

/// A piece of a range: `len` elements from `from` on, with their weight decay, the place of their factor of the learning rate, and whether
/// their gradients are in the type of activations.
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

/// A shortcut as kernels know it: see shortcut.cuh.
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

/// Words of a block of lanes.
pub const WORDS: usize = 64;

/// A part of a tensor: elements of the bucket from `from` on, its codes from `place` on, `first` elements of the tensor before it.
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

kernels! {
    // elementwise.cu

    /// y = a + b
    sum_of_two: SumOfTwo over threads(n.div_ceil(4)) {
        a: [Activation; n], b: [Activation; n], y: [Activation; n], n: u64,
    }

    /// Weights in the type of activations.
    cast_weights: CastWeights over threads(n) {
        from: [f32; n], to: [Activation; n], n: u64,
    }

    /// y = x
    copy_tensor: CopyTensor over threads(n.div_ceil(4)) {
        x: [Activation; n], y: [Activation; n], n: u64,
    }

    // bias.cu

    /// y = y + bias, then ReLU where that is wanted.
    bias_forward: BiasForward over columns(rows, channels) {
        y: [Activation; rows * channels], bias: [f32; channels], rows: u32, channels: u32, width: u32, with_relu: i32,
    }

    /// Masks dy by ReLU where that is wanted, and sums it over the rows.
    bias_backward: BiasBackward over columns(rows, channels) as grid {
        y: [Activation; rows * channels],
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

    /// to, limited to [-limit, limit]
    arena_clamp: ArenaClamp over threads(n) { to: [f32; n], limit: f32, n: u64 }

    /// to += average (from - to)
    arena_lerp: ArenaLerp over threads(n) { to: [f32; n], from: [f32; n], average: [f64; 1], n: u64 }

    /// Gradients in the type of activations become f32; the pieces end at `end`.
    cast_gradients: CastGradients over blocks(count) given(end) {
        pieces: [Piece; count], count: u32, from: [Activation; end], to: [f32; end],
    }

    /// The sum of squares of each piece; the pieces end at `end`.
    squares_of_pieces: SquaresOfPieces over blocks(count) given(end) {
        x: [f32; end], pieces: [Piece; count], count: u32, sums: [f64; count],
    }

    /// The sum of each range's pieces; there are `end` pieces.
    sums_of_ranges: SumsOfRanges over threads(ranges) given(end) {
        pieces: [f64; end], first: [u32; ranges + 1], ranges: u32, sums: [f64; ranges],
    }

    /// Notes in `state` whether a gradient is Inf or NaN.
    scale_found: ScaleFound over threads(n) { g: [f32; n], n: u64, state: [u32; 5] }

    /// The next scale of the losses.
    scale_settle: ScaleSettle over one_block() { scale: [f32; 2], state: [u32; 5], interval: u32, seen: [f32; 4] }

    /// Takes the losses' scale out of gradients.
    scale_undo: ScaleUndo over threads(n) { g: [f32; n], scale: [f32; 2], n: u64 }

    // input.cu; each copies `words` numbers of the pass from host memory to the inbox, too

    /// Values, (n, c, h, w).
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

    /// Bytes, (n, h, w, c), by a table for each channel.
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

    /// Rows (n, h, w, c) mixed in place with those that mirror them in the batch: within the area whole pixels are exchanged; where
    /// `bottom` is 0, all are mixed by `share`.
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

    /// Parts of pictures that are on the GPU; the views name the first `pictures_used` of them.
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

    /// Loss and hits of each row, and the gradient of the scores unless dx is null; then loss, hits at one and at five, and rows whose
    /// label is no class.
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

    // soft_loss.cu

    /// The same as `cross_entropy`, against targets over all classes, each row behind its weight.
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
        sigmoid: u32,
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

    // norm.cu; `pack` is the channels of a byte of the mask; `residual_elems` and `second_elems` are those of tensors that are read
    // through a shortcut, or of x

    /// Statistics of the batch from sums of offsets and of their squares, and the affine map of the forward pass.
    norm_moments: NormMoments over columns(rows, channels) as grid {
        x: [Activation; rows.max(1) * channels],
        partial: [f64; 2 * grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        gamma: (null or [f32; channels]),
        beta: [f32; channels],
        eps: f32,
        statistics: [f64; 2 * channels],
        seen: [f64; 2 * channels],
        affine: [f32; 3 * channels],
    }

    /// The affine map from statistics of n values a channel, or, where n is 0, from running ones.
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

    /// y = affine(x), then residual and ReLU as the bits of `mode` say; with a residual, where ReLU let values through.
    norm_forward: NormForward over columns(rows, channels) as grid given(pack, residual_elems) {
        x: [Activation; rows * channels],
        residual: (null or [Activation; residual_elems]),
        y: [Activation; rows * channels],
        mask: (null or [u8; grid.x * rows * width / pack]),
        affine: [f32; 3 * channels],
        shortcut: (null or [ShortcutSizes; 1]),
        rows: u32,
        channels: u32,
        width: u32,
        mode: i32,
    }

    /// The parameters' gradients, sums of the gradient and of its product with the offsets, and the slopes of dx.
    norm_gradients: NormGradients over columns(rows, channels) as grid given(pack, second_elems) {
        x: [Activation; rows * channels],
        second: (null or [Activation; second_elems]),
        mask: (null or [u8; grid.x * rows * width / pack]),
        dy: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        shortcut: (null or [ShortcutSizes; 1]),
        partial: [f64; 2 * grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        mode: i32,
        statistics: [f64; 2 * channels],
        n: f64,
        eps: f32,
        dgamma: (null or [f32; channels]),
        dbeta: (null or [f32; channels]),
        sums: [f64; 2 * channels],
        slopes: [f32; 2 * channels],
    }

    /// The slopes of dx from the sums of all ranks.
    norm_slopes: NormSlopes over threads(channels) {
        sums: [f64; 2 * channels],
        statistics: [f64; 2 * channels],
        n: f64,
        channels: u32,
        eps: f32,
        affine: [f32; 3 * channels],
        slopes: [f32; 2 * channels],
    }

    /// dx from dy and the slopes.
    norm_backward: NormBackward over columns(rows, channels) {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        dx: [Activation; rows * channels],
        affine: [f32; 3 * channels],
        slopes: [f32; 2 * channels],
        rows: u32,
        channels: u32,
        width: u32,
        mode: i32,
    }

    // shortcut.cu

    /// y: every `stride`-th pixel of x, its channels from `before` on, zeros around them; x has `from` elements.
    shortcut_forward: ShortcutForward over threads(n) given(from) {
        x: [Activation; from], y: [Activation; n], shortcut: [ShortcutSizes; 1], n: u64,
    }

    /// dx: the pixels that were taken, zeros elsewhere; dy has `from` elements.
    shortcut_backward: ShortcutBackward over threads(n) given(from) {
        dy: [Activation; from], dx: [Activation; n], shortcut: [ShortcutSizes; 1], n: u64,
    }

    // codec.cu; a list of runs ends at element `end` of the bucket, at code `codes_end`, and names `tensors` tensors

    /// The largest |g| of each run, and sum and sum of squares unless `moments` is null; adds what is fed back before.
    codec_measure: CodecMeasure over threads(32 * count) given(end) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        residual: (null or [f32; end]),
        largest: [u32; count],
        moments: (null or [f64; 2 * count]),
    }

    /// Fixed-point codes, added to those before where `add` is 1.
    codec_integers: CodecIntegers over blocks(count) given(end, codes_end, tensors) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        room: u32,
        add: u32,
        codes: [u32; codes_end],
    }

    /// Gradients from sums of fixed-point codes.
    codec_integers_back: CodecIntegersBack over blocks(count) given(end, codes_end, tensors) {
        codes: [i32; codes_end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        room: u32,
        g: [f32; end],
    }

    /// Codes in lanes of words, added to those before where `add` is 1.
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

    /// Gradients from sums of codes in lanes.
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

    /// Gradients as bf16.
    codec_halves: CodecHalves over threads(n) { g: [f32; n], n: u64, halves: [u16; n] }

    /// Rounds gradients with what is fed back, and keeps what that takes off.
    codec_halves_split: CodecHalvesSplit over threads(n) { g: [f32; n], n: u64, residual: [f32; n] }

    /// bf16 as gradients.
    codec_halves_back: CodecHalvesBack over threads(n) { halves: [u16; n], n: u64, g: [f32; n] }
}
