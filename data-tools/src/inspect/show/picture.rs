//! Pictures to be shown: RGB bytes from the image of a record or from the values that a network sees, in a size for people.

use image::imageops::{self, FilterType};
use image::{GrayImage, Rgb, RgbImage};
use loaders::ImageSpec;

/// The inverse of the last op that leaves the scale 0 to 255: byte = value * factor + offset, per channel.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale(Vec<(f64, f64)>);

impl Scale {
    /// The scale for the ops of a pipeline, as `Pipeline::ops` writes them. `standardize` does not keep an image's mean and
    /// deviation: after it black to white is two deviations below to two above the mean.
    pub(super) fn of(ops: &[String]) -> Self {
        let last = ops.iter().rev().find(|op| op.starts_with("normalize(") || *op == "standardize");
        let Some(last) = last else { return Self(vec![(1.0, 0.0)]) };
        let numbers: Vec<f64> = last
            .trim_start_matches("normalize(")
            .trim_end_matches(')')
            .split(',')
            .filter_map(|word| word.trim().parse().ok())
            .collect();
        let (mean, std) = numbers.split_at(numbers.len() / 2);
        if mean.is_empty() {
            return Self(vec![(63.75, 127.5)]);
        }
        Self(mean.iter().zip(std).map(|(mean, std)| (255.0 * std, 255.0 * mean)).collect())
    }

    fn byte(&self, channel: usize, value: f32) -> u8 {
        let (factor, offset) = self.0[channel % self.0.len()];
        (f64::from(value) * factor + offset).round() as u8
    }
}

/// The picture of planar floats, of 1 or 3 channels.
pub(super) fn of_floats(values: &[f32], spec: ImageSpec, scale: &Scale) -> RgbImage {
    let plane = spec.pixels();
    RgbImage::from_fn(spec.width, spec.height, |x, y| {
        let at = y as usize * spec.width as usize + x as usize;
        Rgb(std::array::from_fn(|k| {
            let channel = if spec.channels == 1 { 0 } else { k };
            scale.byte(channel, values[channel * plane + at])
        }))
    })
}

/// The picture of interleaved bytes, of 1 or 3 channels; `None` if they are too few.
pub(super) fn of_bytes(bytes: &[u8], spec: ImageSpec) -> Option<RgbImage> {
    match spec.channels {
        1 => {
            let grey = GrayImage::from_raw(spec.width, spec.height, bytes.to_vec())?;
            Some(image::DynamicImage::ImageLuma8(grey).into_rgb8())
        }
        _ => RgbImage::from_raw(spec.width, spec.height, bytes.to_vec()),
    }
}

/// Enlarges small pictures by an integer factor, so that each pixel is visible; shrinks large ones to `most` pixels.
pub(super) fn fit(picture: RgbImage, wished: u32, most: u32) -> RgbImage {
    let longer = picture.width().max(picture.height()).max(1);
    let (width, height, filter) = if longer > most {
        let shrunk = |side: u32| (u64::from(side) * u64::from(most) / u64::from(longer)).max(1) as u32;
        (shrunk(picture.width()), shrunk(picture.height()), FilterType::Triangle)
    } else {
        let times = (wished / longer).max(1);
        (picture.width() * times, picture.height() * times, FilterType::Nearest)
    };
    if (width, height) == picture.dimensions() {
        return picture;
    }
    imageops::resize(&picture, width, height, filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(ops: &[&str]) -> Scale {
        Scale::of(&ops.iter().map(|op| op.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn normalisation_is_undone() {
        assert_eq!(scale(&["flip"]).byte(2, 77.4), 77);
        let normalized = scale(&["flip", "normalize(0.5, 0.25, 0.125, 0.5, 0.25, 2)", "cutout(2)"]);
        assert_eq!([0, 1, 2].map(|c| normalized.byte(c, 0.0)), [128, 64, 32]);
        assert_eq!([0, 1, 2].map(|c| normalized.byte(c, 1.0)), [255, 128, 255]);
        assert_eq!(scale(&["normalize(0.5, 0.5)"]).byte(1, -1.0), 0);
        assert_eq!([-2.0, 0.0, 2.0, 9.0].map(|v| scale(&["standardize"]).byte(0, v)), [0, 128, 255, 255]);
    }

    #[test]
    fn small_pictures_grow_by_whole_numbers_and_large_ones_shrink() {
        let size = |w, h| fit(RgbImage::new(w, h), 128, 224).dimensions();
        assert_eq!(size(32, 32), (128, 128));
        assert_eq!(size(28, 20), (112, 80));
        assert_eq!(size(224, 224), (224, 224));
        assert_eq!(size(500, 375), (224, 168));
        assert_eq!(size(10_000, 2), (224, 1));
    }
}
