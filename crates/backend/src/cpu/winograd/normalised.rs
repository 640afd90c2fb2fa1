//! Inputs that are a batch normalisation's: the convolution computes them, by the norm's own formula, from what the norm reads.

use super::super::normal::Constants;
use super::super::vector::{Vectors, load};

/// What a value becomes as it is read.
pub trait Made<S: Vectors>: Copy {
    fn of(self, set: S, value: S::Lanes) -> S::Lanes;
}

/// The value itself.
#[derive(Clone, Copy)]
pub struct AsItIs;

impl<S: Vectors> Made<S> for AsItIs {
    #[inline(always)]
    fn of(self, _: S, value: S::Lanes) -> S::Lanes {
        value
    }
}

/// A norm of all channels.
#[derive(Clone, Copy)]
pub struct Normalised<'a> {
    pub constants: &'a Constants,
    pub relu: bool,
}

/// The norm of one block of channels: scale x + shift, but no less than `least`, which is 0 where ReLU follows.
#[derive(Clone, Copy)]
pub struct NormalisedBlock<L> {
    scale: L,
    shift: L,
    least: L,
}

impl Normalised<'_> {
    #[inline(always)]
    pub fn of_block<S: Vectors>(self, set: S, block: usize) -> NormalisedBlock<S::Lanes> {
        let scale = load(set, &self.constants.scale, block * S::LANES);
        let shift = load(set, &self.constants.shift, block * S::LANES);
        NormalisedBlock { scale, shift, least: set.splat(if self.relu { 0.0 } else { f32::NEG_INFINITY }) }
    }
}

impl<L: Copy> NormalisedBlock<L> {
    /// The gradient where the norm's value, computed from `x`, passes ReLU; 0 elsewhere.
    #[inline(always)]
    pub fn masked<S: Vectors<Lanes = L>>(self, set: S, x: L, gradient: L) -> L {
        set.where_above(self.least, set.mul_add(x, self.scale, self.shift), gradient)
    }
}

impl<S: Vectors> Made<S> for NormalisedBlock<S::Lanes> {
    #[inline(always)]
    fn of(self, set: S, value: S::Lanes) -> S::Lanes {
        // a NaN in the second operand stays
        set.max(self.least, set.mul_add(value, self.scale, self.shift))
    }
}
