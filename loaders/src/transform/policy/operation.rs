//! The operations of policies, by torchvision's names.

use crate::transform::bytes::{self, Affine, ByteImage, Sampling};

/// An operation.
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
    /// Changes an image. The magnitude is a slope, pixels, degrees, the distance of a factor from 1, bits, or a share of 255.
    pub fn apply(self, image: &mut ByteImage, magnitude: f64, sampling: Sampling) {
        match self {
            Self::Identity => {}
            Self::ShearX => shear(image, (magnitude, 0.0), sampling),
            Self::ShearY => shear(image, (0.0, magnitude), sampling),
            Self::TranslateX => translate(image, (magnitude.trunc(), 0.0), sampling),
            Self::TranslateY => translate(image, (0.0, magnitude.trunc()), sampling),
            Self::Rotate => bytes::rotate(image, magnitude, sampling),
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

/// Shears by slopes in x and in y; the top left corner stays.
fn shear(image: &mut ByteImage, slopes: (f64, f64), sampling: Sampling) {
    let shape = image.shape();
    let shear = (slopes.0.atan().to_degrees(), slopes.1.atan().to_degrees());
    let centre = (-0.5 * shape.width as f64, -0.5 * shape.height as f64);
    bytes::affine(image, &Affine { shear, centre, ..Affine::IDENTITY }, sampling);
}

/// Moves the image by columns and rows.
fn translate(image: &mut ByteImage, by: (f64, f64), sampling: Sampling) {
    bytes::affine(image, &Affine { translate: by, ..Affine::IDENTITY }, sampling);
}
