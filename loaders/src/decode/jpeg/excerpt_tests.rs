//! What is decoded by entry points equals what is decoded without them, to the bit.

use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use super::*;
use crate::decode::region::Region;
use crate::random::Draws;

/// Subsamplings of which parts can be decoded.
const SUBSAMPLINGS: [Subsamp; 7] =
    [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Sub1x2, Subsamp::Sub4x1, Subsamp::Sub1x4, Subsamp::Gray];

/// A photo of sorts: slopes, noise, and squares whose edges make large DC differences.
fn picture(height: usize, width: usize, noise: u32, seed: u64) -> Vec<u8> {
    let mut draws = Draws::new(seed, 7, 0, 0);
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let square = if (y / 24 + x / 40) % 2 == 0 { 0 } else { 140 };
            for channel in 0..3 {
                let value = square + (y * (channel + 1) + x) % 64 + draws.below(noise + 1) as usize;
                pixels.push(value.min(255) as u8);
            }
        }
    }
    pixels
}

fn encoded(height: usize, width: usize, noise: u32, subsampling: Subsamp, optimize: bool) -> Vec<u8> {
    let pixels = picture(height, width, noise, 1);
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(93).unwrap();
    compressor.set_subsamp(subsampling).unwrap();
    compressor.set_optimize(optimize).unwrap();
    let image = Image { pixels: pixels.as_slice(), width, pitch: 3 * width, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).unwrap()
}

fn decoded(jpeg: &mut Jpeg, file: &[u8], points: &[u8], need: Need) -> (Part, Vec<u8>) {
    let header = jpeg.header(file, points).unwrap();
    let (channels, mut pixels) = (header.spec().channels, Vec::new());
    let part = jpeg.decode(file, points, header, need, channels, &mut pixels).unwrap();
    (part, pixels)
}

/// Compares many crops at each scale; returns how many there were, and how many were decoded from an excerpt.
fn compare(file: &[u8], points: &[u8], crops: u32) -> (u32, u32) {
    let mut jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
    let (mut draws, mut excerpts) = (Draws::new(3, 5, 0, 0), 0);
    let header = jpeg.header(file, &[]).unwrap();
    for crop in 0..crops {
        let mut span = |side: u32| {
            let length = 1 + draws.below(side);
            let first = draws.below(side - length + 1);
            (first as usize, (first + length) as usize)
        };
        let ((top, bottom), (left, right)) = (span(header.height), span(header.width));
        let region = Region { top, left, bottom, right };
        for shrink in [1.0, 2.0, 4.0] {
            let need = Need { region, shrink };
            let (part, expected) = decoded(&mut jpeg, file, &[], need);
            jpeg.excerpts = Excerpts::default();
            let (same, got) = decoded(&mut jpeg, file, points, need);
            assert_eq!((same.rows, same.columns, same.origin), (part.rows, part.columns, part.origin));
            assert!(expected == got, "crop {crop}, {region:?} at 1/{}", part.reduction);
            // what was not of use has no end marker
            excerpts += u32::from(jpeg.excerpts.file().ends_with(&[0; 512]));
        }
    }
    (3 * crops, excerpts)
}

#[test]
fn every_crop_of_every_subsampling_is_equal_to_the_bit() {
    for subsampling in SUBSAMPLINGS {
        for (height, width, noise) in [(150, 203, 60), (203, 150, 100), (161, 333, 40), (16, 640, 90), (640, 70, 90)] {
            for optimize in [false, true] {
                let file = encoded(height, width, noise, subsampling, optimize);
                let case = format!("{subsampling:?} {height} x {width}, optimized {optimize}");
                let points = entry_points(&file).unwrap_or_else(|| panic!("{case}: no entry points"));
                assert!(points.len() <= file.len() / 50);
                let (all, excerpts) = compare(&file, &points, 60);
                if width > 64 && height > 64 {
                    assert!(excerpts > all / 2, "{case}: {excerpts} excerpts of {all}");
                }
            }
        }
    }
}

/// Of one row, one column, one MCU: with entry points or without, the pixels are the same.
#[test]
fn thin_images_are_equal_to_the_bit() {
    let mut with_points = 0;
    for subsampling in SUBSAMPLINGS {
        for (height, width) in [(1, 3000), (2, 2000), (17, 900), (3000, 1), (900, 17), (600, 33), (9, 9), (1, 1)] {
            let file = encoded(height, width, 120, subsampling, true);
            let points = entry_points(&file).unwrap_or_default();
            with_points += usize::from(!points.is_empty());
            compare(&file, &points, 40);
        }
    }
    assert!(with_points > 3 * SUBSAMPLINGS.len(), "{with_points}");
}

/// An optimised file has codes for the differences that occur in it alone: those that lead to a row may take several.
#[test]
fn few_codes_are_enough() {
    // one slope without edges, but from its end to its beginning it is far
    let (height, width) = (96, 512);
    let mut draws = Draws::new(1, 2, 0, 0);
    let pixels: Vec<u8> =
        (0..height * width).map(|at| ((at % width) / 3 + draws.below(60) as usize).min(255) as u8).collect();
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(95).unwrap();
    compressor.set_subsamp(Subsamp::Gray).unwrap();
    compressor.set_optimize(true).unwrap();
    let image = Image { pixels: pixels.as_slice(), width, pitch: width, height, format: PixelFormat::GRAY };
    let file = compressor.compress_to_vec(image).unwrap();
    let points = entry_points(&file).unwrap();
    let (all, excerpts) = compare(&file, &points, 100);
    assert!(excerpts > all / 2, "{excerpts} of {all}");
}

#[test]
fn files_of_other_kinds_have_none() {
    for name in ["progressive", "cmyk"] {
        let path = format!("{}/tests/golden/pictures/{name}.jpg", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(entry_points(&std::fs::read(path).unwrap()), None, "{name}");
    }
    let pixels = picture(120, 160, 80, 1);
    let image = Image { pixels: pixels.as_slice(), width: 160, pitch: 480, height: 120, format: PixelFormat::RGB };
    let mut compressor = Compressor::new().unwrap();
    compressor.set_arithmetic(true).unwrap();
    assert_eq!(entry_points(&compressor.compress_to_vec(image).unwrap()), None, "arithmetic");
    let file = encoded(120, 160, 80, Subsamp::Sub2x2, false);
    assert!(entry_points(&file).is_some());
    // cut short, damaged, without an end, nothing
    let cuts = (0..file.len()).step_by(97).chain([file.len() - 1, file.len() - 2]);
    assert!(cuts.into_iter().all(|length| entry_points(&file[..length]).is_none()));
    let scan = memchr::memmem::find(&file, &[0xff, 0xda]).unwrap();
    let marked = [&file[..scan + 400], &[0xff, 0xd0], &file[scan + 400..]].concat();
    assert_eq!(entry_points(&marked), None);
    // restart intervals
    let restarts = [&file[..scan], &[0xff, 0xdd, 0, 4, 0, 10], &file[scan..]].concat();
    assert_eq!(entry_points(&restarts), None);
}

/// Entry points of another file, and damaged ones, are not used.
#[test]
fn only_a_files_own_are_used() {
    let file = encoded(150, 203, 60, Subsamp::Sub2x2, false);
    let other = encoded(150, 203, 61, Subsamp::Sub2x2, false);
    let points = entry_points(&file).unwrap();
    assert!(entry_points::belong(&points, &file));
    assert_eq!(compare(&other, &points, 20).1, 0);
    for at in 0..points.len() {
        let mut damaged = points.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(!entry_points::belong(&damaged, &file));
    }
    assert!((0..points.len()).all(|length| !entry_points::belong(&points[..length], &file)));
}

/// Whatever a checksum covers: an image or a fault, and the decoder is good for the next one.
#[test]
fn wrong_ones_with_a_right_checksum_do_no_harm() {
    let file = encoded(150, 203, 60, Subsamp::Sub2x2, false);
    let points = entry_points(&file).unwrap();
    let need = Need { region: Region { top: 50, left: 70, bottom: 110, right: 150 }, shrink: 1.0 };
    let mut jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
    let expected = decoded(&mut jpeg, &file, &[], need).1;
    let mut draws = Draws::new(1, 1, 0, 0);
    let mut faults = 0;
    for round in 0..2000 {
        let mut wrong = points.clone();
        for _ in 0..1 + draws.below(3) {
            let at = 4 + draws.below(wrong.len() as u32 - 4) as usize;
            wrong[at] = draws.next_u32() as u8;
        }
        if round % 3 == 0 {
            wrong.truncate(4 + draws.below(wrong.len() as u32 - 4) as usize);
        }
        entry_points::seal(&mut wrong, &file);
        let header = jpeg.header(&file, &wrong).unwrap();
        let mut pixels = Vec::new();
        if let Err(fault) = jpeg.decode(&file, &wrong, header, need, 3, &mut pixels) {
            assert!(fault.to_string().contains("image/jpeg/entry_points"), "{fault}");
            faults += 1;
            jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
        }
    }
    assert!(faults > 0);
    assert!(decoded(&mut jpeg, &file, &points, need).1 == expected);
}
