//! Images of various sizes and formats: decoding a part of an image returns the same pixels as decoding the whole
//! image.

use crate::common::{self, TestData, assert_mentions, raw, record_fault, transform_problem};
use loaders::example::{self, Example, Format};
use loaders::transform::Scratch;
use loaders::{Draws, Error, Fault, ImageSpec, Images, Loader, Options, Pipeline, TrainOrder};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

/// Returns an image of smooth shapes with some noise: `height` x `width` x 3 bytes.
fn photo(height: usize, width: usize, seed: u64) -> Vec<u8> {
    let mut draws = Draws::new(seed, 0, 0, 0);
    let mut waves = || [draws.range(0.01, 0.4), draws.range(0.01, 0.4), draws.range(0.0, 6.0)];
    let waves = [waves(), waves(), waves()];
    let mut bytes = Vec::with_capacity(height * width * 3);
    for y in 0..height {
        for x in 0..width {
            for [a, b, c] in waves {
                let value = 128.0 + 100.0 * (a * x as f32 + b * y as f32 + c).sin();
                bytes.push((value + draws.range(-20.0, 20.0)) as u8);
            }
        }
    }
    bytes
}

fn jpeg(pixels: &[u8], height: usize, width: usize, change: impl FnOnce(&mut Compressor)) -> Vec<u8> {
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(85).unwrap();
    change(&mut compressor);
    let image = Image { pixels, width, pitch: width * 3, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).unwrap()
}

fn example(encoded: &[u8]) -> Example<'_> {
    Example { label: 3, ..Example::from_file(encoded, Format::Jpeg) }
}

fn pipeline(ops: &[&str], images: impl Into<Images>) -> Pipeline {
    TestData::noise(1, 1, ImageSpec::new(1, 1, 3)).pipeline(ops, images)
}

const VARIED: Images = Images::Varied { channels: 3 };

/// The decoded part has the same bytes as the whole image, for each chroma subsampling. No transform here shrinks an
/// image to half its size, because the image could then be decoded at 1/2 scale.
#[test]
fn a_decoded_jpeg_region_equals_the_crop_of_the_whole_image() {
    let samplings = [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Sub1x2, Subsamp::Sub4x1, Subsamp::Gray];
    let mut scratch = Scratch::default();
    for (number, sampling) in samplings.into_iter().enumerate() {
        for (size, progressive) in [((97, 131), false), ((64, 80), false), ((50, 49), true)] {
            let (height, width) = size;
            let file = jpeg(&photo(height, width, number as u64), height, width, |compressor| {
                compressor.set_subsamp(sampling).unwrap();
                compressor.set_progressive(progressive).unwrap();
            });
            let (shape, whole) = common::decoded(&example(&file));
            for ops in [&["random_resized_crop(66, 0.01)", "flip", "normalize"][..], &["resize(49)", "random_crop(30)"]]
            {
                let pipeline = pipeline(ops, VARIED);
                let mut outs = [vec![0.0; pipeline.output().values()], vec![0.0; pipeline.output().values()]];
                for id in 0..100 {
                    pipeline.run(&example(&file), id, 0, &mut scratch, &mut outs[0]).unwrap();
                    pipeline.apply(&whole, shape, id, 0, &mut scratch, &mut outs[1]).unwrap();
                    assert!(outs[0] == outs[1], "{sampling:?}, {shape}, {ops:?}, sample {id}");
                }
            }
        }
    }
}

#[test]
fn a_loader_accepts_images_of_various_sizes_and_formats() {
    let payloads: Vec<_> = (0..40u64)
        .map(|id| {
            let (height, width) = (30 + id as usize, 70 - id as usize);
            let pixels = photo(height, width, id);
            if id % 3 == 0 {
                return raw(id, &pixels, ImageSpec::new(height as u32, width as u32, 3));
            }
            let mut payload = Vec::new();
            example::encode(&example(&jpeg(&pixels, height, width, |_| {})), &mut payload);
            payload
        })
        .collect();
    let data = TestData::of(&payloads, 2, 3);
    let split = data.shared();
    assert_eq!(split.images().unwrap(), VARIED);
    let pipeline = data.pipeline(&["resize(24)", "center_crop(16)", "normalize"], VARIED);
    assert_eq!((pipeline.input(), pipeline.output()), (VARIED, ImageSpec::new(16, 16, 3)));
    let order = TrainOrder::new(1, 40, 8, 1, 0..1, (0, 0), 1);
    let mut loader = Loader::start(split, pipeline, Box::new(order), Options::default()).unwrap();
    let mut seen = 0;
    while let Some(batch) = loader.next().unwrap() {
        assert!(batch.images().iter().all(|v| v.is_finite() && v.abs() <= 2.01));
        seen += batch.len();
    }
    assert_eq!(seen, 40);
}

#[test]
fn lists_that_leave_various_sizes_are_refused_with_the_transforms_that_help() {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let error_of = |ops: &[&str]| {
        let ops: Vec<_> = ops.iter().map(|op| op.to_string()).collect();
        Pipeline::new(&ops, VARIED, &data.manifest, 1).unwrap_err()
    };
    let helpful = ["random_resized_crop(size)", "resize(size)", "center_crop(size)"];
    // Each transform is valid, but the list as a whole leaves various sizes.
    for ops in [&[] as &[&str], &["resize(8)"]] {
        let error = error_of(ops);
        assert!(matches!(error, Error::VariousSizes { images: VARIED }) && error.is_about_sizes(), "{error}");
        assert_mentions(&error.to_string(), &helpful);
    }
    // The first transform needs images with the same size.
    for ops in [&["flip", "normalize"][..], &["normalize"], &["center_crop(4)"]] {
        let error = error_of(ops);
        let (index, text, problem) = transform_problem(&error);
        assert_eq!((index, text), (0, ops[0]));
        assert!(error.is_about_sizes(), "{error}");
        assert_mentions(problem, &helpful);
    }
    for (ops, wrong, parts) in [
        (&["random_resized_crop(0)", "normalize"][..], 0, &["1 to 65535", "0"][..]),
        (&["random_resized_crop(32"], 0, &["`)`"]),
        (&["resize(8)", "center_crop(9)"], 1, &["9x9", "short side", "8"]),
        (&["resize(8)", "random_resized_crop(4)"], 1, &["resizes", "first"]),
        (&["random_resized_crop(8, 0)"], 0, &["0 < min_area <= max_area <= 1", "0 and 1"]),
        (&["random_resized_crop(8, 0.5, 0.4)"], 0, &["0 < min_area <= max_area <= 1", "0.5 and 0.4"]),
        (&["random_resized_crop(8, 0.5, 1, 2, 1)"], 0, &["0 < min_aspect <= max_aspect", "2 and 1"]),
        (&["random_resized_crop(8, 0.5, 1, 2)"], 0, &["1, 2, 3 or 5", "4"]),
    ] {
        let error = error_of(ops);
        let (index, text, problem) = transform_problem(&error);
        assert_eq!((index, text), (wrong, ops[wrong]));
        assert!(!error.is_about_sizes(), "{error}");
        assert_mentions(problem, parts);
    }
}

/// The error names the image with a different size but does not suggest transforms. The caller knows the list of
/// transforms and adds the advice.
#[test]
fn the_first_image_of_another_size_is_named_without_advice() {
    let payload = |id: u64, height: u32| {
        let spec = ImageSpec::new(height, 4, 3);
        raw(id, &vec![7; spec.values()], spec)
    };
    let data = TestData::of(&[payload(0, 5), payload(1, 5), payload(2, 6)], 1, 3);
    let error = data.shared().one_size().unwrap_err();
    let (_, record, fault) = record_fault(&error);
    let (usual, odd) = (ImageSpec::new(5, 4, 3), ImageSpec::new(6, 4, 3));
    assert!(
        matches!((record, fault), (2, Fault::DifferentSize { first, got }) if (*first, *got) == (usual, odd)),
        "{error}"
    );
    assert!(!error.to_string().contains("random_resized_crop"), "{error}");
}

/// The data set has so many images that the header of the one with a different size is not read. `dataset.json` says
/// that sizes differ.
#[test]
fn manifest_sizes_reveal_an_unread_image_of_another_size() {
    let (usual, odd) = (ImageSpec::new(4, 4, 3), ImageSpec::new(4, 5, 3));
    let spec = |id| if id == 151 { odd } else { usual };
    let payloads: Vec<_> = (0..200).map(|id| raw(id, &common::pixels(id, spec(id)), spec(id))).collect();
    let mut data = TestData::of(&payloads, 2, 3);
    assert_eq!(data.split().unwrap().images().unwrap(), Images::Fixed(usual));
    let mut with = |size, sizes| {
        let split = data.manifest.splits.get_mut("train").unwrap();
        (split.size, split.sizes) = (size, sizes);
        data.manifest.write(&data.dir).unwrap();
        data.split().unwrap().images().unwrap()
    };
    assert_eq!(with(None, Some([[4, 4], [4, 5]])), VARIED);
    // A single recorded size is the size of the files before EXIF rotation, so it proves nothing.
    assert_eq!(with(Some([4, 4]), None), Images::Fixed(usual));
    assert_eq!(with(None, Some([[4, 4], [4, 4]])), Images::Fixed(usual));
}

/// Like torchvision, decode a photo at full size before resizing it, unless `fast_decode` is set.
#[test]
fn photos_are_decoded_in_full_before_they_are_resized() {
    let (height, width) = (400, 500);
    let file = jpeg(&photo(height, width, 1), height, width, |_| {});
    let (shape, whole) = common::decoded(&example(&file));
    let mut scratch = Scratch::default();
    let mut are_equal = |head: &[&str], side: usize| {
        let ops = [format!("resize({side})"), format!("center_crop({side})")];
        let list: Vec<&str> = head.iter().copied().chain(ops.iter().map(String::as_str)).collect();
        let pipeline = pipeline(&list, VARIED);
        let mut outs = [vec![0.0; pipeline.output().values()], vec![0.0; pipeline.output().values()]];
        pipeline.run(&example(&file), 0, 0, &mut scratch, &mut outs[0]).unwrap();
        pipeline.apply(&whole, shape, 0, 0, &mut scratch, &mut outs[1]).unwrap();
        outs[0] == outs[1]
    };
    for side in [201, 200, 100, 11] {
        assert!(are_equal(&[], side) && are_equal(&["ignore_exif"], side), "{side}");
        assert_eq!(are_equal(&["fast_decode"], side), side > 200, "{side}");
        assert_eq!(are_equal(&["ignore_exif", "fast_decode"], side), side > 200, "{side}");
    }
}
