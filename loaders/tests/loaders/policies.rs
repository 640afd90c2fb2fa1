//! Policies and operations on bytes in lists: rejected arguments, how lists are written, and that draws depend only on
//! seed, epoch and sample.

use std::collections::BTreeMap;

use crate::common::{SPEC, TestData, assert_contains, pixels};
use loaders::example::{Example, Format};
use loaders::transform::Scratch;
use loaders::{ImageSpec, Images, Loader, Options, Pipeline, TrainOrder};

/// Lists for testing draws. The images are 8 x 8.
const LISTS: &[&[&str]] = &[
    &["rand_augment(3, 20)", "normalize"],
    &["flip(0.3)", "vertical_flip", "trivial_augment", "invert(0.2)", "normalize"],
    &["auto_augment(cifar10)", "rotation(20)", "perspective(0.5)", "normalize"],
    &["affine(10, 0.1, 0.1, 0.8, 1.2, 5)", "gaussian_blur(3)", "posterize(4)", "solarize(100)", "normalize"],
    &["equalize", "autocontrast", "sharpness(2)", "grayscale(0.3)", "random_crop(6x7)"],
];

#[test]
fn lists_are_written_as_they_can_be_read_again() {
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
fn arguments_out_of_range_are_refused_in_the_words_of_a_recipe() {
    let data = TestData::noise(1, 1, SPEC);
    for (op, part) in [
        ("rand_augment(2)", "expected 0, 2 or 3 numbers, got 1; write rand_augment"),
        ("rand_augment(2, 31)", "magnitude: expected a whole number from 0 to 30, got 31"),
        ("rand_augment(2, -1)", "magnitude: expected a whole number from 0 to 30, got -1"),
        ("rand_augment(2, 9.5)", "magnitude: expected a whole number from 0 to 30, got 9.5"),
        ("rand_augment(-1, 9)", "operations: expected a whole number from 0 to 100, got -1"),
        ("rand_augment(2, 0, 1)", "magnitudes: expected a whole number from 2 to 1001, got 1"),
        ("rand_augment(2, 9, bicubic)", "expected nearest or bilinear, got \"bicubic\""),
        ("rand_augment(8x8)", "expected a number, got \"8x8\""),
        ("trivial_augment(1)", "magnitudes: expected a whole number from 2 to 1001, got 1"),
        ("trivial_augment(31, 2)", "expected 0 or 1 numbers, got 2"),
        ("auto_augment(9)", "expected only names"),
        (
            "auto_augment(cifar)",
            "expected nearest or bilinear, got \"cifar\"; write auto_augment, auto_augment(imagenet)",
        ),
        ("auto_augment(svhn, cifar10)", "got \"cifar10\""),
        ("vertical_flip(1.5)", "expected a probability from 0 to 1, got 1.5"),
        ("flip(-0.1)", "expected a probability from 0 to 1, got -0.1"),
        ("flip(0.5, 1)", "expected 0 or 1 arguments, got 2; write flip or flip(probability)"),
        ("rotation(-5)", "expected an angle of at least 0, got -5"),
        ("rotation(400)", "expected angles -360 <= low <= high <= 360, got -400 and 400"),
        ("rotation(20, 10)", "got 20 and 10"),
        ("affine(200)", "expected an angle from 0 to 180, got 200"),
        ("affine(10, 0.1)", "expected 1, 3, 5, 6 or 7 numbers, got 2"),
        ("affine(10, 1.5, 0)", "expected shares from 0 to 1, got 1.5"),
        ("affine(10, 0, 0, 0, 1)", "expected scales 0 < low <= high, got 0 and 1"),
        ("affine(10, 0, 0, 1, 1, 90)", "expected shears from 0 to less than 90 degrees, got 90"),
        ("perspective(1.1)", "expected a distortion from 0 to 1, got 1.1"),
        ("perspective", "expected 1 or 2 numbers, got 0"),
        ("gaussian_blur(4)", "expected an odd side, got 4"),
        ("gaussian_blur(17)", "a square of 17x17 cannot be mirrored within an image of 8x8x3"),
        ("gaussian_blur(3, 0, 1)", "expected deviations 0 < low <= high, got 0 and 1"),
        ("posterize(9)", "expected a whole number from 0 to 8, got 9 bits"),
        ("posterize", "expected 1 or 2 arguments, got 0"),
        ("solarize(256)", "expected a threshold from 0 to 255, got 256"),
        ("equalize(2)", "expected a probability from 0 to 1, got 2"),
        ("sharpness(-1)", "expected a factor of at least 0, got -1"),
        ("scale_jitter(8)", "expected 2 numbers, got 1"),
        ("scale_jitter(16, 8)", "expected min_side <= max_side, got 16 and 8"),
        ("resize(4x0)", "expected a whole number of pixels from 1 to 65535, got 0"),
        ("center_crop(9x8)", "a crop of 9x8 does not fit into an image of 8x8x3"),
        ("random_crop(4, bicubic)", "expected 1 argument, got 2"),
        ("random_resized_crop(4, nearest)", "expected bilinear or bicubic or lanczos, got \"nearest\""),
    ] {
        let error = Pipeline::new(&[op.to_owned()], SPEC, &data.manifest, 1).unwrap_err().to_string();
        assert_contains(&error, &[&format!("transform 0 `{op}`: "), part]);
    }
    for (ops, part) in [
        (["normalize", "rand_augment"], "it works on bytes, so it must come before normalize and standardize"),
        (["standardize", "invert"], "it works on bytes"),
        (["flip", "scale_jitter(8, 9)"], "it resizes, so it must be the first"),
        (["scale_jitter(4, 9)", "random_crop(5)"], "does not fit into images whose short side is 4"),
    ] {
        let error = Pipeline::new(&ops.map(str::to_owned), SPEC, &data.manifest, 1).unwrap_err().to_string();
        assert_contains(&error, &[&format!("transform 1 `{}`: ", ops[1]), part]);
    }
    let two = ImageSpec::new(8, 8, 2);
    for op in ["rand_augment", "trivial_augment", "auto_augment", "equalize", "grayscale"] {
        let error = Pipeline::new(&[op.to_owned()], two, &data.manifest, 1).unwrap_err().to_string();
        assert_contains(&error, &["needs images of uint8 with 1 or 3 channels, but these are uint8 with 2"]);
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
        let mut loader = Loader::start(data.shared(), data.pipeline(ops, SPEC), Box::new(order), options).unwrap();
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
fn bytes_and_tables_give_the_floats_to_the_bit() {
    let data = TestData::noise(1, 1, SPEC);
    for ops in LISTS {
        let pipeline = data.pipeline(ops, SPEC);
        let (tables, out) = (pipeline.tables().unwrap(), pipeline.output());
        assert!(!pipeline.only_crops());
        let (mut scratch, mut floats, mut bytes) = (Scratch::default(), vec![0.0; out.values()], vec![0; out.values()]);
        for id in 0..50 {
            let encoded = &pixels(id, SPEC);
            let ImageSpec { height, width, channels } = SPEC;
            let (format, text, filename) = (Format::Raw, "", "");
            let example = Example {
                encoded,
                format,
                height,
                width,
                channels,
                dtype: Default::default(),
                label: 0,
                text,
                filename,
                boxes: Default::default(),
                entry_points: &[],
                labels: Default::default(),
            };
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
        let pipeline = data.pipeline(&["pad_crop(3)", "rand_augment(2, 20)"], SPEC);
        let mut loader = Loader::start(data.shared(), pipeline, Box::new(order), Options::default()).unwrap();
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
fn repeated_samples_are_transformed_anew_each_time() {
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
