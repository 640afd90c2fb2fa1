//! Tests that a loader in its steady state does not allocate memory, regardless of the number of samples.

#[path = "loaders/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{SPEC, TestData, jpeg, label, pixels, raw};
use loaders::decode;
use loaders::example::{self, Example, Format};
use loaders::{ImageSpec, Images, Loader, Options, Pipeline, TrainOrder};
use turbojpeg::Subsamp;

/// Counts the allocations of all threads.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system allocator without changes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of a loader in its steady state: the minimum over three periods of 30 epochs of 500 samples.
/// The minimum is needed because a thread that did not run in the first epochs allocates its memory later, in one of
/// the periods.
fn steady(data: &TestData, pipeline: Pipeline) -> u64 {
    const SLOTS: usize = 4;
    let options = Options { threads: 2, slots: SLOTS, nice: 0, ..Options::default() };
    let order = TrainOrder::new(1, 500, 32, 2, 0..2, (0, 0), 30);
    let mut loader = Loader::start(data.shared(), pipeline, Box::new(order), options).unwrap();
    // In the first two epochs, each thread fills a batch of the largest size. Holding all slots at the same time makes
    // sure that each slot is used.
    drop((0..SLOTS).map(|_| loader.next().unwrap().unwrap()).collect::<Vec<_>>());
    while loader.next().unwrap().unwrap().epoch() < 2 {}
    let mut until = |epoch: u32| {
        let before = CALLS.load(Ordering::Relaxed);
        let mut samples = 0;
        loop {
            let batch = loader.next().unwrap().unwrap();
            samples += batch.len();
            if batch.epoch() == epoch {
                break;
            }
        }
        assert!(samples > 3_500, "{samples}");
        CALLS.load(Ordering::Relaxed) - before
    };
    [until(10), until(19), until(28)].into_iter().min().unwrap_or(u64::MAX)
}

/// Creates a split of JPEG and RAW images of various sizes.
fn various() -> TestData {
    let payload = |id: u64| {
        let (height, width) = (80 + id as u32 % 17, 130 - id as u32 % 13);
        let spec = ImageSpec::new(height, width, 3);
        let pixels = pixels(id, spec);
        if id.is_multiple_of(5) {
            return raw(id, &pixels, spec);
        }
        let file = jpeg(&pixels, height as usize, width as usize, 80, Subsamp::Sub2x2);
        let mut payload = Vec::new();
        let points = decode::entry_points(&file).unwrap();
        let entry_points = if id.is_multiple_of(2) { &points[..] } else { &[] };
        let file = Example::from_file(&file, Format::Jpeg);
        let example = Example { label: i64::from(label(id)), entry_points, ..file };
        example::encode(&example, &mut payload);
        payload
    };
    TestData::of(&(0..500).map(payload).collect::<Vec<_>>(), 3, 3)
}

/// This must be the only test of this binary, because the allocations of other tests would be counted too. (Allocations
/// in libjpeg-turbo are not counted: it allocates a few blocks from the system's allocator for each image.)
#[test]
fn loading_allocates_nothing_per_sample_or_batch() {
    let data = TestData::noise(500, 3, SPEC);
    // In the last two lists, the floats need more room than the output, so they are in the thread's own memory.
    for ops in [
        &["pad_crop(2)", "flip", "normalize"][..],
        &["random_crop(6)", "flip", "brightness(63)", "contrast(0.2, 1.8)", "standardize"],
        &["brightness(63)", "center_crop(4)"],
        &["color_jitter(0.4, 0.4, 0.4, 0.1)", "lighting(0.1)", "normalize", "cutout(4)", "random_erasing(0.5, 1)"],
        &["inception_crop(6)", "inception_distort", "cifar_distort", "random_erasing(0.5)"],
        &["pad_crop(2, reflect)", "rand_augment", "perspective(0.5)", "gaussian_blur(3)", "augmix", "normalize"],
    ] {
        let calls = steady(&data, data.pipeline(ops, SPEC));
        // When a thread blocks in a channel for the first time, it may allocate a waiting list.
        assert!(calls <= 8, "{calls} allocations: {ops:?}");
    }
    let data = various();
    for ops in [
        &["random_resized_crop(16)", "flip", "normalize"][..],
        &["resize(17)", "center_crop(16)", "brightness(9)"],
        &["random_resized_crop(16)", "vertical_flip", "rand_augment", "trivial_augment(31, bilinear)", "normalize"],
        &["scale_jitter(17, 24)", "random_crop(12x16)", "auto_augment", "normalize"],
    ] {
        let calls = steady(&data, data.pipeline(ops, Images::Varied { channels: 3 }));
        // As above. In addition, the few buffers of a thread grow once more when a decoded part of an image is larger than
        // all earlier ones.
        assert!(calls <= 24, "{calls} allocations: {ops:?}");
    }
}
