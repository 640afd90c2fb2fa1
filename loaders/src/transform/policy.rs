//! The operations that augmentation policies choose from, their magnitudes, and AutoAugment's learned policies.

use crate::random::Draws;
use crate::transform::bytes::{self, Affine, ByteImage, Sampling, fused};
use crate::transform::geometry::PlanarShape;

use Operation::*;

/// The operations that a policy draws from, each with its magnitudes.
pub(in crate::transform) type Space = [(Operation, Magnitudes)];

/// The magnitudes of an operation, from weakest to strongest.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) enum Magnitudes {
    /// The operation has no magnitude.
    None,
    /// From 0 to this value, with either sign.
    To(f32),
    /// From 0 to this fraction of the image's width, with either sign.
    OfWidth(f64),
    /// From 0 to this fraction of the image's height, with either sign.
    OfHeight(f64),
    /// A number of bits that falls from the first value (weakest) by the second value: `Bits(8.0, 4.0)` goes from 8 to 4.
    Bits(f32, f64),
    /// A threshold that falls from 1 to 0.
    Threshold,
}

impl Magnitudes {
    /// Returns true if the sign is drawn at random.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::To(_) | Self::OfWidth(_) | Self::OfHeight(_))
    }

    /// Returns magnitude number `bin` of `bins`, or 0 if the operation has no magnitude.
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

    /// Works like [`Magnitudes::at`]. If the magnitude has a sign, also draws it: negative if the next draw is at most
    /// 1/2.
    pub fn draw_sign(self, bin: u32, bins: u32, shape: PlanarShape, draws: &mut Draws) -> f64 {
        let magnitude = self.at(bin, bins, shape);
        if self.is_signed() && draws.unit() <= 0.5 { -magnitude } else { magnitude }
    }
}

/// Draws an operation and applies it. If it has magnitudes, `bin` draws the number of the magnitude, from 0 to `bins -
/// 1`, and then the sign is drawn. Magnitudes depend on the current shape of the image.
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

/// The operations of torchvision's RandAugment.
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

/// Returns the magnitudes of an operation in AutoAugment. They are equal to the magnitudes in [`RAND_AUGMENT`].
/// `Invert` has no magnitudes.
pub(in crate::transform) fn magnitudes(operation: Operation) -> Magnitudes {
    RAND_AUGMENT.iter().find(|(other, _)| *other == operation).map_or(Magnitudes::None, |(_, magnitudes)| *magnitudes)
}

/// The operations of torchvision's TrivialAugmentWide.
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

/// All operations of torchvision's AugMix.
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

/// `AUGMIX` without the last four operations. Those are also among the corruptions that test AugMix.
pub(in crate::transform) const AUGMIX_PARTIAL: &Space = AUGMIX.split_at(9).0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transform) enum Operation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

impl Operation {
    /// Applies the operation. Depending on the operation, the magnitude is a slope, a number of pixels, degrees, the
    /// distance of a factor from 1, a number of bits, or a fraction of 255.
    pub fn apply(self, image: &mut ByteImage, magnitude: f64, sampling: Sampling) {
        match self {
            Self::Identity => {}
            Self::ShearX => shear(image, (magnitude, 0.0), sampling),
            Self::ShearY => shear(image, (0.0, magnitude), sampling),
            Self::TranslateX => translate(image, (magnitude.trunc(), 0.0), sampling),
            Self::TranslateY => translate(image, (0.0, magnitude.trunc()), sampling),
            Self::Rotate => {
                if let Some(grid) = bytes::rotation(magnitude, image.shape()) {
                    bytes::warp(image, &grid, sampling);
                }
            }
            Self::Brightness => bytes::brightness(image, (1.0 + magnitude) as f32),
            Self::Color => bytes::saturation(image, 1.0 + magnitude),
            Self::Contrast => bytes::contrast(image, 1.0 + magnitude),
            Self::Sharpness => bytes::sharpness(image, 1.0 + magnitude),
            Self::Posterize => bytes::posterize(image, magnitude as u32),
            Self::Solarize => bytes::solarize(image, (255.0 * magnitude) as f32),
            Self::AutoContrast => bytes::autocontrast(image),
            Self::Equalize => bytes::equalize(image),
            Self::Invert => bytes::invert(image),
        }
    }
}

/// Shears by these slopes in x and y. The top left corner stays in place.
fn shear(image: &mut ByteImage, slopes: (f64, f64), sampling: Sampling) {
    let shape = image.shape();
    let shear = (slopes.0.atan().to_degrees(), slopes.1.atan().to_degrees());
    let centre = (-0.5 * shape.width as f64, -0.5 * shape.height as f64);
    bytes::warp(image, &Affine { shear, centre, ..Affine::IDENTITY }.grid(shape), sampling);
}

/// Moves the image by this number of columns and rows.
fn translate(image: &mut ByteImage, by: (f64, f64), sampling: Sampling) {
    let grid = Affine { translate: by, ..Affine::IDENTITY }.grid(image.shape());
    bytes::warp(image, &grid, sampling);
}

// AutoAugment's policies (Cubuk et al. 2018), learned on ImageNet, CIFAR-10 and SVHN. Each has 25 pairs of operations.
// Each operation has a probability and the number of one of ten magnitudes (0 if it has no magnitude).

/// The pairs of operations of a policy. One pair is drawn for each image.
pub(in crate::transform) type Policy = [[Step; 2]; 25];

/// An operation that is applied with a given probability.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) struct Step {
    pub operation: Operation,
    pub probability: f32,
    /// Number of the magnitude, from 0 to 9.
    pub bin: u32,
}

const fn step(operation: Operation, probability: f32, bin: u32) -> Step {
    Step { operation, probability, bin }
}

pub(in crate::transform) const IMAGENET: &Policy = &[
    [step(Posterize, 0.4, 8), step(Rotate, 0.6, 9)],
    [step(Solarize, 0.6, 5), step(AutoContrast, 0.6, 0)],
    [step(Equalize, 0.8, 0), step(Equalize, 0.6, 0)],
    [step(Posterize, 0.6, 7), step(Posterize, 0.6, 6)],
    [step(Equalize, 0.4, 0), step(Solarize, 0.2, 4)],
    [step(Equalize, 0.4, 0), step(Rotate, 0.8, 8)],
    [step(Solarize, 0.6, 3), step(Equalize, 0.6, 0)],
    [step(Posterize, 0.8, 5), step(Equalize, 1.0, 0)],
    [step(Rotate, 0.2, 3), step(Solarize, 0.6, 8)],
    [step(Equalize, 0.6, 0), step(Posterize, 0.4, 6)],
    [step(Rotate, 0.8, 8), step(Color, 0.4, 0)],
    [step(Rotate, 0.4, 9), step(Equalize, 0.6, 0)],
    [step(Equalize, 0.0, 0), step(Equalize, 0.8, 0)],
    [step(Invert, 0.6, 0), step(Equalize, 1.0, 0)],
    [step(Color, 0.6, 4), step(Contrast, 1.0, 8)],
    [step(Rotate, 0.8, 8), step(Color, 1.0, 2)],
    [step(Color, 0.8, 8), step(Solarize, 0.8, 7)],
    [step(Sharpness, 0.4, 7), step(Invert, 0.6, 0)],
    [step(ShearX, 0.6, 5), step(Equalize, 1.0, 0)],
    [step(Color, 0.4, 0), step(Equalize, 0.6, 0)],
    [step(Equalize, 0.4, 0), step(Solarize, 0.2, 4)],
    [step(Solarize, 0.6, 5), step(AutoContrast, 0.6, 0)],
    [step(Invert, 0.6, 0), step(Equalize, 1.0, 0)],
    [step(Color, 0.6, 4), step(Contrast, 1.0, 8)],
    [step(Equalize, 0.8, 0), step(Equalize, 0.6, 0)],
];

pub(in crate::transform) const CIFAR10: &Policy = &[
    [step(Invert, 0.1, 0), step(Contrast, 0.2, 6)],
    [step(Rotate, 0.7, 2), step(TranslateX, 0.3, 9)],
    [step(Sharpness, 0.8, 1), step(Sharpness, 0.9, 3)],
    [step(ShearY, 0.5, 8), step(TranslateY, 0.7, 9)],
    [step(AutoContrast, 0.5, 0), step(Equalize, 0.9, 0)],
    [step(ShearY, 0.2, 7), step(Posterize, 0.3, 7)],
    [step(Color, 0.4, 3), step(Brightness, 0.6, 7)],
    [step(Sharpness, 0.3, 9), step(Brightness, 0.7, 9)],
    [step(Equalize, 0.6, 0), step(Equalize, 0.5, 0)],
    [step(Contrast, 0.6, 7), step(Sharpness, 0.6, 5)],
    [step(Color, 0.7, 7), step(TranslateX, 0.5, 8)],
    [step(Equalize, 0.3, 0), step(AutoContrast, 0.4, 0)],
    [step(TranslateY, 0.4, 3), step(Sharpness, 0.2, 6)],
    [step(Brightness, 0.9, 6), step(Color, 0.2, 8)],
    [step(Solarize, 0.5, 2), step(Invert, 0.0, 0)],
    [step(Equalize, 0.2, 0), step(AutoContrast, 0.6, 0)],
    [step(Equalize, 0.2, 0), step(Equalize, 0.6, 0)],
    [step(Color, 0.9, 9), step(Equalize, 0.6, 0)],
    [step(AutoContrast, 0.8, 0), step(Solarize, 0.2, 8)],
    [step(Brightness, 0.1, 3), step(Color, 0.7, 0)],
    [step(Solarize, 0.4, 5), step(AutoContrast, 0.9, 0)],
    [step(TranslateY, 0.9, 9), step(TranslateY, 0.7, 9)],
    [step(AutoContrast, 0.9, 0), step(Solarize, 0.8, 3)],
    [step(Equalize, 0.8, 0), step(Invert, 0.1, 0)],
    [step(TranslateY, 0.7, 9), step(AutoContrast, 0.9, 0)],
];

pub(in crate::transform) const SVHN: &Policy = &[
    [step(ShearX, 0.9, 4), step(Invert, 0.2, 0)],
    [step(ShearY, 0.9, 8), step(Invert, 0.7, 0)],
    [step(Equalize, 0.6, 0), step(Solarize, 0.6, 6)],
    [step(Invert, 0.9, 0), step(Equalize, 0.6, 0)],
    [step(Equalize, 0.6, 0), step(Rotate, 0.9, 3)],
    [step(ShearX, 0.9, 4), step(AutoContrast, 0.8, 0)],
    [step(ShearY, 0.9, 8), step(Invert, 0.4, 0)],
    [step(ShearY, 0.9, 5), step(Solarize, 0.2, 6)],
    [step(Invert, 0.9, 0), step(AutoContrast, 0.8, 0)],
    [step(Equalize, 0.6, 0), step(Rotate, 0.9, 3)],
    [step(ShearX, 0.9, 4), step(Solarize, 0.3, 3)],
    [step(ShearY, 0.8, 8), step(Invert, 0.7, 0)],
    [step(Equalize, 0.9, 0), step(TranslateY, 0.6, 6)],
    [step(Invert, 0.9, 0), step(Equalize, 0.6, 0)],
    [step(Contrast, 0.3, 3), step(Rotate, 0.8, 4)],
    [step(Invert, 0.8, 0), step(TranslateY, 0.0, 2)],
    [step(ShearY, 0.7, 6), step(Solarize, 0.4, 8)],
    [step(Invert, 0.6, 0), step(Rotate, 0.8, 4)],
    [step(ShearY, 0.3, 7), step(TranslateX, 0.9, 3)],
    [step(ShearX, 0.1, 6), step(Invert, 0.6, 0)],
    [step(Solarize, 0.7, 2), step(TranslateY, 0.6, 7)],
    [step(ShearY, 0.8, 4), step(Invert, 0.8, 0)],
    [step(ShearX, 0.7, 9), step(TranslateY, 0.8, 3)],
    [step(ShearY, 0.8, 5), step(AutoContrast, 0.7, 0)],
    [step(ShearX, 0.7, 2), step(Invert, 0.1, 0)],
];

/// Returns number `i` of `count` evenly spaced numbers from `start` to `end`. Bit-identical to `torch.linspace` in f32.
pub(super) fn linspace(start: f32, end: f32, count: u32, i: u32) -> f32 {
    let step = (end - start) / (count - 1) as f32;
    match i < count / 2 {
        true => fused(step, i as f32, start),
        false => fused(-step, (count - 1 - i) as f32, end),
    }
}
