//! Uses a single picture file as the input of a network.

use std::path::Path;

use image::DynamicImage;
use image::imageops::FilterType;

use crate::decode::{Decoder, Exif};
use crate::error::{Error, why};
use crate::fault::Fault;
use crate::format::example::{Example, Format};
use crate::memory::Limits;
use crate::regular;
use crate::spec::{ImageSpec, Images};
use crate::transform::canvas::Scratch;
use crate::transform::pipeline::Pipeline;

/// Transforms a PNG or JPEG file into `out`, which has the shape (C, H, W) of the pipeline's output. `limits` bound the
/// cost of decoding.
///
/// If the pipeline accepts images of any size, the file is treated like an image file in a record. If it accepts only
/// one size, the picture is resized to it (bilinear, antialiased, without keeping the aspect ratio). In both cases it is
/// converted between grey and colour. Returns the height and width in the file if the picture was resized, otherwise
/// `None`.
pub fn transform(
    path: &Path,
    pipeline: &Pipeline,
    limits: Limits,
    out: &mut [f32],
) -> Result<Option<(u32, u32)>, Error> {
    let fail = |problem: String| Error::Picture { path: path.to_path_buf(), problem };
    let file = regular::read(path).map_err(|e| fail(why(path, &e)))?;
    let mut scratch = Scratch::new(limits);
    let wanted = match pipeline.input() {
        Images::Fixed(spec) => Some(spec),
        Images::Varied { channels: 1 } => {
            colour_shape(&file, limits, pipeline.exif()).map(|spec| ImageSpec { channels: 1, ..spec })
        }
        // grey becomes colour when the image of a record is decoded
        Images::Varied { .. } => None,
    };
    let (done, resized_from) = match wanted {
        None => {
            let example = Example::from_file(&file, Format::Jpeg);
            (pipeline.run(&example, 0, 0, &mut scratch, out), None)
        }
        Some(spec) => {
            let Picture { pixels, resized_from } = read(&file, spec, limits, pipeline.exif()).map_err(fail)?;
            (pipeline.apply(&pixels, spec, 0, 0, &mut scratch, out), resized_from)
        }
    };
    done.map_err(|fault| fail(fault.to_string()))?;
    Ok(resized_from)
}

/// Returns the shape of a picture with colours. Returns `None` for a grey picture, or if its header cannot be read.
fn colour_shape(file: &[u8], limits: Limits, exif: Exif) -> Option<ImageSpec> {
    let mut decoder = Decoder::new(limits);
    decoder.exif(exif);
    let spec = decoder.open_file(file).ok()?.spec();
    (spec.channels == 3).then_some(spec)
}

/// A picture as bytes (H, W, C) of the requested shape.
struct Picture {
    pixels: Vec<u8>,
    /// Height and width in the file, if the picture was resized.
    resized_from: Option<(u32, u32)>,
}

/// Decodes a picture like the image of a record, and converts it to the shape `spec`.
fn read(file: &[u8], spec: ImageSpec, limits: Limits, exif: Exif) -> Result<Picture, String> {
    let text = |fault: Fault| fault.to_string();
    let mut decoder = Decoder::new(limits);
    decoder.exif(exif);
    let stored = decoder.open_file(file).map_err(text)?;
    let ImageSpec { height, width, channels } = stored.spec();
    let mut pixels = Vec::new();
    decoder.reduced(stored, file, 1, channels, &mut pixels).map_err(text)?;
    pixels.truncate(ImageSpec::new(height, width, channels).values());
    let image = match channels {
        1 => image::GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8),
        _ => image::RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8),
    };
    let image = image.ok_or_else(|| format!("the decoder returned fewer pixels than {height} x {width}"))?;
    let resized_from = ((height, width) != (spec.height, spec.width)).then_some((height, width));
    let image = match resized_from {
        Some(_) => image.resize_exact(spec.width, spec.height, FilterType::Triangle),
        None => image,
    };
    let pixels = match spec.channels {
        1 => image.into_luma8().into_raw(),
        3 => image.into_rgb8().into_raw(),
        n => return Err(format!("the network expects {n} channels, but a picture has 1 or 3")),
    };
    Ok(Picture { pixels, resized_from })
}
