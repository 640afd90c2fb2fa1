//! The filters of resizing, by PIL's names and formulas; all are widened where an image becomes smaller.

use std::f64::consts::PI;

/// A filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Filter {
    /// The triangle.
    #[default]
    Bilinear,
    /// Keys's cubic with a = -1/2.
    Bicubic,
    /// The sinc within a window of three of its zeros.
    Lanczos,
}

impl Filter {
    /// All filters by name, the usual one first.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("bilinear", Self::Bilinear), ("bicubic", Self::Bicubic), ("lanczos", Self::Lanczos)];

    /// The name behind other arguments; none for the usual one.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Bilinear => "",
            Self::Bicubic => ", bicubic",
            Self::Lanczos => ", lanczos",
        }
    }

    /// How far it reaches.
    pub fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Its value at a distance from the middle.
    pub fn at(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }

    /// The least and the most that a pixel can become, on the scale 0 to 255: filters with negative values overshoot, and are cut.
    pub fn limits(self) -> (f32, f32) {
        match self {
            Self::Bilinear => (f32::NEG_INFINITY, f32::INFINITY),
            Self::Bicubic | Self::Lanczos => (0.0, 255.0),
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_its_middle_and_zero_at_other_pixels() {
        for (_, filter) in Filter::NAMES {
            assert_eq!(filter.at(0.0), 1.0);
            for pixel in 1..5 {
                assert!(filter.at(f64::from(pixel)).abs() < 1e-15 && filter.at(f64::from(-pixel)).abs() < 1e-15);
            }
            assert_eq!(filter.at(filter.support()), 0.0);
        }
        assert_eq!((Filter::Bicubic.at(0.5), Filter::Bicubic.at(1.5)), (0.5625, -0.0625));
        assert!((Filter::Lanczos.at(1.5) + 0.135_094).abs() < 1e-5);
    }
}
