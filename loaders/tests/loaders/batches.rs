//! Tests the whole loader: batches do not depend on the number of threads and ranks, each sample occurs once, and
//! errors, panics and early ends never hang.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use loaders::order::{Order, rank_workers};
use loaders::record::RecordFault;
use loaders::{
    Dtype, Error, EvalOrder, Fault, ImageSpec, Io, Job, Loader, MixSettings, Options, PixelFormat, TrainOrder,
};

use crate::common::{self, SPEC, TestData, assert_mentions, edit, label, pixels, record_fault, transform_problem};

const OPS: &[&str] = &["pad_crop(2)", "flip", "brightness(63)", "normalize"];

/// Labels, ids and pixel bits by (epoch, step, worker).
type BatchesSeen = BTreeMap<(u32, u64, usize), (Vec<u32>, Vec<u64>, Vec<u32>)>;

fn load_batches(data: &TestData, order: impl Order + 'static, threads: usize, seen: &mut BatchesSeen) {
    let options = Options { threads, ..Options::default() };
    let mut loader = data.loader(OPS, SPEC, order, options);
    let mut last = None;
    while let Some(batch) = loader.next().unwrap() {
        let at = (batch.epoch(), batch.step(), batch.worker());
        assert!(last < Some(at), "out of order");
        last = Some(at);
        assert_eq!(batch.images().len(), batch.len() * SPEC.values());
        let bits = batch.images().iter().map(|x| x.to_bits()).collect();
        let value = (batch.labels().to_vec(), batch.ids().to_vec(), bits);
        assert!(seen.insert(at, value).is_none(), "{at:?} twice");
    }
    assert!(loader.next().unwrap().is_none(), "there is no batch after the end");
}

#[test]
fn batches_do_not_depend_on_threads_and_ranks() {
    let data = TestData::noise(101, 3, SPEC);
    let order = |mine| TrainOrder::new(3, 101, 16, 4, mine, (0, 0), 2);
    let mut one = BatchesSeen::new();
    load_batches(&data, order(0..4), 1, &mut one);
    for threads in [2, 5] {
        let mut many = BatchesSeen::new();
        load_batches(&data, order(0..4), threads, &mut many);
        assert!(many == one, "{threads} threads");
    }
    for ranks in 1..=4 {
        let mut together = BatchesSeen::new();
        for rank in 0..ranks {
            load_batches(&data, order(rank_workers(rank, ranks, 4)), 2, &mut together);
        }
        assert!(together == one, "{ranks} ranks");
    }
    let epochs = [0, 1].map(|epoch| -> Vec<u64> {
        let of_epoch = one.iter().filter(|((e, ..), _)| *e == epoch);
        of_epoch.flat_map(|(_, (_, ids, _))| ids.clone()).collect()
    });
    assert_ne!(epochs[0], epochs[1], "each epoch has its own order");
    for mut ids in epochs {
        ids.sort();
        assert_eq!(ids, (0..101).collect::<Vec<_>>());
    }
}

/// Floats are mixed and bytes are not, but both have the same mixing parameters. A batch with one image is not mixed.
#[test]
fn batches_are_mixed_with_their_recorded_parameters() {
    let data = TestData::noise(25, 3, SPEC);
    let settings = MixSettings { mixup: 0.8, cutmix: 1.0, switch: 0.5, prob: 0.9 };
    let plain = data.pipeline(OPS, SPEC);
    let load_batches = |pipeline, format| {
        let order = TrainOrder::new(3, 25, 8, 2, 0..2, (0, 0), 3);
        Loader::start_as(format, data.shared(), pipeline, Box::new(order), Options::default()).unwrap()
    };
    let mut mixed = load_batches(plain.clone().mixed(settings), PixelFormat::Values);
    let mut apart = load_batches(plain, PixelFormat::Values);
    let bare = data.pipeline(&["pad_crop(2)", "flip", "normalize"], SPEC);
    let mut bytes = load_batches(bare.clone().mixed(settings), PixelFormat::Bytes(Dtype::U8));
    let mut same = load_batches(bare, PixelFormat::Bytes(Dtype::U8));
    let mut found = [0; 3];
    while let Some(batch) = mixed.next().unwrap() {
        let (other, raw) = (apart.next().unwrap().unwrap(), bytes.next().unwrap().unwrap());
        assert_eq!((other.mix(), raw.mix()), (None, batch.mix()));
        assert_eq!(raw.pixels(), same.next().unwrap().unwrap().pixels());
        assert!((batch.ids(), batch.labels()) == (other.ids(), other.labels()));
        let mut expected = other.images().to_vec();
        batch.mix().iter().for_each(|mix| mix.apply(&mut expected, SPEC));
        assert_eq!(batch.images(), expected);
        found[batch.mix().map_or(0, |mix| 1 + usize::from(mix.area.is_some()))] += 1;
        assert!(batch.len() > 1 || batch.mix().is_none(), "a single image");
    }
    assert!(found.iter().all(|n| *n > 1), "neither, mixup, CutMix: {found:?}");
}

#[test]
fn labels_are_read_without_images() {
    let data = TestData::noise(50, 4, SPEC);
    let expected: Vec<_> = (0..50).map(|id| Some(label(id))).collect();
    for threads in [1, 3, 9] {
        assert_eq!(data.shared().labels(false, threads).unwrap(), expected, "{threads} threads");
    }
    // Other programs may write the label after the image. Then the whole record is read.
    let large: Vec<_> = (0..6).map(|id| common::label_last(id, &[7; 5000])).collect();
    let data = TestData::of(&large, 2, 3);
    assert_eq!(data.shared().labels(false, 2).unwrap(), expected[..6]);
    // A record without a valid label is an error or is left out.
    common::edit(&data.shard(1), |bytes| {
        let last = bytes.len() - 5;
        bytes[last] ^= 0xff;
    });
    let error = data.shared().labels(false, 2).unwrap_err();
    let (shard, record, _) = record_fault(&error);
    assert_eq!((shard, record), ("train-00001-of-00002.tfrecord", 2));
    assert_eq!(data.shared().labels(true, 2).unwrap()[5], None);
}

#[test]
fn labels_and_pixels_match_the_ids() {
    let data = TestData::noise(50, 4, SPEC);
    let mut loader = data.loader(&[], SPEC, EvalOrder::new(50, 16, 0, 1), Options::default());
    let mut next = 0;
    while let Some(batch) = loader.next().unwrap() {
        for (i, (&id, &got)) in batch.ids().iter().zip(batch.labels()).enumerate() {
            assert_eq!((id, got), (next, label(id)));
            let interleaved = pixels(id, SPEC);
            let image = &batch.images()[i * SPEC.values()..][..SPEC.values()];
            for (j, &value) in image.iter().enumerate() {
                let (channel, pixel) = (j / SPEC.pixels(), j % SPEC.pixels());
                assert_eq!(value, f32::from(interleaved[pixel * 3 + channel]));
            }
            next += 1;
        }
    }
    assert_eq!(next, 50);
    let stats = loader.stats();
    let bytes: u64 = data.manifest.splits["train"].shards.iter().map(|shard| shard.bytes).sum();
    assert_eq!((stats.images, stats.bytes), (50, bytes));
}

#[test]
fn evaluation_is_the_same_for_any_ranks() {
    let data = TestData::noise(45, 2, SPEC);
    let mut one = BatchesSeen::new();
    load_batches(&data, EvalOrder::new(45, 8, 0, 1), 2, &mut one);
    for ranks in 2..=4 {
        let mut together = BatchesSeen::new();
        for rank in 0..ranks {
            load_batches(&data, EvalOrder::new(45, 8, rank, ranks), 2, &mut together);
        }
        assert!(together == one, "{ranks} ranks");
    }
}

/// An order that returns jobs with one sample each, 0, 1, 2, ..., and panics after `n` jobs.
struct Panics {
    n: u64,
    at: u64,
}

impl Order for Panics {
    fn fill(&mut self, job: &mut Job) -> bool {
        assert!(self.at < self.n, "the order has a defect");
        (job.epoch, job.step, job.worker) = (0, self.at, 0);
        job.ids.clear();
        job.ids.push(self.at);
        self.at += 1;
        true
    }
}

#[test]
fn a_panic_in_a_loader_thread_is_returned_as_an_error() {
    let data = TestData::noise(20, 2, SPEC);
    for threads in [1, 3] {
        let options = Options { threads, ..Options::default() };
        let mut loader = data.loader(OPS, SPEC, Panics { n: 10, at: 0 }, options);
        let error = loop {
            match loader.next() {
                Ok(batch) => assert!(batch.is_some(), "the loader ended without an error"),
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, Error::Panic { message, .. } if message == "the order has a defect"), "{error}");
        assert!(matches!(loader.next(), Err(Error::Stopped)));
    }
}

#[test]
fn an_error_is_returned_after_the_batches_before_it() {
    let data = TestData::noise(40, 2, SPEC);
    // Sample 25 is record 5 of the second shard.
    let shard = data.shard(1);
    common::edit(&shard, |bytes| {
        let size = bytes.len() / 20;
        bytes[5 * size + 100] ^= 0x10;
    });
    for threads in [1, 2, 4] {
        let options = Options { threads, ..Options::default() };
        let mut loader = data.loader(OPS, SPEC, EvalOrder::new(40, 4, 0, 1), options);
        for step in 0..6 {
            assert_eq!(loader.next().unwrap().unwrap().step(), step);
        }
        let error = loader.next().unwrap_err();
        let (shard, record, fault) = record_fault(&error);
        assert_eq!((shard, record), ("train-00001-of-00002.tfrecord", 5));
        assert!(matches!(fault, Fault::Record(RecordFault::PayloadChecksum { .. })), "{error}");
        assert!(matches!(loader.next(), Err(Error::Stopped)));
    }
}

/// The records of a batch are requested while the previous batch is filled.
#[test]
fn a_removed_shard_fails_the_batch_that_needs_it() {
    let data = TestData::noise(40, 10, SPEC);
    let split = data.lazy();
    std::fs::remove_file(data.shard(3)).unwrap();
    let options = Options { io: Io::Read, ..Options::default() };
    let order = Box::new(EvalOrder::new(40, 4, 0, 1));
    let mut loader = Loader::start(split, data.pipeline(OPS, SPEC), order, options).unwrap();
    assert_mentions(loader.access(), &["read", "record by record"]);
    for step in 0..3 {
        assert_eq!(loader.next().unwrap().unwrap().step(), step);
    }
    let error = loader.next().unwrap_err();
    assert!(matches!(&error, Error::Io { action: "open", path, .. } if *path == data.shard(3)), "{error}");
}

#[test]
fn next_does_not_wait_if_is_ready_was_true() {
    let data = TestData::noise(400, 2, SPEC);
    for threads in [1, 4] {
        let options = Options { threads, slots: 8, ..Options::default() };
        let mut loader = data.loader(OPS, SPEC, EvalOrder::new(400, 2, 0, 1), options);
        let (mut waited, mut steps_ready) = (loader.stats().wait, 0);
        // at least the first batch is ready, however slow the machine is
        let since = Instant::now();
        while !loader.is_ready() {
            assert!(since.elapsed() < Duration::from_secs(60), "no batch is ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            std::thread::sleep(Duration::from_micros(200));
            let ready = loader.is_ready();
            let batch = loader.next().unwrap();
            let now = loader.stats().wait;
            assert!(!ready || now == waited, "the consumer waited for a batch that was ready");
            (waited, steps_ready) = (now, steps_ready + usize::from(ready));
            if batch.is_none() {
                break;
            }
        }
        assert!(steps_ready > 0, "no batch was ever ready, although the consumer of {threads} threads is slow");
    }
}

#[test]
fn holding_all_slots_stops_the_loader_with_an_error() {
    let data = TestData::noise(60, 2, SPEC);
    let options = Options { threads: 2, slots: 3, nice: 5, ..Options::default() };
    let mut loader = data.loader(OPS, SPEC, EvalOrder::new(60, 2, 0, 1), options);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(loader.next().unwrap().unwrap());
    }
    assert!(matches!(loader.next(), Err(Error::SlotsHeld { slots: 3 })));
    // The loader does not write to batches that are held.
    std::thread::sleep(Duration::from_millis(20));
    for (step, batch) in held.iter().enumerate() {
        assert_eq!(batch.ids(), [2 * step as u64, 2 * step as u64 + 1]);
    }
    held.clear();
    let mut steps = 3;
    while let Some(batch) = loader.next().unwrap() {
        assert_eq!(batch.step(), steps);
        steps += 1;
    }
    assert_eq!(steps, 30);
}

#[test]
fn dropping_at_any_moment_ends_the_threads() {
    let data = TestData::noise(200, 2, SPEC);
    for taken in [0, 1, 7] {
        let split = data.shared();
        let options = Options { threads: 3, ..Options::default() };
        let order = Box::new(TrainOrder::new(1, 200, 8, 1, 0..1, (0, 0), 1000));
        let pipeline = data.pipeline(OPS, SPEC);
        let mut loader = Loader::start(split.clone(), pipeline, order, options).unwrap();
        let mut batch = None;
        for _ in 0..taken {
            batch = loader.next().unwrap();
        }
        drop(loader);
        // Each thread had a reference to the split. All threads are gone, although a batch is still alive.
        assert_eq!(std::sync::Arc::strong_count(&split), 1);
        if let Some(batch) = batch {
            assert_eq!(batch.len(), 8);
        }
    }
}

#[test]
fn workers_without_samples_get_empty_batches() {
    let data = TestData::noise(3, 1, SPEC);
    let mut seen = BatchesSeen::new();
    load_batches(&data, TrainOrder::new(1, 3, 8, 4, 0..4, (0, 0), 1), 2, &mut seen);
    let sizes: Vec<_> = seen.values().map(|(labels, ..)| labels.len()).collect();
    assert_eq!(sizes, [0, 1, 1, 1]);
}

#[test]
fn the_bench_measures_whole_epochs() {
    let data = TestData::noise(64, 2, SPEC);
    let ops = ["flip".to_owned(), "normalize".to_owned()];
    let request = loaders::bench::LoaderRequest {
        dir: data.dir.clone(),
        split: "train".into(),
        transforms: ops.to_vec(),
        batch: 16,
        epochs: 3,
        shuffle: loaders::Shuffle::Window(2),
        options: Options { threads: 2, ..Options::default() },
        stored: false,
    };
    let calls = std::cell::Cell::new(0.0);
    let memory = || {
        calls.set(calls.get() + 1.0);
        calls.get()
    };
    let rate = loaders::bench::run(&request, memory).unwrap();
    assert_eq!(rate.rss_mb, 3.0, "measured at the end of each epoch");
    assert!(rate.img_per_s > 0.0 && rate.img_per_s_first > 0.0 && rate.bytes_per_s > 0.0);

    let bytes = loaders::bench::LoaderRequest { stored: true, ..request.clone() };
    let less = loaders::bench::run(&bytes, memory).unwrap();
    assert!(less.memory_mb < 0.3 * rate.memory_mb, "{} and {} MB", less.memory_mb, rate.memory_mb);
    let refused = |transforms: [&str; 2]| {
        let transforms = transforms.map(str::to_owned).to_vec();
        loaders::bench::run(&loaders::bench::LoaderRequest { transforms, ..bytes.clone() }, memory).unwrap_err()
    };
    let error = refused(["contrast(0.5,1.5)", "normalize"]);
    let (index, text, problem) = transform_problem(&error);
    assert_eq!((index, text), (0, "contrast(0.5, 1.5)"));
    assert_mentions(problem, &["bytes", "floats", "normalize"]);
    let error = refused(["normalize", "flip"]);
    let (index, text, problem) = transform_problem(&error);
    assert_eq!(index, 1);
    assert!(text.starts_with("flip"), "{text}");
    assert_mentions(problem, &["follows", "floats", "last"]);
}

#[test]
fn a_nice_value_out_of_range_is_refused() {
    let data = TestData::noise(4, 1, SPEC);
    for nice in [-1, 20] {
        let options = Options { nice, ..Options::default() };
        let order = Box::new(EvalOrder::new(4, 2, 0, 1));
        let pipeline = data.pipeline(OPS, SPEC);
        let error = Loader::start(data.shared(), pipeline, order, options).unwrap_err();
        assert!(matches!(&error, Error::Nice { nice: found, .. } if *found == nice), "{error}");
        assert_mentions(&error.to_string(), &[&format!("nice {nice}"), "0 to 19"]);
    }
}

// Images that are large enough for threads to share a batch. The batches are the same as with a single thread.

/// Each image is a separate piece.
const LARGE: ImageSpec = ImageSpec::new(40, 40, 3);

/// For each batch: ids, labels, bits of the images, and the number of samples that were left out.
type PiecesSeen = Vec<(Vec<u64>, Vec<u32>, Vec<u32>, usize)>;

/// Returns all batches of two epochs, and the maximum number of pieces per batch.
fn load_pieces(data: &TestData, format: PixelFormat, options: Options) -> (PiecesSeen, usize) {
    let mix = MixSettings { mixup: 0.8, cutmix: 1.0, switch: 0.5, prob: 0.9 };
    let pipeline = data.pipeline(&["pad_crop(2)", "flip", "normalize"], LARGE).mixed(mix);
    let order = Box::new(TrainOrder::new(3, 60, 16, 2, 0..2, (0, 0), 2));
    let as_bytes = matches!(format, PixelFormat::Bytes(_));
    let mut loader = Loader::start_as(format, data.shared(), pipeline, order, options).unwrap();
    let (mut seen, mut most) = (PiecesSeen::new(), 0);
    while let Some(batch) = loader.next().unwrap() {
        let bits = match as_bytes {
            true => batch.pixels().iter().map(|x| u32::from(*x)).collect(),
            false => batch.images().iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
        };
        assert_eq!(bits.len(), batch.len() * LARGE.values());
        assert!(batch.fillings().iter().all(|filling| filling.thread < options.threads));
        seen.push((batch.ids().to_vec(), batch.labels().to_vec(), bits, batch.skipped().len()));
        most = most.max(batch.fillings().len());
    }
    (seen, most)
}

#[test]
fn batches_divided_among_threads_are_identical() {
    let data = TestData::noise(60, 3, LARGE);
    for format in [PixelFormat::Values, PixelFormat::Bytes(Dtype::U8)] {
        let options = Options { threads: 1, io: Io::Mmap, ..Options::default() };
        let (one, _) = load_pieces(&data, format.clone(), options);
        assert_eq!(one.iter().map(|batch| batch.0.len()).sum::<usize>(), 120);
        for threads in [2, 5] {
            let (many, pieces) = load_pieces(&data, format.clone(), Options { threads, ..options });
            assert!(many == one, "{threads} threads");
            assert!(pieces > threads, "{pieces} pieces");
            // If records are fetched ahead, a thread fills whole batches.
            let (fetched, pieces) = load_pieces(&data, format.clone(), Options { threads, io: Io::Read, ..options });
            assert!(fetched == one && pieces == 1, "{threads} threads, {pieces} pieces");
        }
    }
}

/// Damages these records of a data set with one shard.
fn spoil(data: &TestData, records: &[usize], count: usize) {
    edit(&data.shard(0), |bytes| {
        let size = bytes.len() / count;
        records.iter().for_each(|record| bytes[record * size + 200] ^= 0x10);
    });
}

/// Samples that are left out leave no gap, at the start or end of a piece or if a whole piece is left out.
#[test]
fn skipped_samples_leave_no_gap_in_a_batch() {
    let data = TestData::noise(60, 1, LARGE);
    let whole = load_pieces(&data, PixelFormat::Values, Options::default()).0;
    spoil(&data, &[0, 7, 8, 9, 10, 31, 32, 59], 60);
    let options = Options { skip: true, io: Io::Mmap, ..Options::default() };
    for format in [PixelFormat::Values, PixelFormat::Bytes(Dtype::U8)] {
        let (one, _) = load_pieces(&data, format.clone(), options);
        assert_eq!(one.iter().map(|batch| batch.3).sum::<usize>(), 16);
        for threads in [2, 5] {
            assert!(load_pieces(&data, format.clone(), Options { threads, ..options }).0 == one, "{threads} threads");
        }
        for (less, all) in one.iter().zip(&whole) {
            let kept: Vec<u64> = all.0.iter().copied().filter(|id| less.0.contains(id)).collect();
            assert_eq!((less.0.len() + less.3, &less.0), (all.0.len(), &kept));
        }
    }
}

/// If a batch has more than one bad record, the error names the first one in order, no matter which thread finds its
/// record first.
#[test]
fn a_batch_reports_its_first_error_in_order() {
    let data = TestData::noise(40, 1, LARGE);
    spoil(&data, &[13, 14, 18, 19], 40);
    for threads in [1, 2, 3, 5].repeat(5) {
        let options = Options { threads, io: Io::Mmap, ..Options::default() };
        let mut loader = data.loader(&[], LARGE, EvalOrder::new(40, 10, 0, 1), options);
        assert_eq!(loader.next().unwrap().unwrap().len(), 10);
        let error = loader.next().unwrap_err();
        let (_, record, fault) = record_fault(&error);
        assert_eq!(record, 13);
        assert!(matches!(fault, Fault::Record(RecordFault::PayloadChecksum { .. })), "{error}");
        assert!(matches!(loader.next(), Err(loaders::Error::Stopped)));
    }
}
