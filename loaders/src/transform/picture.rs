//! A single picture file as an input of a network.

use std::path::Path;

use image::imageops::FilterType;

use crate::error::Error;
use crate::format::example::{Example, Format};
use crate::spec::{ImageSpec, Images};
use crate::transform::pipeline::Pipeline;
use crate::transform::scratch::Scratch;

/// Transforms a PNG or JPEG file into `out` (C, H, W of the pipeline's output).
///
/// A pipeline for images of any size gets the file like the file of a record. For a pipeline for images of one size, the picture is
/// resized to it (bilinear, antialiased, without keeping its aspect) and converted between grey and colour; the result is then the
/// height and width in the file, if they differed.
pub fn transform(path: &Path, pipeline: &Pipeline, out: &mut [f32]) -> Result<Option<(u32, u32)>, Error> {
    let fail = |problem: String| Error::Picture { path: path.to_path_buf(), problem };
    let file = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let mut scratch = Scratch::default();
    let (done, resized_from) = match pipeline.input() {
        Images::Varied { .. } => {
            let (format, text, filename) = (Format::Jpeg, "", "");
            let example =
                Example { encoded: &file, format, height: 0, width: 0, channels: 0, label: 0, text, filename };
            (pipeline.run(&example, 0, 0, &mut scratch, out), None)
        }
        Images::Fixed(spec) => {
            let Picture { pixels, resized_from } = read(&file, spec).map_err(fail)?;
            (pipeline.apply(&pixels, spec, 0, 0, &mut scratch, out), resized_from)
        }
    };
    done.map_err(|fault| fail(fault.to_string()))?;
    Ok(resized_from)
}

/// A picture as bytes (H, W, C) of the requested shape.
struct Picture {
    pixels: Vec<u8>,
    /// Height and width in the file, if the picture was resized.
    resized_from: Option<(u32, u32)>,
}

/// Decodes a picture in the shape `spec`.
fn read(file: &[u8], spec: ImageSpec) -> Result<Picture, String> {
    let image = image::load_from_memory(file)
        .map_err(|e| format!("not a PNG or JPEG that can be decoded ({} bytes): {e}", file.len()))?;
    let size = (image.height(), image.width());
    let resized_from = (size != (spec.height, spec.width)).then_some(size);
    let image = match resized_from {
        Some(_) => image.resize_exact(spec.width, spec.height, FilterType::Triangle),
        None => image,
    };
    let pixels = match spec.channels {
        1 => image.into_luma8().into_raw(),
        3 => image.into_rgb8().into_raw(),
        n => return Err(format!("the network wants {n} channels; only 1 and 3 can be read from a picture")),
    };
    Ok(Picture { pixels, resized_from })
}
