//! A single picture file, made to fit what a network was trained on.

use std::path::Path;

use image::imageops::FilterType;

use crate::error::Error;
use crate::spec::ImageSpec;

/// A picture as bytes (H, W, C) of the shape that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// The pixels.
    pub pixels: Vec<u8>,
    /// Height and width in the file, if the picture was resized.
    pub resized_from: Option<(u32, u32)>,
}

/// Reads a PNG or JPEG file and resizes it to `spec` (bilinear, antialiased, without keeping its aspect) if it is of another
/// size. Grey and colour are converted into each other, alpha is dropped, 16-bit channels are cut to 8.
pub fn read(path: &Path, spec: ImageSpec) -> Result<Picture, Error> {
    let fail = |problem: String| Error::Picture { path: path.to_path_buf(), problem };
    let file = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let image = image::load_from_memory(&file)
        .map_err(|e| fail(format!("not a PNG or JPEG that can be decoded ({} bytes): {e}", file.len())))?;
    let size = (image.height(), image.width());
    let resized_from = (size != (spec.height, spec.width)).then_some(size);
    let image = match resized_from {
        Some(_) => image.resize_exact(spec.width, spec.height, FilterType::Triangle),
        None => image,
    };
    let pixels = match spec.channels {
        1 => image.into_luma8().into_raw(),
        3 => image.into_rgb8().into_raw(),
        n => return Err(fail(format!("the network wants {n} channels; only 1 and 3 can be read from a picture"))),
    };
    Ok(Picture { pixels, resized_from })
}
