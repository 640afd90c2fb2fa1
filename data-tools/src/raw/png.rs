//! PNG files with 16 bits per value. Every channel is a band, opacity too.

use std::io::Cursor;

use loaders::{Cost, Dtype, ImageSpec, Limits};
use png::{BitDepth, Decoder, DecodingError, Transformations};

use super::RawImage;

/// Lower bound for decoding speed, in pixel bytes per second.
const BYTES_PER_SECOND: f64 = 5e7;

/// Returns true if the header says that the file is a PNG with 16 bits per value.
pub(crate) fn is_wide_png(file: &[u8]) -> bool {
    file.starts_with(b"\x89PNG\r\n\x1a\n") && file.get(24) == Some(&16)
}

pub(super) fn decode(file: &[u8], limits: &Limits) -> Result<RawImage, String> {
    let length = file.len() as u64;
    let most = usize::try_from(limits.allowed(length)).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), png::Limits { bytes: most });
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(fault)?;
    let info = reader.info();
    let (height, width, channels) = (info.height, info.width, info.color_type.samples() as u32);
    if info.bit_depth != BitDepth::Sixteen {
        let bits = info.bit_depth as u8;
        return Err(format!(
            "a PNG with a damaged header, which says both 16 and {bits} bits; save it or fetch it again"
        ));
    }
    let spec = ImageSpec::new(height, width, channels);
    let bytes = (spec.values() as u64).saturating_mul(2);
    let cost = Cost { spec, memory: bytes.saturating_mul(2), scans: 1, seconds: bytes as f64 / BYTES_PER_SECOND };
    limits.check("PNG", length, &cost).map_err(|fault| fault.to_string())?;
    let mut bytes = vec![0; bytes as usize];
    reader.next_frame(&mut bytes).map_err(fault)?;
    // PNG is big-endian.
    bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|value| value.reverse());
    Ok(RawImage::new(Dtype::U16, spec, bytes))
}

fn fault(error: DecodingError) -> String {
    match error {
        DecodingError::LimitsExceeded => {
            "the PNG exceeds the limits; scale it down first, or raise --limit-memory".into()
        }
        other => format!("cannot decode the PNG: {other}; save it or fetch it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};

    #[test]
    fn every_channel_is_a_band() {
        for (colour, channels) in [
            (ExtendedColorType::L16, 1),
            (ExtendedColorType::La16, 2),
            (ExtendedColorType::Rgb16, 3),
            (ExtendedColorType::Rgba16, 4),
        ] {
            let values: Vec<u16> = (0..6 * channels).map(|i| (i * 10_007 % 65_521) as u16).collect();
            let (native, little): (Vec<u8>, Vec<u8>) = (
                values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
                values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            );
            let mut file = Vec::new();
            PngEncoder::new(&mut file).write_image(&native, 3, 2, colour).unwrap();
            assert!(is_wide_png(&file));
            let image = decode(&file, &Limits::DEFAULT).unwrap();
            assert_eq!((image.height, image.width, image.channels, image.bytes), (2, 3, channels, little));
            for cut in [20, 40, file.len() - 20] {
                assert!(decode(&file[..cut], &Limits::DEFAULT).is_err());
            }
        }
    }
}
