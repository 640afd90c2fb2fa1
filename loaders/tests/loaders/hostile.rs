//! Truncated files, decompression bombs, and shards that other processes rewrite while they are read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{TestData, assert_mentions, record_fault};
use loaders::decode::{Decoder, decode, spec};
use loaders::example::{self, Example, Format};
use loaders::record::RecordFault;
use loaders::{Draws, EvalOrder, Fault, ImageSpec, Io, Options};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

const SIDE: usize = 40;
const SHAPE: ImageSpec = ImageSpec::new(SIDE as u32, SIDE as u32, 3);

/// Creates a noisy picture as a JPEG.
fn jpeg(seed: u64, change: impl FnOnce(&mut Compressor)) -> Vec<u8> {
    let mut draws = Draws::new(seed, 0, 0, 0);
    let pixels: Vec<u8> = (0..SHAPE.values()).map(|_| (64 + draws.below(128)) as u8).collect();
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(80).unwrap();
    compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
    change(&mut compressor);
    let image = Image { pixels: &pixels[..], width: SIDE, pitch: 3 * SIDE, height: SIDE, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).unwrap()
}

fn progressive() -> Vec<u8> {
    jpeg(2, |compressor| compressor.set_progressive(true).unwrap())
}

fn example(encoded: &[u8]) -> Example<'_> {
    Example { label: 3, ..Example::from_file(encoded, Format::Jpeg) }
}

/// Returns the results of verification and conversion, and of training on the whole image.
fn verdicts(file: &[u8]) -> [Result<(), Fault>; 2] {
    let mut decoder = Decoder::default();
    let checked = decoder.open(&example(file)).and_then(|stored| decoder.check(stored, &example(file)));
    let decoded = decode(&example(file), SHAPE, &mut Vec::new()).map(drop);
    [checked, decoded]
}

/// Returns the offset of the first segment with this marker.
fn marker(file: &[u8], code: u8) -> usize {
    file.windows(2).position(|pair| pair == [0xff, code]).unwrap()
}

/// Stray bytes before a segment cause a harmless libjpeg warning, and TurboJPEG reports only this first warning. A
/// truncated file must still be detected, wherever it ends, and even if an end marker is appended.
#[test]
fn truncated_jpegs_with_stray_bytes_are_refused() {
    for (name, good, frame) in [("baseline", jpeg(1, |_| {}), 0xc0), ("progressive", progressive(), 0xc2)] {
        let at = marker(&good, frame);
        let stray = [&good[..at], &[1, 2, 3], &good[at..]].concat();
        assert!(verdicts(&stray).iter().all(Result::is_ok), "{name}");
        let scan = marker(&stray, 0xda) + 14;
        for length in 2..stray.len() {
            let cut = &stray[..length];
            let closed = [cut, &[0xff, 0xd9]].concat();
            for verdict in verdicts(cut) {
                assert!(verdict.is_err(), "{name} cut to {length} of {} bytes", stray.len());
            }
            // If only the last few bytes are cut off and an end marker is added, the image may still be complete.
            if length < stray.len() - 8 {
                for verdict in verdicts(&closed) {
                    assert!(verdict.is_err(), "{name} cut to {length} of {} bytes and closed", stray.len());
                }
            }
        }
        let closed = [&stray[..scan + (stray.len() - scan) / 2], &[0xff, 0xd9]].concat();
        for verdict in verdicts(&closed) {
            let fault = verdict.unwrap_err();
            assert!(matches!(fault, Fault::Decode { format: "JPEG", .. }), "{name}: {fault}");
        }
    }
}

fn payload(encoded: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    example::encode(&example(encoded), &mut payload);
    payload
}

/// Each bad image is followed by a good one, because a decompressor that failed in a header must not be used again.
#[test]
fn a_loader_skips_only_the_truncated_images() {
    let (good, progressive) = (jpeg(1, |_| {}), progressive());
    let mut payloads = Vec::new();
    for file in [&good, &progressive] {
        let at = marker(file, 0xdb);
        let stray = [&file[..at], &[9, 9, 9], &file[at..]].concat();
        for length in (20..stray.len() - 8).step_by(97) {
            payloads.extend([payload(&stray[..length]), payload(&good)]);
        }
    }
    let data = TestData::of(&payloads, 2, 3);
    let count = payloads.len() as u64;
    let options = Options { threads: 2, skip: true, ..Options::default() };
    let mut loader = data.loader(&["normalize"], SHAPE, EvalOrder::new(count, 16, 0, 1), options);
    let (mut ids, mut skipped) = (Vec::new(), 0);
    while let Some(batch) = loader.next().unwrap() {
        ids.extend_from_slice(batch.ids());
        skipped += batch.skipped().len();
    }
    assert_eq!(ids, (0..count).filter(|id| id % 2 == 1).collect::<Vec<_>>());
    assert_eq!(skipped, payloads.len() / 2);
}

/// A few hundred bytes can request a gigabyte of memory, and a few thousand bytes can take a minute to decode.
#[test]
fn files_whose_header_claims_too_much_memory_are_refused() {
    let file = jpeg(1, |compressor| {
        compressor.set_progressive(true).unwrap();
        compressor.set_subsamp(Subsamp::None).unwrap();
    });
    let sized = |side: u16| {
        let mut file = file.clone();
        let frame = marker(&file, 0xc2);
        file[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
        file[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
        file
    };
    // 100 million pixels: 300 MB of RGB are within the limit, but an additional 600 MB of coefficients are not.
    let fault = spec(&example(&sized(10_000))).unwrap_err();
    assert!(matches!(fault, Fault::Memory { what: "JPEG", needed: Some(900_000_000..901_000_000), .. }), "{fault}");
    assert_mentions(&fault.to_string(), &["JPEG", "--limit-memory"]);
    assert!(spec(&example(&sized(5000))).is_ok());
    // Repeats the last scan many times.
    let wide = sized(7000);
    let scans: Vec<usize> = (0..wide.len() - 1).filter(|&i| wide[i..i + 2] == [0xff, 0xda]).collect();
    let (body, last) = wide[..wide.len() - 2].split_at(*scans.last().unwrap());
    let repeated = |times| [body, &last.repeat(times), &[0xff, 0xd9]].concat();
    let fault = spec(&example(&repeated(490))).unwrap_err();
    assert!(matches!(fault, Fault::Time { scans: 490.., .. }), "{fault}");
    assert_mentions(&fault.to_string(), &["scans", "--limit-seconds"]);
    assert!(spec(&example(&repeated(3))).is_ok());
    let fault = spec(&example(&sized(0))).unwrap_err();
    assert!(matches!(fault, Fault::PixelCount { got, .. } if (got.height, got.width) == (0, 0)), "{fault}");
}

/// Bytes that were read and verified do not change when the file changes.
#[test]
fn verified_bytes_do_not_change_with_the_file() {
    let data = TestData::noise(6, 1, SHAPE);
    let split = data.split().unwrap();
    let mut copy = Vec::new();
    let (example, _) = split.record(2, &mut copy).unwrap();
    let before = example.encoded.to_vec();
    let file = File::options().write(true).open(data.shard(0)).unwrap();
    file.write_all_at(&vec![0xa5; fs::metadata(data.shard(0)).unwrap().len() as usize], 0).unwrap();
    assert_eq!(example.encoded, before);
    let error = split.record(2, &mut Vec::new()).unwrap_err();
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (2, Fault::Record(RecordFault::LengthChecksum { .. }))), "{error}");
}

/// Sets the flag when it is dropped, also by a failing assertion.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// If another process rewrites records and changes their sizes, each record is either good or left out.
#[test]
fn a_shard_may_be_rewritten_while_it_is_read() {
    let good = jpeg(1, |_| {});
    let payloads: Vec<_> = (0..64).map(|_| payload(&good)).collect();
    let data = TestData::of(&payloads, 1, 3);
    let bytes = fs::read(data.shard(0)).unwrap();
    let frames: Vec<usize> = (0..bytes.len() - 1).filter(|&i| bytes[i..i + 2] == [0xff, 0xc0]).collect();
    let stop = AtomicBool::new(false);
    let file = File::options().write(true).open(data.shard(0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Writes a height and width for 4 to 8 times the number of pixels, and then the original height and width.
            while !stop.load(Ordering::Relaxed) {
                for frame in &frames {
                    let at = (frame + 5) as u64;
                    let size = &bytes[frame + 5..frame + 9];
                    file.write_all_at(&[1, 0, 1, 0], at).unwrap();
                    file.write_all_at(size, at).unwrap();
                }
            }
        });
        // The scope waits for the writer.
        let _stop = SetOnDrop(&stop);
        let options = Options { threads: 2, skip: true, io: Io::Mmap, ..Options::default() };
        for _ in 0..20 {
            let mut loader = data.loader(&["normalize"], SHAPE, EvalOrder::new(64, 8, 0, 1), options);
            let mut images = 0;
            while let Some(batch) = loader.next().unwrap() {
                images += batch.len() + batch.skipped().len();
            }
            assert_eq!(images, 64);
        }
    });
}
