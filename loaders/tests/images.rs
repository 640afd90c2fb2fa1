//! PNG and JPEG payloads decode to the pixels that went in.

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use loaders::decode::{decode, spec};
use loaders::error::Fault;
use loaders::{Example, Format, ImageSpec};

fn png(pixels: &[u8], width: u32, height: u32, color: ExtendedColorType) -> Vec<u8> {
    let mut out = Vec::new();
    PngEncoder::new(&mut out).write_image(pixels, width, height, color).unwrap();
    out
}

fn example(encoded: &[u8], format: Format) -> Example<'_> {
    Example { encoded, format, height: 0, width: 0, channels: 0, label: 0, text: "", filename: "" }
}

fn pixels_of(encoded: &[u8], expected: ImageSpec) -> Result<Vec<u8>, Fault> {
    let mut scratch = Vec::new();
    // The stated format is only a hint between PNG and JPEG; here it is sometimes wrong.
    decode(&example(encoded, Format::Jpeg), expected, &mut scratch).map(<[u8]>::to_vec)
}

#[test]
fn png_of_every_colour_type() {
    let rgb: Vec<u8> = (0..18).map(|i| i * 14).collect();
    let spec_rgb = ImageSpec::new(3, 2, 3);
    let file = png(&rgb, 2, 3, ExtendedColorType::Rgb8);
    assert_eq!(spec(&example(&file, Format::Png)).unwrap(), spec_rgb);
    assert_eq!(pixels_of(&file, spec_rgb).unwrap(), rgb);

    let rgba: Vec<u8> = rgb.chunks(3).flat_map(|p| [p[0], p[1], p[2], 77]).collect();
    let file = png(&rgba, 2, 3, ExtendedColorType::Rgba8);
    assert_eq!(pixels_of(&file, spec_rgb).unwrap(), rgb);

    let grey = [0, 50, 100, 150, 200, 250];
    let spec_grey = ImageSpec::new(3, 2, 1);
    let file = png(&grey, 2, 3, ExtendedColorType::L8);
    assert_eq!(spec(&example(&file, Format::Png)).unwrap(), spec_grey);
    assert_eq!(pixels_of(&file, spec_grey).unwrap(), grey);
    let tripled: Vec<u8> = grey.iter().flat_map(|&g| [g; 3]).collect();
    assert_eq!(pixels_of(&file, spec_rgb).unwrap(), tripled);
}

#[test]
fn colour_is_not_made_grey_in_silence() {
    let file = png(&[1; 18], 2, 3, ExtendedColorType::Rgb8);
    let fault = pixels_of(&file, ImageSpec::new(3, 2, 1)).unwrap_err();
    assert_eq!(fault.to_string().split(';').next(), Some("image of 3x2x3 (height x width x channels), expected 3x2x1"));
}

#[test]
fn jpeg_is_close_to_what_went_in() {
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
    assert_eq!(spec(&example(&file, Format::Jpeg)).unwrap(), spec_rgb);
    let decoded = pixels_of(&file, spec_rgb).unwrap();
    let worst = decoded.iter().zip(&pixels).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst.unwrap() < 16, "{worst:?}");
    let swapped = pixels_of(&file, ImageSpec::new(width, height, 3)).unwrap_err();
    assert!(swapped.to_string().contains("image of 8x16x3"), "{swapped}");
}
