//! AutoAugment's policies (Cubuk et al. 2018), learned on ImageNet, CIFAR-10 and SVHN: 25 pairs of operations, each with its
//! probability and which of ten magnitudes it has (0 where it has none).

use super::operation::Operation::{self, *};

/// Pairs, of which one is drawn for an image.
pub(in crate::transform) type Policy = [[Step; 2]; 25];

/// An operation that may happen.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) struct Step {
    pub operation: Operation,
    pub probability: f32,
    /// The number of its magnitude.
    pub bin: u32,
}

const fn step(operation: Operation, probability: f32, bin: u32) -> Step {
    Step { operation, probability, bin }
}

/// Learned on ImageNet.
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

/// Learned on CIFAR-10.
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

/// Learned on SVHN.
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
