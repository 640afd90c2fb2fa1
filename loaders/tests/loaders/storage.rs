//! Tests that the way of reading (mappings, whole shards, single records) never changes the batches. Also tests files
//! that have changed.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{SPEC, TestData, assert_mentions, edit, record_fault};
use loaders::record::RecordFault;
use loaders::{Error, Fault, Io, Loader, Options, Shuffle, Split, TrainOrder, shard};

const OPS: &[&str] = &["pad_crop(2)", "flip", "normalize"];

fn start(data: &TestData, split: Arc<Split>, shuffle: Shuffle, options: Options) -> Loader {
    let counts: Vec<u64> = split.shards().iter().map(|shard| shard.count).collect();
    let order = TrainOrder::new(1, split.len(), 32, 2, 0..2, (0, 0), 2).shuffled(shuffle, &counts);
    let options = Options { open: shuffle.open(2), ..options };
    Loader::start(split, data.pipeline(OPS, SPEC), Box::new(order), options).unwrap()
}

type Content = Vec<(u32, u64, usize, Vec<u64>, Vec<u32>, Vec<f32>)>;

fn content(mut loader: Loader) -> Content {
    let mut all = Vec::new();
    while let Some(b) = loader.next().unwrap() {
        all.push((b.epoch(), b.step(), b.worker(), b.ids().to_vec(), b.labels().to_vec(), b.images().to_vec()));
    }
    all
}

#[test]
fn mmap_and_read_give_the_same_batches() {
    let data = TestData::noise(403, 13, SPEC);
    for shuffle in [Shuffle::Full, Shuffle::Window(1), Shuffle::Window(3)] {
        let expected = content(start(&data, data.shared(), shuffle, Options::default()));
        assert_eq!(expected.len(), 2 * 2 * 13);
        // Without a buffer, records are read individually, even in windows.
        for (io, buffer) in [(Io::Mmap, 0), (Io::Read, 256 << 20), (Io::Read, 0)] {
            for threads in [1, 3] {
                let options = Options { io, buffer, threads, ..Options::default() };
                let loader = start(&data, data.lazy(), shuffle, options);
                let access = loader.access().to_owned();
                assert_eq!(content(loader), expected, "{access}, {threads} threads");
            }
        }
    }
}

#[test]
fn access_describes_how_shards_are_read() {
    let data = TestData::noise(64, 4, SPEC);
    let access = |io, shuffle, buffer| {
        let options = Options { io, buffer, ..Options::default() };
        start(&data, data.lazy(), shuffle, options).access().to_owned()
    };
    assert_mentions(&access(Io::Mmap, Shuffle::Full, 0), &["mmap", "all", "as requested"]);
    assert_mentions(&access(Io::Mmap, Shuffle::Window(2), 0), &["mmap", "shards"]);
    assert_mentions(&access(Io::Read, Shuffle::Window(2), 1 << 20), &["read", "whole shards", "1 MiB"]);
    assert_mentions(&access(Io::Read, Shuffle::Window(2), 0), &["read", "record by record"]);
}

/// Counts the lines of `list` that contain a file of the data set.
fn listed(data: &TestData, list: &str) -> usize {
    let dir = data.dir.display().to_string();
    list.lines().filter(|line| line.contains(&dir)).count()
}

#[test]
fn few_shards_are_open_at_once() {
    let data = TestData::noise(400, 40, SPEC);
    for (io, buffer) in [(Io::Mmap, 0), (Io::Read, 0)] {
        let options = Options { io, buffer, slots: 3, ..Options::default() };
        let mut loader = start(&data, data.lazy(), Shuffle::Window(2), options);
        let mut most = 0;
        while loader.next().unwrap().is_some() {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            let files: String = files.map(|path| format!("{}\n", path.display())).collect();
            most = most.max(listed(&data, &maps) + listed(&data, &files));
        }
        // 12 in the list of open shards (16 for single records), the shards that a current batch holds, and one that is
        // being opened.
        assert!((1..=24).contains(&most), "{io:?}: {most} of 40 shards are open");
    }
}

/// Readers for single records keep only a few shards open. To open a mapped shard again, they use the index in the split.
#[test]
fn mapped_shards_are_opened_again_without_their_indexes() {
    let data = TestData::noise(400, 40, SPEC);
    let expected = content(start(&data, data.shared(), Shuffle::Window(2), Options::default()));
    let split = data.shared();
    (0..40).for_each(|number| fs::remove_file(shard::index_path(&data.shard(number))).unwrap());
    let options = Options { io: Io::Read, buffer: 0, ..Options::default() };
    assert_eq!(content(start(&data, split, Shuffle::Window(2), options)), expected);
}

#[test]
fn a_shard_that_is_missing_ends_the_loader_by_name() {
    let data = TestData::noise(400, 8, SPEC);
    for (io, buffer) in [(Io::Mmap, 0), (Io::Read, 1 << 20), (Io::Read, 0)] {
        let split = data.lazy();
        let hidden = data.dir.join("hidden");
        fs::rename(data.shard(5), &hidden).unwrap();
        let mut loader = start(&data, split, Shuffle::Window(1), Options { io, buffer, ..Options::default() });
        let error = loop {
            match loader.next() {
                Ok(batch) => assert!(batch.is_some(), "the loader ended without an error"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(&error, Error::Io { action: "open", path, source }
                if *path == data.shard(5) && source.kind() == ErrorKind::NotFound),
            "{error}"
        );
        fs::rename(hidden, data.shard(5)).unwrap();
    }
}

/// A shard that was truncated after it was opened: reads return an error, while a mapping would raise SIGBUS.
#[test]
fn short_reads_are_errors() {
    let data = TestData::noise(4000, 1, SPEC);
    let options = Options { io: Io::Read, slots: 2, ..Options::default() };
    let mut loader = start(&data, data.lazy(), Shuffle::Full, options);
    assert!(loader.next().unwrap().is_some());
    OpenOptions::new().write(true).open(data.shard(0)).unwrap().set_len(4096).unwrap();
    let error = loop {
        match loader.next() {
            Ok(batch) => assert!(batch.is_some(), "the loader ended without an error"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, Error::ShortRead { path, expected, got, .. } if *path == data.shard(0) && got < expected),
        "{error}"
    );
}

#[test]
fn bad_records_are_left_out_and_named() {
    let data = TestData::noise(96, 3, SPEC);
    let good = content(start(&data, data.shared(), Shuffle::Full, Options::default()));
    let offset = data.lazy().shard(1).unwrap().offset(7).unwrap();
    edit(&data.shard(1), |bytes| bytes[offset as usize + 60] ^= 1);
    let mut loader = start(&data, data.shared(), Shuffle::Full, Options::default());
    while let Ok(Some(_)) = loader.next() {}
    assert!(matches!(loader.next(), Err(Error::Stopped)), "without `skip` the record ends the loader");
    for (io, threads) in [(Io::Mmap, 1), (Io::Read, 2)] {
        let options = Options { io, threads, skip: true, ..Options::default() };
        let mut loader = start(&data, data.shared(), Shuffle::Full, options);
        let (mut skipped, mut at) = (Vec::new(), 0);
        while let Some(batch) = loader.next().unwrap() {
            let (.., ids, labels, images) = &good[at];
            let kept: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] != 32 + 7).collect();
            assert_eq!(batch.ids(), kept.iter().map(|&i| ids[i]).collect::<Vec<_>>());
            assert_eq!(batch.labels(), kept.iter().map(|&i| labels[i]).collect::<Vec<_>>());
            let values = SPEC.values();
            let expected: Vec<f32> = kept.iter().flat_map(|&i| images[i * values..][..values].to_vec()).collect();
            assert_eq!(batch.images(), expected);
            for error in batch.skipped() {
                let (shard, record, fault) = record_fault(error);
                assert!(matches!(fault, Fault::Record(RecordFault::PayloadChecksum { .. })), "{error}");
                skipped.push((shard.to_owned(), record));
            }
            at += 1;
        }
        assert_eq!((at, loader.stats().skipped, loader.stats().images), (good.len(), 2, 190));
        assert_eq!(skipped, vec![("train-00001-of-00003.tfrecord".to_owned(), 7); 2]);
    }
}

/// The index has the right length and number of records, but wrong boundaries. Comparing only the times would not
/// detect it.
#[test]
fn an_index_with_wrong_record_boundaries_is_detected() {
    let data = TestData::noise(9, 1, SPEC);
    let (path, index) = (data.shard(0), shard::index_path(&data.shard(0)));
    let offsets: Vec<u64> = (0..=9).map(|number| data.lazy().shard(0).unwrap().offset(number).unwrap()).collect();
    let entries: Vec<_> = offsets.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect();
    // One byte moves from record 4 to record 3.
    let mut other = entries.clone();
    other[3].1 += 1;
    other[4] = (other[4].0 + 1, other[4].1 - 1);
    shard::write_index(&path, &other).unwrap();
    let modified = |path, age: u64| {
        let time = std::time::SystemTime::now() - Duration::from_secs(age);
        OpenOptions::new().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    modified(&index, 100);
    modified(&path, 0);
    match data.split().unwrap_err() {
        Error::Index { index: found, dir, problem } if (&found, &dir) == (&index, &data.dir) => {
            let (offset, size) = entries[3];
            assert_mentions(&problem, &["record 3", &format!("byte {offset}"), &(size + 1).to_string(), "older"]);
        }
        other => panic!("not the error of the index: {other}"),
    }
    // An index that is older but correct is accepted. A single damaged header is accepted too, because the reader of
    // the record reports it.
    shard::write_index(&path, &entries).unwrap();
    modified(&index, 100);
    assert_eq!(data.split().unwrap().len(), 9);
    edit(&path, |bytes| bytes[entries[5].0 as usize + 9] ^= 1);
    modified(&index, 100);
    let split = data.split().unwrap();
    assert!(split.record(4, &mut Vec::new()).is_ok());
    let error = split.record(5, &mut Vec::new()).unwrap_err();
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (5, Fault::Record(RecordFault::LengthChecksum { .. }))), "{error}");
}

#[test]
fn times_and_counts_add_up() {
    let data = TestData::noise(640, 4, SPEC);
    let mut loader = start(&data, data.shared(), Shuffle::Full, Options::default());
    while loader.next().unwrap().is_some() {}
    let stats = loader.stats();
    assert_eq!((stats.images, stats.batches, stats.skipped), (1280, 2 * 20 * 2, 0));
    assert!(stats.stages.read > Duration::ZERO && stats.stages.transform > Duration::ZERO, "{stats:?}");
    let rest = stats - stats;
    assert_eq!((rest.images, rest.stages.read), (0, Duration::ZERO));
}
