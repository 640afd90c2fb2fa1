//! The kernels of arena.cu, and the pieces of ranges that the optimizer's kernels go through.

use super::kernel::kernels;
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

kernels! {
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
}
