//! Image files for tests: JPEG, PNG, CMYK and malicious files, and a tiny development kit of ImageNet.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageFormat, RgbImage};
use loaders::{Format, decode};

use super::{each_record, zlib};

/// Returns a smooth picture that is different for each `salt`.
pub fn picture(height: u32, width: u32, salt: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let wave = |a: u32, b: u32| ((x * a + y * b + salt * 37) % 256) as u8;
        image::Rgb([wave(1, 2), 255 - wave(2, 1), ((x + y + salt) / 2 % 256) as u8])
    })
}

pub fn jpeg(height: u32, width: u32, salt: u32) -> Vec<u8> {
    encoded(DynamicImage::ImageRgb8(picture(height, width, salt)), ImageFormat::Jpeg)
}

pub fn png(height: u32, width: u32, salt: u32) -> Vec<u8> {
    encoded(DynamicImage::ImageRgb8(picture(height, width, salt)), ImageFormat::Png)
}

pub fn grey_jpeg(height: u32, width: u32, salt: u32) -> Vec<u8> {
    let grey = DynamicImage::ImageRgb8(picture(height, width, salt)).into_luma8();
    encoded(DynamicImage::ImageLuma8(grey), ImageFormat::Jpeg)
}

pub fn encoded(image: DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Vec::new();
    image.write_to(&mut Cursor::new(&mut out), format).unwrap();
    out
}

/// Returns the mean absolute difference of two images.
pub fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(&a, &b)| f64::from(a.abs_diff(b))).sum::<f64>() / a.len() as f64
}

/// Returns the peak signal-to-noise ratio of two images in dB.
pub fn psnr(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let error = a.iter().zip(b).map(|(&a, &b)| f64::from(a.abs_diff(b)).powi(2)).sum::<f64>() / a.len() as f64;
    10.0 * (255.0 * 255.0 / error).log10()
}

/// Returns a CMYK JPEG as Adobe's programs write it, with inverted inks. All pixels have the same colour.
pub fn cmyk_jpeg(height: usize, width: usize, stored: [u8; 4]) -> Vec<u8> {
    let pixels = stored.repeat(height * width);
    let mut encoder = turbojpeg::Compressor::new().unwrap();
    encoder.set_quality(100).unwrap();
    encoder.set_subsamp(turbojpeg::Subsamp::None).unwrap();
    encoder.set_colorspace(turbojpeg::Colorspace::CMYK).unwrap();
    let format = turbojpeg::PixelFormat::CMYK;
    let image = turbojpeg::Image { pixels: pixels.as_slice(), width, pitch: 4 * width, height, format };
    encoder.compress_to_vec(image).unwrap()
}

/// Returns a small PNG file with a header that claims this size.
pub fn png_claiming(height: u32, width: u32) -> Vec<u8> {
    let mut file = png(2, 2, 0);
    file[16..20].copy_from_slice(&width.to_be_bytes());
    file[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc32(&file[12..29]);
    file[29..33].copy_from_slice(&crc.to_be_bytes());
    file
}

pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

pub fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Returns a `meta.mat` with these synsets: ILSVRC2012_ID, WNID, words, num_children.
pub fn meta_mat(synsets: &[(f64, &str, &str, f64)], compressed: bool) -> Vec<u8> {
    let fields = ["ILSVRC2012_ID", "WNID", "words", "num_children"];
    let mut body = element(5, &32u32.to_le_bytes());
    body.extend(element(1, &fields.iter().flat_map(|f| format!("{f:\0<32}").into_bytes()).collect::<Vec<_>>()));
    for (id, wnid, words, children) in synsets {
        for value in [number(*id), text(wnid), text(words), number(*children)] {
            body.extend(value);
        }
    }
    let array = matrix(2, [synsets.len() as u32, 1], "synsets", &body);
    // Put another array before the one that the reader looks for.
    let version = matrix(6, [1, 1], "version", &element(9, &1f64.to_le_bytes()));
    mat_file(&[version, if compressed { packed_element(&zlib(&array)) } else { array }].concat())
}

/// Returns a MATLAB 5 file with these elements.
pub fn mat_file(elements: &[u8]) -> Vec<u8> {
    [format!("{:<124}", "MATLAB 5.0 MAT-file").as_bytes(), &[0x00, 0x01, b'I', b'M'], elements].concat()
}

/// Returns an element with a zlib stream, which is not padded.
pub fn packed_element(stream: &[u8]) -> Vec<u8> {
    [&15u32.to_le_bytes(), &(stream.len() as u32).to_le_bytes(), stream].concat()
}

pub fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if data.len() <= 4 && !data.is_empty() {
        out.extend((kind | (data.len() as u32) << 16).to_le_bytes());
        out.extend(data);
        out.resize(8, 0);
        return out;
    }
    out.extend(kind.to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out.extend(data);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

pub fn matrix(class: u32, size: [u32; 2], name: &str, body: &[u8]) -> Vec<u8> {
    let mut inner = element(6, &[class.to_le_bytes(), [0; 4]].concat());
    inner.extend(element(5, &size.map(u32::to_le_bytes).concat()));
    inner.extend(element(1, name.as_bytes()));
    inner.extend(body);
    element(14, &inner)
}

fn number(value: f64) -> Vec<u8> {
    // Like MATLAB, store a double with a small integer value in one or two bytes.
    matrix(6, [1, 1], "", &element(4, &(value as u16).to_le_bytes()))
}

fn text(value: &str) -> Vec<u8> {
    let codes: Vec<u8> = value.encode_utf16().flat_map(u16::to_le_bytes).collect();
    matrix(4, [1, codes.len() as u32 / 2], "", &element(4, &codes))
}

// A small folder of image files, and the records of its conversion.

/// Writes 2 classes with 12 and 7 images. They have all extensions, some are in subfolders, and there are other files.
pub fn small(src: &Path) {
    for i in 0..12 {
        let ending = ["jpg", "jpeg", "JPG", "JPEG"][i as usize % 4];
        write(&src.join(format!("cat/{i:02}.{ending}")), &jpeg(20 + i, 32, i));
    }
    for i in 0..7 {
        let name = if i < 3 { format!("dog/deep/er/{i}.png") } else { format!("dog/{i}.PNG") };
        write(&src.join(name), &png(40, 30 + i, 50 + i));
    }
    write(&src.join("dog/Thumbs.db"), b"x");
    write(&src.join("dog/.hidden.jpg"), b"x");
    write(&src.join(".git/a.jpg"), b"x");
}

/// Returns the records of a split by name: label, format, height, width and bytes.
pub fn records(out: &Path, split: &str) -> BTreeMap<String, (u32, Format, u32, u32, Vec<u8>)> {
    let all = each_record(out, split, |_, e, label| {
        (e.filename.to_string(), (label, e.format, e.height, e.width, e.encoded.to_vec()))
    });
    all.into_iter().collect()
}

// The pictures in the files of `tests/data`, which other programs wrote. `tests/data/sources.py` makes the files.

pub const HEIGHT: usize = 24;
pub const WIDTH: usize = 20;

/// Returns the path of a file in `tests/data`.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Returns the RGB pixels of picture `salt`.
pub fn pixels(salt: usize) -> Vec<u8> {
    let pixel = |i: usize| {
        let (y, x) = (i / WIDTH, i % WIDTH);
        [x * 5 + salt * 37, y * 9 + salt * 11, x * y + salt * 3].map(|value| (value % 256) as u8)
    };
    (0..HEIGHT * WIDTH).flat_map(pixel).collect()
}

/// An image read from a data set.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    pub name: String,
    pub class: String,
    pub pixels: Vec<u8>,
}

/// Returns the images of a split, sorted by name.
pub fn images(out: &Path, split: &str) -> Vec<Image> {
    let mut pixels = Vec::new();
    let mut found = each_record(out, split, |split, example, label| {
        let spec = decode::spec(&example).unwrap();
        let pixels = match example.format {
            Format::Raw => example.encoded.to_vec(),
            _ => decode::decode(&example, spec, &mut pixels).unwrap().to_vec(),
        };
        let class = split.class_names()[label as usize].clone();
        assert_eq!(example.text, class);
        Image { name: example.filename.to_string(), class, pixels }
    });
    found.sort();
    found
}
