//! In the steady state a loader does not allocate, whatever the number of samples.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{SPEC, TestData};
use loaders::{Loader, Options, TrainOrder};

/// Counts what all threads ask for.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps alloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps realloc's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps dealloc's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The only test of this binary: another one's allocations would be counted, too.
#[test]
fn none_per_sample_or_batch() {
    let data = TestData::noise(500, 3, SPEC);
    // The last two: floats that are larger than the output, in the thread's own memory.
    for ops in [
        &["pad_crop(2)", "flip", "normalize"][..],
        &["random_crop(6)", "flip", "brightness(63)", "contrast(0.2, 1.8)", "standardize"],
        &["brightness(63)", "center_crop(4)"],
    ] {
        let options = Options { threads: 2, slots: 4, nice: 0 };
        let order = TrainOrder::new(1, 500, 32, 2, 0..2, (0, 0), 30);
        let pipeline = data.pipeline(ops, SPEC);
        let mut loader = Loader::start(data.shared(), pipeline, Box::new(order), options).unwrap();
        // Two epochs for each slot and thread to meet the largest batch.
        while loader.next().unwrap().unwrap().epoch() < 2 {}
        let before = CALLS.load(Ordering::Relaxed);
        let mut samples = 0;
        loop {
            let batch = loader.next().unwrap().unwrap();
            samples += batch.len();
            if batch.epoch() == 28 {
                break;
            }
        }
        let calls = CALLS.load(Ordering::Relaxed) - before;
        assert!(samples > 12_000);
        // Blocking in a channel for the first time may set up a thread's waiting list.
        assert!(calls <= 8, "{calls} allocations for {samples} samples: {ops:?}");
    }
}
