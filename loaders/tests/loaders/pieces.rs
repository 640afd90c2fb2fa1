//! Batches whose images are large enough for several threads to fill one: the same as those of a single thread.

use crate::common::{TestData, assert_contains, edit};
use loaders::{EvalOrder, ImageSpec, Io, Loader, MixSettings, Options, PixelFormat, TrainOrder};

/// An image is a piece of its own.
const LARGE: ImageSpec = ImageSpec::new(40, 40, 3);

/// Ids, labels, the images' bits, and how many samples were left out, of each batch.
type Seen = Vec<(Vec<u64>, Vec<u32>, Vec<u32>, usize)>;

/// All batches of two epochs; and the most pieces that one was made of.
fn load(data: &TestData, format: PixelFormat, options: Options) -> (Seen, usize) {
    let mix = MixSettings { mixup: 0.8, cutmix: 1.0, switch: 0.5, prob: 0.9 };
    let pipeline = data.pipeline(&["pad_crop(2)", "flip", "normalize"], LARGE).mixed(mix);
    let order = Box::new(TrainOrder::new(3, 60, 16, 2, 0..2, (0, 0), 2));
    let as_bytes = matches!(format, PixelFormat::Bytes);
    let mut loader = Loader::start_as(format, data.shared(), pipeline, order, options).unwrap();
    let (mut seen, mut most) = (Seen::new(), 0);
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
fn threads_that_share_batches_change_nothing() {
    let data = TestData::noise(60, 3, LARGE);
    for format in [PixelFormat::Values, PixelFormat::Bytes] {
        let options = Options { threads: 1, io: Io::Mmap, ..Options::default() };
        let (one, _) = load(&data, format.clone(), options);
        assert_eq!(one.iter().map(|batch| batch.0.len()).sum::<usize>(), 120);
        for threads in [2, 5] {
            let (many, pieces) = load(&data, format.clone(), Options { threads, ..options });
            assert!(many == one, "{threads} threads");
            assert!(pieces > threads, "{pieces} pieces");
            // where records are fetched ahead, a thread fills whole batches
            let (fetched, pieces) = load(&data, format.clone(), Options { threads, io: Io::Read, ..options });
            assert!(fetched == one && pieces == 1, "{threads} threads, {pieces} pieces");
        }
    }
}

/// Spoils these records of a data set in one shard.
fn spoil(data: &TestData, records: &[usize], count: usize) {
    edit(&data.shard(0), |bytes| {
        let size = bytes.len() / count;
        records.iter().for_each(|record| bytes[record * size + 200] ^= 0x10);
    });
}

/// Samples that are left out leave no gap, in whatever piece they are: at its start, its end, or all of it.
#[test]
fn what_is_left_out_leaves_no_gap() {
    let data = TestData::noise(60, 1, LARGE);
    let whole = load(&data, PixelFormat::Values, Options::default()).0;
    spoil(&data, &[0, 7, 8, 9, 10, 31, 32, 59], 60);
    let options = Options { skip: true, io: Io::Mmap, ..Options::default() };
    for format in [PixelFormat::Values, PixelFormat::Bytes] {
        let (one, _) = load(&data, format.clone(), options);
        assert_eq!(one.iter().map(|batch| batch.3).sum::<usize>(), 16);
        for threads in [2, 5] {
            assert!(load(&data, format.clone(), Options { threads, ..options }).0 == one, "{threads} threads");
        }
        for (less, all) in one.iter().zip(&whole) {
            let kept: Vec<u64> = all.0.iter().copied().filter(|id| less.0.contains(id)).collect();
            assert_eq!((less.0.len() + less.3, &less.0), (all.0.len(), &kept));
        }
    }
}

/// Of several bad records in one batch the first in order is named, whichever thread finds its own first.
#[test]
fn the_first_error_of_a_batch_is_its_error() {
    let data = TestData::noise(40, 1, LARGE);
    spoil(&data, &[13, 14, 18, 19], 40);
    for threads in [1, 2, 3, 5].repeat(5) {
        let order = Box::new(EvalOrder::new(40, 10, 0, 1));
        let options = Options { threads, io: Io::Mmap, ..Options::default() };
        let mut loader = Loader::start(data.shared(), data.pipeline(&[], LARGE), order, options).unwrap();
        assert_eq!(loader.next().unwrap().unwrap().len(), 10);
        let error = loader.next().unwrap_err().to_string();
        assert_contains(&error, &["record 13 at byte", "checksum of the payload"]);
        assert!(matches!(loader.next(), Err(loaders::Error::Stopped)));
    }
}
