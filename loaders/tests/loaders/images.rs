//! PNG and JPEG payloads of all kinds decode to the original pixels. Payloads that cannot be decoded are faults.

use crate::common::{self, assert_mentions};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use loaders::Fault;
use loaders::decode::{decode, spec};
use loaders::{Example, Format, ImageSpec};
use turbojpeg::{Image, PixelFormat, Subsamp};

fn png(pixels: &[u8], width: u32, height: u32, color: ExtendedColorType) -> Vec<u8> {
    let mut out = Vec::new();
    PngEncoder::new(&mut out).write_image(pixels, width, height, color).unwrap();
    out
}

fn pixels_of(encoded: &[u8], expected: ImageSpec) -> Result<Vec<u8>, Fault> {
    let mut scratch = Vec::new();
    // The stated format is only a hint to distinguish PNG and JPEG. Here it is sometimes wrong.
    decode(&Example::from_file(encoded, Format::Jpeg), expected, &mut scratch).map(<[u8]>::to_vec)
}

#[test]
fn png_of_every_colour_type() {
    let rgb: Vec<u8> = (0..18).map(|i| i * 14).collect();
    let spec_rgb = ImageSpec::new(3, 2, 3);
    let file = png(&rgb, 2, 3, ExtendedColorType::Rgb8);
    assert_eq!(spec(&Example::from_file(&file, Format::Png)).unwrap(), spec_rgb);
    assert_eq!(pixels_of(&file, spec_rgb).unwrap(), rgb);

    let rgba: Vec<u8> = rgb.chunks(3).flat_map(|p| [p[0], p[1], p[2], 77]).collect();
    let file = png(&rgba, 2, 3, ExtendedColorType::Rgba8);
    assert_eq!(pixels_of(&file, spec_rgb).unwrap(), rgb);

    let grey = [0, 50, 100, 150, 200, 250];
    let spec_grey = ImageSpec::new(3, 2, 1);
    let file = png(&grey, 2, 3, ExtendedColorType::L8);
    assert_eq!(spec(&Example::from_file(&file, Format::Png)).unwrap(), spec_grey);
    assert_eq!(pixels_of(&file, spec_grey).unwrap(), grey);
    let tripled: Vec<u8> = grey.iter().flat_map(|&g| [g; 3]).collect();
    assert_eq!(pixels_of(&file, spec_rgb).unwrap(), tripled);
}

#[test]
fn a_colour_image_in_a_grey_data_set_is_refused() {
    let file = png(&[1; 18], 2, 3, ExtendedColorType::Rgb8);
    let grey = ImageSpec::new(3, 2, 1);
    let fault = pixels_of(&file, grey).unwrap_err();
    let colour = ImageSpec::new(3, 2, 3);
    assert!(matches!(fault, Fault::ImageSize { expected, got } if (expected, got) == (grey, colour)), "{fault}");
    assert_mentions(&fault.to_string(), &["3x2x3", "3x2x1"]);
}

#[test]
fn decoded_jpeg_is_close_to_the_encoded_pixels() {
    let (width, height) = (16, 8);
    let pixels: Vec<u8> = (0..height * width)
        .flat_map(|i| {
            let (y, x) = (i / width, i % width);
            [(x * 10) as u8, (y * 20) as u8, 128]
        })
        .collect();
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, 100).write_image(&pixels, width, height, ExtendedColorType::Rgb8).unwrap();
    let spec_rgb = ImageSpec::new(height, width, 3);
    assert_eq!(spec(&Example::from_file(&file, Format::Jpeg)).unwrap(), spec_rgb);
    let decoded = pixels_of(&file, spec_rgb).unwrap();
    let worst = decoded.iter().zip(&pixels).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst.unwrap() < 16, "{worst:?}");
    let swapped = pixels_of(&file, ImageSpec::new(width, height, 3)).unwrap_err();
    assert!(matches!(swapped, Fault::ImageSize { got, .. } if got == spec_rgb), "{swapped}");
}

#[test]
fn sixteen_bits_are_rounded_to_eight() {
    let spec_grey = ImageSpec::new(1, 4, 1);
    let values: [u16; 4] = [0, 0x1234, 0x80ff, 0xffff];
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let file = png(&bytes, 4, 1, ExtendedColorType::L16);
    let rounded = values.map(|v| (f64::from(v) / 257.0).round() as u8);
    assert_eq!(pixels_of(&file, spec_grey).unwrap(), rounded);
    let tripled: Vec<u8> = rounded.iter().flat_map(|&g| [g; 3]).collect();
    assert_eq!(pixels_of(&file, ImageSpec::new(1, 4, 3)).unwrap(), tripled);
}

/// Encodes CMYK bytes as a JPEG with the best quality.
fn inks(pixels: &[[u8; 4]; 64]) -> Vec<u8> {
    let image = Image { pixels: pixels.as_flattened(), width: 8, pitch: 32, height: 8, format: PixelFormat::CMYK };
    turbojpeg::compress(image, 100, Subsamp::None).unwrap().to_vec()
}

/// With Adobe's marker, 255 means no ink. Without it, 0 does.
#[test]
fn cmyk_with_and_without_adobes_marker() {
    let inverted = [200, 100, 50, 255];
    let file = inks(&[inverted; 64]);
    let marker = file.windows(7).position(|w| w == b"\xff\xee\x00\x0eAdo").unwrap();
    let spec_rgb = ImageSpec::new(8, 8, 3);
    let near = |file: &[u8], expected: [u8; 3]| {
        let got = pixels_of(file, spec_rgb).unwrap();
        let far = got.iter().zip(expected.iter().cycle()).find(|(a, b)| a.abs_diff(**b) > 3);
        assert!(far.is_none(), "{:?}, expected {expected:?}", &got[..3]);
    };
    // turbojpeg writes CMYK as YCCK, which only Adobe's marker can declare.
    near(&file, [200, 100, 50]);
    // If the marker's transform is changed to 0 (CMYK), the decoder takes the planes of the file as inks.
    let plain = |file: &[u8], marked: bool| {
        let mut file = file.to_vec();
        file[marker + 15] = 0;
        if !marked {
            file.drain(marker..marker + 16);
        }
        file
    };
    let grey = inks(&[[128, 128, 128, 255]; 64]);
    // Equal inks have luma 255 - 128 (the library inverts) and chroma 128, so C = 127 and M = Y = 128.
    let planes = pixels_of(&plain(&grey, true), spec_rgb).unwrap();
    let unmarked = pixels_of(&plain(&grey, false), spec_rgb).unwrap();
    assert!(planes[0].abs_diff(127) <= 3 && planes[1].abs_diff(128) <= 3, "{:?}", &planes[..3]);
    let mut stray = plain(&grey, true);
    stray.splice(marker..marker, [1, 2, 3]);
    assert_eq!(pixels_of(&stray, spec_rgb).unwrap(), planes, "stray bytes precede the marker");
    assert!(unmarked.iter().all(|&v| v <= 3), "{:?}", &unmarked[..3]);
}

#[test]
fn hostile_headers_are_refused_before_allocation() {
    // A PNG of 30,000 x 30,000, and a JPEG with a header that was changed to 65,500 x 65,500.
    let mut file = png(&[0; 3], 1, 1, ExtendedColorType::Rgb8);
    file[16..20].copy_from_slice(&30_000u32.to_be_bytes());
    file[20..24].copy_from_slice(&30_000u32.to_be_bytes());
    let sum = crc(&file[12..29]).to_be_bytes();
    file[29..33].copy_from_slice(&sum);
    let too_large = |fault: Fault, side| {
        let shape = ImageSpec::new(side, side, 3);
        assert!(matches!(fault, Fault::PixelCount { got, limit: 178_956_970 } if got == shape), "{fault}");
        let shape = format!("{side}x{side}x3");
        assert_mentions(&fault.to_string(), &[&shape, "1 to 178956970", "--limit-memory"]);
    };
    too_large(spec(&Example::from_file(&file, Format::Png)).unwrap_err(), 30_000);

    let mut file = common::jpeg(&[9; 192], 8, 8, 90, Subsamp::None);
    let frame = file.windows(4).position(|w| w == [0xff, 0xc0, 0, 17]).unwrap();
    file[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    too_large(spec(&Example::from_file(&file, Format::Jpeg)).unwrap_err(), 65_500);
}

/// Returns the checksum of PNG chunks (CRC-32 of zlib), bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[test]
fn a_jpeg_that_ends_early_is_a_fault() {
    let mut draws = loaders::Draws::new(1, 0, 0, 0);
    let pixels: Vec<u8> = (0..64 * 64 * 3).map(|_| draws.next_u32() as u8).collect();
    let file = common::jpeg(&pixels, 64, 64, 90, Subsamp::Sub2x2);
    let whole = ImageSpec::new(64, 64, 3);
    pixels_of(&file, whole).unwrap();
    for length in [2, 20, 300, file.len() / 2, file.len() - 40] {
        let fault = pixels_of(&file[..length], whole).unwrap_err();
        assert!(matches!(fault, Fault::Decode { format: "JPEG", .. }), "{length} bytes: {fault}");
    }
    // Extra bytes before the end marker are ignored.
    let mut padded = file.clone();
    let end = padded.len() - 2;
    padded.splice(end..end, [0, 0, 0]);
    assert_eq!(pixels_of(&padded, whole).unwrap(), pixels_of(&file, whole).unwrap());
}
