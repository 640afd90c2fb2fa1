//! Small pictures of records, as files in memory: what pages and logs show of images.

use std::io::Cursor;

use super::picture;
use super::viewer::Viewer;
use crate::error::Error;
use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, RgbImage};
use loaders::{Manifest, Split};

/// Longer side at most; smaller images keep their size.
const MOST: u32 = 112;
/// Up to this side a PNG is small enough, and shows each pixel as it is.
const EXACT: u32 = 48;
/// Of the JPEG files.
const QUALITY: u8 = 85;

/// A picture file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thumbnail {
    /// Number of the image in its split.
    pub id: u64,
    /// Its class; of several the first.
    pub label: u32,
    /// The names of its classes, where there may be several; else empty.
    pub words: String,
    /// Columns of pixels.
    pub width: u32,
    /// Rows of pixels.
    pub height: u32,
    /// `image/png` or `image/jpeg`.
    pub kind: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
}

/// Makes small pictures of the records of a split.
pub struct Thumbnails<'a>(Viewer<'a>);

impl<'a> Thumbnails<'a> {
    /// As the images are stored.
    pub fn stored(split: &'a Split) -> Self {
        Self(Viewer::stored(split))
    }

    /// As a network sees them after these transforms, drawn from `seed` as in training.
    ///
    /// # Errors
    /// For transforms that do not fit the images.
    pub fn transformed(manifest: &Manifest, split: &'a Split, transforms: &[String], seed: u64) -> Result<Self, Error> {
        Ok(Self(Viewer::new(manifest, split, transforms, seed)?))
    }

    /// Image `id` as it looks in `epoch`.
    ///
    /// # Errors
    /// For a record that cannot be read or decoded, and images of neither 1 nor 3 channels.
    pub fn of(&mut self, id: u64, epoch: u32) -> Result<Thumbnail, Error> {
        let picture = picture::fit(self.0.picture_of(id, epoch)?, 0, MOST);
        let (width, height) = picture.dimensions();
        let (kind, bytes) = encoded(&picture).map_err(|e| Error::Usage(format!("image {id}: {e}")))?;
        let (label, words) = (self.0.label(), self.0.several().to_string());
        Ok(Thumbnail { id, label, words, width, height, kind, bytes })
    }
}

/// Its kind and its bytes.
fn encoded(picture: &RgbImage) -> image::ImageResult<(&'static str, Vec<u8>)> {
    let mut file = Cursor::new(Vec::new());
    let kind = match picture.width().max(picture.height()) <= EXACT {
        true => picture.write_to(&mut file, ImageFormat::Png).map(|()| "image/png")?,
        false => {
            picture.write_with_encoder(JpegEncoder::new_with_quality(&mut file, QUALITY)).map(|()| "image/jpeg")?
        }
    };
    Ok((kind, file.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pictures_keep_each_pixel_and_others_are_jpegs() {
        let picture = RgbImage::from_fn(32, 20, |x, y| image::Rgb([x as u8, y as u8, 7]));
        let (kind, bytes) = encoded(&picture).unwrap();
        assert_eq!((kind, image::load_from_memory(&bytes).unwrap().into_rgb8()), ("image/png", picture));
        assert_eq!(encoded(&RgbImage::new(112, 60)).unwrap().0, "image/jpeg");
    }
}
