//! Whole images and parts of images are turned as the EXIF orientation says, unless the list of transforms begins with
//! `ignore_exif`.

use crate::common::{self, TestData, transform_problem};
use loaders::decode::Decoder;
use loaders::example::{Example, Format};
use loaders::transform::Scratch;
use loaders::{Draws, ImageSpec, Images, Pipeline};
use turbojpeg::Subsamp;

const VARIED: Images = Images::Varied { channels: 3 };

/// Returns an image of waves: `height` x `width` x 3 bytes.
fn photo(height: usize, width: usize) -> Vec<u8> {
    let at = |y: usize, x: usize, c: usize| {
        let wave = (0.11 * y as f32 + 0.05 * x as f32 + c as f32).sin() + (0.031 * (x * (c + 1)) as f32).cos();
        (128.0 + 60.0 * wave) as u8
    };
    (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| at(y, x, c)))).collect()
}

/// Creates a JPEG with this orientation in its EXIF data.
fn jpeg(height: usize, width: usize, orientation: u8) -> Vec<u8> {
    let file = common::jpeg(&photo(height, width), height, width, 90, Subsamp::Sub2x2);
    common::with_orientation(&file, orientation)
}

/// Returns the stored position of the pixel that is shown at row `y` and column `x`, using the table of the EXIF
/// standard. `height` and `width` are the stored size.
fn stored_at(orientation: u8, (y, x): (usize, usize), (height, width): (usize, usize)) -> (usize, usize) {
    let (down, right) = (height - 1, width - 1);
    match orientation {
        2 => (y, right - x),
        3 => (down - y, right - x),
        4 => (down - y, x),
        5 => (x, y),
        6 => (down - x, y),
        7 => (down - x, right - y),
        8 => (x, right - y),
        _ => (y, x),
    }
}

/// Returns the pixels of a file without applying the orientation.
fn as_stored(file: &[u8], height: usize, width: usize) -> Vec<f32> {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let pipeline = data.pipeline(&["ignore_exif"], ImageSpec::new(height as u32, width as u32, 3));
    let mut out = vec![0.0; pipeline.output().values()];
    pipeline.run(&Example::from_file(file, Format::Jpeg), 0, 0, &mut Scratch::default(), &mut out).unwrap();
    out
}

#[test]
fn whole_images_are_rotated_by_exif_orientation() {
    let (height, width) = (37, 50);
    for orientation in 0..=9 {
        let file = jpeg(height, width, orientation);
        let stored = as_stored(&file, height, width);
        let (shape, shown) = common::decoded(&Example::from_file(&file, Format::Jpeg));
        let (rows, columns) = (shape.height as usize, shape.width as usize);
        assert_eq!((rows, columns), if (5..=8).contains(&orientation) { (width, height) } else { (height, width) });
        for i in 0..rows * columns {
            let (y, x) = stored_at(orientation, (i / columns, i % columns), (height, width));
            for channel in 0..3 {
                let expected = stored[(channel * height + y) * width + x];
                assert_eq!(f32::from(shown[3 * i + channel]), expected, "orientation {orientation}, pixel {i}");
            }
        }
        let mut decoder = Decoder::default();
        let opened = decoder.open(&Example::from_file(&file, Format::Jpeg)).unwrap();
        assert_eq!(opened.planes().is_some(), !(2..=8).contains(&orientation));
        let mut reduced = Vec::new();
        let size = decoder.reduced(opened, &file, 1, 3, &mut reduced).unwrap();
        assert_eq!((size, &reduced[..shown.len()]), ((rows, columns), &shown[..]));
    }
}

/// Tests sides divisible by 4, sides divisible only by 2, and odd sides. With `fast_decode`, images that shrink are decoded at 1/2 or 1/4
/// scale.
#[test]
fn crops_of_rotated_images_match_the_whole_image() {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let mut scratch = Scratch::default();
    for (height, width) in [(96, 128), (98, 134), (97, 131)] {
        for orientation in 1..=8 {
            let file = jpeg(height, width, orientation);
            let (shape, whole) = common::decoded(&Example::from_file(&file, Format::Jpeg));
            for (ops, tolerance) in [
                (&["random_resized_crop(70, 0.01)", "flip", "vertical_flip"][..], 0.0),
                (&["random_resized_crop(20)", "flip", "vertical_flip"], 0.0),
                (&["fast_decode", "random_resized_crop(20)", "flip", "vertical_flip"], 1.5),
            ] {
                let pipeline = data.pipeline(ops, VARIED);
                let mut outs = [vec![0.0; pipeline.output().values()], vec![0.0; pipeline.output().values()]];
                for id in 0..30 {
                    pipeline.run(&Example::from_file(&file, Format::Jpeg), id, 0, &mut scratch, &mut outs[0]).unwrap();
                    pipeline.apply(&whole, shape, id, 0, &mut scratch, &mut outs[1]).unwrap();
                    let sum: f32 = outs[0].iter().zip(&outs[1]).map(|(a, b)| (a - b).abs()).sum();
                    let mean = sum / outs[0].len() as f32;
                    assert!(
                        mean <= tolerance,
                        "{height} x {width}, orientation {orientation}, {ops:?}, sample {id}: {mean}"
                    );
                }
            }
        }
    }
}

/// Only pixels in the window are decoded from a JPEG. The window may be completely outside the image.
#[test]
fn decoded_windows_may_extend_beyond_the_image() {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let mut scratch = Scratch::default();
    let (mut empty, mut full) = (0, 0);
    for orientation in 1..=8 {
        let file = jpeg(24, 32, orientation);
        let (shape, whole) = common::decoded(&Example::from_file(&file, Format::Jpeg));
        for ops in [&["pad_crop(80)", "flip"][..], &["random_crop(8)", "vertical_flip", "pad_crop(8)"]] {
            let pipeline = data.pipeline(ops, shape);
            let mut outs = [vec![0.0; pipeline.output().values()], vec![0.0; pipeline.output().values()]];
            for id in 0..60 {
                pipeline.run(&Example::from_file(&file, Format::Jpeg), id, 0, &mut scratch, &mut outs[0]).unwrap();
                pipeline.apply(&whole, shape, id, 0, &mut scratch, &mut outs[1]).unwrap();
                assert!(outs[0] == outs[1], "orientation {orientation}, {ops:?}, sample {id}");
                *if outs[0].iter().all(|&value| value == 0.0) { &mut empty } else { &mut full } += 1;
            }
        }
    }
    assert!(empty > 100 && full > 100, "{empty} windows without a pixel, {full} with some");
}

#[test]
fn ignore_exif_decodes_as_stored_with_the_same_draws() {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let ops = ["random_resized_crop(40)", "flip", "rand_augment", "normalize"];
    let (turned, upright) = (jpeg(80, 100, 6), jpeg(80, 100, 1));
    let old: Vec<&str> = std::iter::once("ignore_exif").chain(ops).collect();
    let (old, new) = (data.pipeline(&old, VARIED), data.pipeline(&ops, VARIED));
    assert_eq!(old.ops()[0], "ignore_exif");
    assert_eq!(old.ops()[1..], new.ops());
    let run = |pipeline: &Pipeline, file: &[u8], id: u64| {
        let mut out = vec![0.0; pipeline.output().values()];
        pipeline.run(&Example::from_file(file, Format::Jpeg), id, 0, &mut Scratch::default(), &mut out).unwrap();
        out
    };
    for id in 0..20 {
        let expected = run(&new, &upright, id);
        assert!(run(&old, &turned, id) == expected && run(&old, &upright, id) == expected, "sample {id}");
        assert!(run(&new, &turned, id) != expected, "sample {id}");
    }
    let list = ["flip".to_owned(), "ignore_exif".to_owned()];
    let error = Pipeline::new(&list, ImageSpec::new(4, 4, 3), &data.manifest, 1).unwrap_err();
    let (index, text, problem) = transform_problem(&error);
    assert_eq!((index, text), (1, "ignore_exif"));
    assert!(problem.contains("before the transforms"), "{problem}");
}

/// Images with damaged EXIF data are accepted and shown as stored.
#[test]
fn damaged_exif_data_is_ignored() {
    let whole = jpeg(30, 20, 6);
    let tag = whole.windows(6).position(|bytes| bytes == b"Exif\0\0").unwrap();
    let mut draws = Draws::new(4, 0, 0, 0);
    for _ in 0..2000 {
        let mut file = whole.clone();
        let at = tag + 6 + draws.below(26) as usize;
        file[at] = draws.next_u32() as u8;
        let (shape, _) = common::decoded(&Example::from_file(&file, Format::Jpeg));
        assert!([(30, 20), (20, 30)].contains(&(shape.height, shape.width)));
    }
}
