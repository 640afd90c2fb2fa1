//! Finds height, width and bands in the shape of an array.

use loaders::{ImageSpec, channels};

/// If no axis has length 1 or 3, the band axis must be shorter than both other axes by this factor.
const MUCH_SHORTER: usize = 3;

/// Axis order in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// (H, W, C), or (H, W).
    Interleaved,
    /// (C, H, W).
    Planes,
}

/// Parses `--layout`. The N, which stands for the number of images, may be left out.
///
/// # Errors
///
/// Returns an error for any other text.
pub fn layout(text: &str) -> Result<Layout, String> {
    match text.to_lowercase().trim_start_matches('n') {
        "hwc" | "hw" => Ok(Layout::Interleaved),
        "chw" => Ok(Layout::Planes),
        _ => Err("expected NHWC, NCHW or NHW; N is the number of images, H and W height and width, C the bands".into()),
    }
}

/// The shape of one image in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axes {
    pub height: usize,
    pub width: usize,
    pub bands: usize,
    pub layout: Layout,
}

impl Axes {
    /// Finds the axes in the shape `image`. Without a layout, the band axis is the axis with length 1 or 3, or an axis
    /// that is shorter by [`MUCH_SHORTER`].
    pub fn find(image: &[usize], layout: Option<Layout>) -> Result<Self, String> {
        let (height, width, bands, layout) = match (image, layout) {
            (&[h, w], _) => (h, w, 1, Layout::Interleaved),
            (&[h, w, c], Some(Layout::Interleaved)) => (h, w, c, Layout::Interleaved),
            (&[c, h, w], Some(Layout::Planes)) => (h, w, c, Layout::Planes),
            (&[a, b, c], None) => {
                let is_usual = |n: usize| n == 1 || n == 3;
                let is_short = |bands: usize, other: usize| bands.saturating_mul(MUCH_SHORTER) <= other.min(b);
                match (a, c) {
                    (_, c) if is_usual(c) => (a, b, c, Layout::Interleaved),
                    (a, _) if is_usual(a) => (b, c, a, Layout::Planes),
                    (a, c) if is_short(c, a) => (a, b, c, Layout::Interleaved),
                    (a, c) if is_short(a, c) => (b, c, a, Layout::Planes),
                    _ => {
                        return Err(format!(
                            "images of the shape {image:?} have no axis that is clearly the bands; say which it is with --layout NHWC \
                             or NCHW"
                        ));
                    }
                }
            }
            _ => {
                return Err(format!(
                    "an array of the shape {image:?} is not an image; expected (H, W), (H, W, C) or (C, H, W), and one axis more for \
                     several images"
                ));
            }
        };
        if height == 0 || width == 0 || height.max(width) > u32::MAX as usize {
            return Err(format!(
                "the images have {height} x {width} pixels; expected 1 to {} rows and columns",
                u32::MAX
            ));
        }
        super::check_bands(bands).map_err(|what| format!("{what}; is --layout right?"))?;
        Ok(Axes { height, width, bands, layout })
    }

    pub fn values(self) -> usize {
        self.height.saturating_mul(self.width).saturating_mul(self.bands)
    }

    pub fn spec(self) -> ImageSpec {
        ImageSpec::new(self.height as u32, self.width as u32, self.bands as u32)
    }

    /// Converts an image to interleaved bands. Each value has `size` bytes.
    pub fn interleave(self, image: Vec<u8>, size: usize) -> Vec<u8> {
        if self.layout == Layout::Interleaved || self.bands == 1 {
            return image;
        }
        let mut out = vec![0; image.len()];
        if self.bands == 3 && size == 1 {
            channels::interleave(&image, out.as_chunks_mut().0);
            return out;
        }
        for (band, plane) in image.chunks_exact(self.height * self.width * size).enumerate() {
            for (value, pixel) in plane.chunks_exact(size).zip(out.chunks_exact_mut(self.bands * size)) {
                pixel[band * size..][..size].copy_from_slice(value);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_much_shorter_axis_is_the_bands() {
        let found = |shape: &[usize]| Axes::find(shape, None).map(|axes| (axes.height, axes.width, axes.bands));
        assert_eq!(found(&[64, 48]), Ok((64, 48, 1)));
        assert_eq!(found(&[64, 48, 13]), Ok((64, 48, 13)));
        assert_eq!(found(&[13, 64, 48]), Ok((64, 48, 13)));
        assert_eq!(found(&[3, 2, 2]), Ok((2, 2, 3)));
        assert_eq!(found(&[2, 2, 3]), Ok((2, 2, 3)));
        for unclear in [[8, 64, 8], [4, 5, 6], [6, 4, 5], [20, 64, 40], [40, 64, 20], [5, 13, 64]] {
            assert!(found(&unclear).unwrap_err().contains("--layout"), "{unclear:?}");
        }
        assert!(found(&[8]).is_err() && found(&[0, 4]).is_err() && found(&[4, 4, 5, 6]).is_err());
        let planes = Axes::find(&[8, 8, 8], Some(Layout::Planes)).unwrap();
        assert_eq!(planes.layout, Layout::Planes);
        assert!(Axes::find(&[4000, 5000, 3000], None).unwrap_err().contains("bands"));
    }

    #[test]
    fn planes_become_pixels() {
        let axes = Axes { height: 1, width: 2, bands: 2, layout: Layout::Planes };
        assert_eq!(axes.interleave(vec![1, 0, 2, 0, 3, 0, 4, 0], 2), [1, 0, 3, 0, 2, 0, 4, 0]);
    }
}
