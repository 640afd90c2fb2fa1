//! The operations that a policy draws from, with their magnitudes.

use super::linspace::linspace;
use super::operation::Operation::{self, *};
use crate::random::Draws;
use crate::transform::bytes::{ByteImage, Sampling};
use crate::transform::moves::PlanarShape;

/// Operations that a policy draws from.
pub(in crate::transform) type Space = [(Operation, Magnitudes)];

/// Magnitudes of an operation, from the weakest on.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) enum Magnitudes {
    /// It has none.
    None,
    /// From 0 to this, of either sign.
    To(f32),
    /// From 0 to this share of the image's width, of either sign.
    OfWidth(f64),
    /// The same of the height.
    OfHeight(f64),
    /// Bits, from the first number down by the second.
    Bits(f32, f64),
    /// From 1 to 0.
    Threshold,
}

impl Magnitudes {
    /// Whether a draw decides the sign.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::To(_) | Self::OfWidth(_) | Self::OfHeight(_))
    }

    /// Number `bin` of `bins` magnitudes; 0 if it has none.
    pub fn at(self, bin: u32, bins: u32, shape: PlanarShape) -> f64 {
        f64::from(match self {
            Self::None => 0.0,
            Self::To(most) => linspace(0.0, most, bins, bin),
            Self::OfWidth(share) => linspace(0.0, (share * shape.width as f64) as f32, bins, bin),
            Self::OfHeight(share) => linspace(0.0, (share * shape.height as f64) as f32, bins, bin),
            Self::Bits(most, fewer) => {
                let step = (f64::from(bins - 1) / fewer) as f32;
                (most - bin as f32 / step).round_ties_even()
            }
            Self::Threshold => linspace(1.0, 0.0, bins, bin),
        })
    }

    /// [`Magnitudes::at`] with its sign: negative if the next draw is at most 1/2.
    pub fn draw_sign(self, bin: u32, bins: u32, shape: PlanarShape, draws: &mut Draws) -> f64 {
        let magnitude = self.at(bin, bins, shape);
        if self.is_signed() && draws.unit() <= 0.5 { -magnitude } else { magnitude }
    }
}

/// Draws an operation, then, if it has magnitudes, which of `bins` of them (`bin` draws it), then its sign; and applies it.
/// Magnitudes are by the shape that the image has.
pub(in crate::transform) fn draw_operation(
    space: &Space,
    bins: u32,
    bin: impl FnOnce(&mut Draws) -> u32,
    image: &mut ByteImage,
    sampling: Sampling,
    draws: &mut Draws,
) {
    let (operation, magnitudes) = space[draws.below(space.len() as u32) as usize];
    let magnitude = match magnitudes {
        Magnitudes::None => 0.0,
        some => {
            let bin = bin(draws);
            some.draw_sign(bin, bins, image.shape(), draws)
        }
    };
    operation.apply(image, magnitude, sampling);
}

/// torchvision's RandAugment.
pub(in crate::transform) const RAND_AUGMENT: &Space = &[
    (Identity, Magnitudes::None),
    (ShearX, Magnitudes::To(0.3)),
    (ShearY, Magnitudes::To(0.3)),
    (TranslateX, Magnitudes::OfWidth(150.0 / 331.0)),
    (TranslateY, Magnitudes::OfHeight(150.0 / 331.0)),
    (Rotate, Magnitudes::To(30.0)),
    (Brightness, Magnitudes::To(0.9)),
    (Color, Magnitudes::To(0.9)),
    (Contrast, Magnitudes::To(0.9)),
    (Sharpness, Magnitudes::To(0.9)),
    (Posterize, Magnitudes::Bits(8.0, 4.0)),
    (Solarize, Magnitudes::Threshold),
    (AutoContrast, Magnitudes::None),
    (Equalize, Magnitudes::None),
];

/// Magnitudes of an operation of AutoAugment: those of [`RAND_AUGMENT`]; `Invert` has none.
pub(in crate::transform) fn magnitudes(operation: Operation) -> Magnitudes {
    RAND_AUGMENT.iter().find(|(other, _)| *other == operation).map_or(Magnitudes::None, |(_, magnitudes)| *magnitudes)
}

/// torchvision's TrivialAugmentWide.
pub(in crate::transform) const TRIVIAL_AUGMENT: &Space = &[
    (Identity, Magnitudes::None),
    (ShearX, Magnitudes::To(0.99)),
    (ShearY, Magnitudes::To(0.99)),
    (TranslateX, Magnitudes::To(32.0)),
    (TranslateY, Magnitudes::To(32.0)),
    (Rotate, Magnitudes::To(135.0)),
    (Brightness, Magnitudes::To(0.99)),
    (Color, Magnitudes::To(0.99)),
    (Contrast, Magnitudes::To(0.99)),
    (Sharpness, Magnitudes::To(0.99)),
    (Posterize, Magnitudes::Bits(8.0, 6.0)),
    (Solarize, Magnitudes::Threshold),
    (AutoContrast, Magnitudes::None),
    (Equalize, Magnitudes::None),
];

/// torchvision's AugMix with all operations.
pub(in crate::transform) const AUGMIX: &Space = &[
    (ShearX, Magnitudes::To(0.3)),
    (ShearY, Magnitudes::To(0.3)),
    (TranslateX, Magnitudes::OfWidth(1.0 / 3.0)),
    (TranslateY, Magnitudes::OfHeight(1.0 / 3.0)),
    (Rotate, Magnitudes::To(30.0)),
    (Posterize, Magnitudes::Bits(4.0, 4.0)),
    (Solarize, Magnitudes::Threshold),
    (AutoContrast, Magnitudes::None),
    (Equalize, Magnitudes::None),
    (Brightness, Magnitudes::To(0.9)),
    (Color, Magnitudes::To(0.9)),
    (Contrast, Magnitudes::To(0.9)),
    (Sharpness, Magnitudes::To(0.9)),
];

/// The same without the last four, which are among the corruptions that AugMix is scored by.
pub(in crate::transform) const AUGMIX_PARTIAL: &Space = AUGMIX.split_at(9).0;
