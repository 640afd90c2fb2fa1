//! Policies and operations on bytes in lists: rejected arguments, how lists are written, and that draws depend only on
//! seed, epoch and sample.

use std::collections::BTreeMap;

use crate::common::{SPEC, TestData, assert_mentions, pixels, transform_problem};
use loaders::example::Example;
use loaders::transform::Scratch;
use loaders::{ImageSpec, Images, Options, Pipeline, TrainOrder};

/// Lists for testing draws. The images are 8 x 8.
const LISTS: &[&[&str]] = &[
    &["rand_augment(3, 20)", "normalize"],
    &["flip(0.3)", "vertical_flip", "trivial_augment", "invert(0.2)", "normalize"],
    &["auto_augment(cifar10)", "rotation(20)", "perspective(0.5)", "normalize"],
    &["affine(10, 0.1, 0.1, 0.8, 1.2, 5)", "gaussian_blur(3)", "posterize(4)", "solarize(100)", "normalize"],
    &["equalize", "autocontrast", "sharpness(2)", "grayscale(0.3)", "random_crop(6x7)"],
];

#[test]
fn transform_lists_are_parsed_from_their_own_text() {
    let data = TestData::noise(1, 1, SPEC);
    for ops in LISTS.iter().copied().chain([
        &["scale_jitter(8, 16, bicubic)", "random_crop(8)", "rand_augment"][..],
        &["resize(6x7, lanczos)", "auto_augment(svhn, bilinear)", "flip"],
        &["random_resized_crop(4x6, 0.5, bicubic)", "auto_augment(bilinear)", "auto_augment"],
        &["inception_crop(5, lanczos)", "trivial_augment(11, bilinear)", "perspective(0.2, 1, nearest)"],
    ]) {
        let pipeline = data.pipeline(ops, images_for(ops));
        let written = pipeline.ops();
        let again: Vec<&str> = written.iter().map(String::as_str).collect();
        assert_eq!(data.pipeline(&again, pipeline.input()).ops(), written);
        assert!(
            ops.iter().zip(&written).all(|(op, text)| text.starts_with(op.split('(').next().unwrap())),
            "{written:?}"
        );
    }
}

/// Lists that begin by resizing accept images of any size. Other lists accept the size of the data.
fn images_for(ops: &[&str]) -> Images {
    let resizes = ["scale_jitter", "resize", "random_resized_crop", "inception_crop"];
    match resizes.iter().any(|name| ops[0].starts_with(name)) {
        true => Images::Varied { channels: 3 },
        false => Images::Fixed(SPEC),
    }
}

#[test]
fn arguments_out_of_range_are_refused_with_the_range_and_the_argument() {
    let data = TestData::noise(1, 1, SPEC);
    for (op, parts) in [
        ("rand_augment(2)", &["0, 2 or 3", "1", "rand_augment(operations, magnitude)"][..]),
        ("rand_augment(2, 31)", &["magnitude", "0 to 30", "31"]),
        ("rand_augment(2, -1)", &["magnitude", "0 to 30", "-1"]),
        ("rand_augment(2, 9.5)", &["magnitude", "0 to 30", "9.5"]),
        ("rand_augment(-1, 9)", &["operations", "0 to 100", "-1"]),
        ("rand_augment(2, 0, 1)", &["magnitudes", "2 to 1001", "1"]),
        ("rand_augment(2, 9, bicubic)", &["nearest", "bilinear", "bicubic"]),
        ("rand_augment(8x8)", &["number", "8x8"]),
        ("trivial_augment(1)", &["magnitudes", "2 to 1001", "1"]),
        ("trivial_augment(31, 2)", &["0 or 1", "2"]),
        ("auto_augment(9)", &["only names", "9"]),
        ("auto_augment(cifar)", &["cifar10", "svhn", "nearest", "bilinear", "\"cifar\"", "auto_augment(imagenet)"]),
        ("auto_augment(svhn, cifar10)", &["nearest", "\"cifar10\""]),
        ("vertical_flip(1.5)", &["0 to 1", "1.5"]),
        ("flip(-0.1)", &["0 to 1", "-0.1"]),
        ("flip(0.5, 1)", &["0 or 1", "2", "flip(probability)"]),
        ("rotation(-5)", &["angle", "0", "-5"]),
        ("rotation(400)", &["-360", "360", "-400", "400"]),
        ("rotation(20, 10)", &["-360", "360", "20", "10"]),
        ("affine(200)", &["0 to 180", "200"]),
        ("affine(10, 0.1)", &["1, 3, 5, 6 or 7", "2"]),
        ("affine(10, 1.5, 0)", &["x and y", "0 to 1", "1.5"]),
        ("affine(10, 0, 0, 0, 1)", &["scale factors", "0 < low <= high", "0 and 1"]),
        ("affine(10, 0, 0, 1, 1, 90)", &["shears", "0", "90"]),
        ("perspective(1.1)", &["0 to 1", "1.1"]),
        ("perspective", &["1 or 2", "0"]),
        ("gaussian_blur(4)", &["odd", "4"]),
        ("gaussian_blur(17)", &["17x17", "8x8x3"]),
        ("gaussian_blur(3, 0, 1)", &["0 < low <= high", "0 and 1"]),
        ("posterize(9)", &["bits from 0 to 8", "9"]),
        ("posterize", &["1 or 2", "0"]),
        ("solarize(256)", &["0 to 255", "256"]),
        ("solarize(1, 0.5, 2)", &["1 or 2", "3"]),
        ("corner_crop(4)", &["corner from 0 to 3", "1"]),
        ("shift(1)", &["rows and columns", "1"]),
        ("pad_crop(8, reflect)", &["8x8x3", "8"]),
        ("equalize(2)", &["0 to 1", "2"]),
        ("sharpness(-1)", &["factor", "0", "-1"]),
        ("scale_jitter(8)", &["2 numbers", "1"]),
        ("scale_jitter(16, 8)", &["min_side <= max_side", "16", "8"]),
        ("resize(4x0)", &["1 to 65535", "0"]),
        ("center_crop(9x8)", &["9x8", "8x8x3"]),
        ("random_crop(4, bicubic)", &["1 argument", "2"]),
        ("random_resized_crop(4, nearest)", &["bilinear", "bicubic", "lanczos", "nearest"]),
    ] {
        let error = Pipeline::new(&[op.to_owned()], SPEC, &data.manifest, 1).unwrap_err();
        let (index, text, problem) = transform_problem(&error);
        assert_eq!((index, text), (0, op));
        assert_mentions(problem, parts);
    }
    for (ops, parts) in [
        (["normalize", "rand_augment"], &["0 to 255", "normalize", "standardize"][..]),
        (["standardize", "invert"], &["0 to 255", "normalize", "standardize"]),
        (["flip", "scale_jitter(8, 9)"], &["resizes", "first"]),
        (["scale_jitter(4, 9)", "random_crop(5)"], &["5x5", "short side", "4"]),
    ] {
        let error = Pipeline::new(&ops.map(str::to_owned), SPEC, &data.manifest, 1).unwrap_err();
        let (index, text, problem) = transform_problem(&error);
        assert_eq!((index, text), (1, ops[1]));
        assert_mentions(problem, parts);
    }
    let two = ImageSpec::new(8, 8, 2);
    for op in ["rand_augment", "trivial_augment", "auto_augment", "equalize", "grayscale"] {
        let error = Pipeline::new(&[op.to_owned()], two, &data.manifest, 1).unwrap_err();
        assert_mentions(transform_problem(&error).2, &["1 or 3 channels", "2"]);
    }
}

/// Returns the image of each sample in each epoch, made by loaders of `ranks` ranks with `threads` threads, from
/// `start` (epoch, step).
fn images(
    data: &TestData,
    ops: &[&str],
    ranks: usize,
    threads: usize,
    start: (u32, u64),
) -> BTreeMap<(u32, u64), Vec<f32>> {
    let mut found = BTreeMap::new();
    for rank in 0..ranks {
        let workers = 4 * rank / ranks..4 * (rank + 1) / ranks;
        let order = TrainOrder::new(1, data.split().unwrap().len(), 8, 4, workers, start, 3);
        let options = Options { threads, ..Options::default() };
        let mut loader = data.loader(ops, SPEC, order, options);
        while let Some(batch) = loader.next().unwrap() {
            let values = batch.images().len() / batch.len().max(1);
            for (id, image) in batch.ids().iter().zip(batch.images().chunks_exact(values.max(1))) {
                assert!(found.insert((batch.epoch(), *id), image.to_vec()).is_none());
            }
        }
    }
    found
}

#[test]
fn images_do_not_depend_on_ranks_threads_or_where_a_run_resumes() {
    let data = TestData::noise(29, 2, SPEC);
    for ops in LISTS {
        let whole = images(&data, ops, 1, 1, (0, 0));
        assert_eq!(whole.len(), 3 * 29);
        for (ranks, threads) in [(1, 3), (2, 1), (3, 2), (4, 1)] {
            assert!(images(&data, ops, ranks, threads, (0, 0)) == whole, "{ops:?}: {ranks} ranks, {threads} threads");
        }
        let rest = images(&data, ops, 2, 2, (1, 2));
        assert_eq!(rest.len(), 29 + 29 - 16);
        assert!(rest.iter().all(|(sample, image)| whole[sample] == *image), "{ops:?}: resumed");
        let changed = (0..29).filter(|id| whole[&(0, *id)] != whole[&(1, *id)]).count();
        assert!(changed > 20, "{ops:?}: {changed} of 29 images differ between epochs");
    }
}

/// Computes floats from bytes and tables as a GPU does, and compares them with the loader's floats.
#[test]
fn bytes_with_tables_equal_floats_bit_for_bit() {
    let data = TestData::noise(1, 1, SPEC);
    for ops in LISTS {
        let pipeline = data.pipeline(ops, SPEC);
        let (tables, out) = (pipeline.tables().unwrap(), pipeline.output());
        assert!(!pipeline.only_crops());
        let (mut scratch, mut floats, mut bytes) = (Scratch::default(), vec![0.0; out.values()], vec![0; out.values()]);
        for id in 0..50 {
            let encoded = pixels(id, SPEC);
            let example = Example::from_raw(&encoded, SPEC);
            pipeline.run(&example, id, 2, &mut scratch, &mut floats).unwrap();
            pipeline.run_bytes(&example, id, 2, &mut scratch, &mut bytes).unwrap();
            for (i, value) in floats.iter().enumerate() {
                let (channel, pixel) = (i / out.pixels(), i % out.pixels());
                assert_eq!(
                    tables[channel][usize::from(bytes[pixel * 3 + channel])],
                    *value,
                    "{ops:?}, sample {id}, value {i}"
                );
            }
        }
    }
}

/// Returns the images of each sample in each epoch if each sample is repeated three times.
fn repeated(data: &TestData, ranks: usize, start: (u32, u64)) -> BTreeMap<(u32, u64), Vec<Vec<u32>>> {
    let mut found: BTreeMap<_, Vec<Vec<u32>>> = BTreeMap::new();
    for rank in 0..ranks {
        let order = TrainOrder::new(1, 29, 8, 4, 4 * rank / ranks..4 * (rank + 1) / ranks, start, 2).repeated(3);
        let mut loader = data.loader(&["pad_crop(3)", "rand_augment(2, 20)"], SPEC, order, Options::default());
        while let Some(batch) = loader.next().unwrap() {
            for (id, image) in batch.ids().iter().zip(batch.images().chunks_exact(SPEC.values())) {
                found.entry((batch.epoch(), *id)).or_default().push(image.iter().map(|x| x.to_bits()).collect());
            }
        }
    }
    found.values_mut().for_each(|images| images.sort());
    found
}

#[test]
fn repeated_samples_get_new_transforms_each_time() {
    let data = TestData::noise(29, 2, SPEC);
    let whole = repeated(&data, 1, (0, 0));
    for epoch in 0..2 {
        let counts: Vec<usize> =
            whole.iter().filter(|((e, _), _)| *e == epoch).map(|(_, images)| images.len()).collect();
        assert_eq!((counts.len(), counts.iter().sum::<usize>()), (10, 29));
    }
    let equal = whole.values().filter(|images| images.windows(2).any(|pair| pair[0] == pair[1])).count();
    assert!(equal <= 2, "{equal} of {} samples have two equal images", whole.len());
    for ranks in 2..=4 {
        assert!(repeated(&data, ranks, (0, 0)) == whole, "{ranks} ranks");
    }
    let rest = repeated(&data, 2, (1, 0));
    assert!(rest.iter().all(|(sample, images)| whole[sample] == *images) && rest.len() == 10);
}
