//! Images with any number of labels: batches have all labels for every image format, and errors name bad records.

use std::sync::Arc;

use crate::common::{SPEC, TestData, assert_mentions, pixels, raw, record_fault};
use loaders::example::{self, LabelList};
use loaders::{Dtype, Error, EvalOrder, Fault, ImageSpec, LabelSets, Loader, Options, PixelFormat};

/// Returns the labels of sample `id`. There can be any number, including zero.
fn labels(id: u64) -> Vec<i64> {
    (0..10)
        .filter(|class| (id * 13 + class * 7).is_multiple_of(5) && *class < id % 7)
        .map(|class| class as i64)
        .collect()
}

/// Creates records of `count` images. `edit` changes the labels of each.
fn data(count: u64, edit: impl Fn(u64, &mut Vec<i64>)) -> TestData {
    let payload = |id| {
        let (mut list, mut labels, mut out) = (LabelList::default(), labels(id), Vec::new());
        edit(id, &mut labels);
        list.set(&labels);
        example::relabel(&raw(id, &pixels(id, SPEC), SPEC), &list, &mut out).unwrap();
        out
    };
    let mut data = TestData::of(&(0..count).map(payload).collect::<Vec<_>>(), 3, 3);
    (data.manifest.version, data.manifest.multi_label) = (2, true);
    data.manifest.write(&data.dir).unwrap();
    data
}

fn load(data: &TestData, format: PixelFormat, ops: &[&str], skip: bool) -> Result<Vec<(Vec<u64>, LabelSets)>, Error> {
    let order = Box::new(EvalOrder::new(data.shared().len(), 50, 0, 1));
    let options = Options { threads: 2, skip, ..Options::default() };
    let mut loader = Loader::start_as(format, data.shared(), data.pipeline(ops, SPEC), order, options)?;
    let mut all = Vec::new();
    while let Some(batch) = loader.next()? {
        assert_eq!(batch.label_sets().unwrap().len(), batch.len());
        all.push((batch.ids().to_vec(), batch.label_sets().unwrap().clone()));
    }
    Ok(all)
}

fn check(batches: &[(Vec<u64>, LabelSets)]) -> usize {
    let images = batches.iter().flat_map(|(ids, sets)| ids.iter().copied().zip(sets.iter()));
    images.map(|(id, set)| assert_eq!(set, labels(id).iter().map(|l| *l as u32).collect::<Vec<_>>(), "{id}")).count()
}

#[test]
fn batches_of_every_form_have_all_labels() {
    let data = data(53, |_, _| {});
    assert_eq!(check(&load(&data, PixelFormat::Values, &["normalize"], false).unwrap()), 53);
    assert_eq!(check(&load(&data, PixelFormat::Bytes(Dtype::U8), &["normalize"], false).unwrap()), 53);
    let mut all = LabelSets::default();
    (0..53).for_each(|id| all.push(labels(id).iter().map(|l| *l as u32)));
    let first = |id| labels(id).first().map_or(0, |l| *l as u32);
    let spec = ImageSpec::new(8, 8, 3);
    let (labels, label_sets) = ((0..53).map(first).collect(), Some(Arc::new(all)));
    let kept = PixelFormat::CropRects { labels, label_sets, targets: Arc::new([]), spec };
    assert_eq!(check(&load(&data, kept, &["pad_crop(2)", "normalize"], false).unwrap()), 53);
    // Single-label data sets have no label sets.
    let one = TestData::noise(9, 1, SPEC);
    let mut loader = one.loader(&[], SPEC, EvalOrder::new(9, 4, 0, 1), Options::default());
    assert!(loader.next().unwrap().unwrap().label_sets().is_none());
}

#[test]
fn labels_that_are_no_class_are_named_or_left_out() {
    let data = data(20, |id, labels| labels.extend((id == 11).then_some(10)));
    let error = load(&data, PixelFormat::Values, &["normalize"], false).unwrap_err();
    let (_, record, fault) = record_fault(&error);
    assert!(matches!((record, fault), (5, Fault::Label { stored: 10, last: 9, .. })), "{error}");
    let some = load(&data, PixelFormat::Values, &["normalize"], true).unwrap();
    assert_eq!(check(&some), 19, "each image keeps its labels");
    // The same images are left out of larger batches, which more than one thread fills.
    let data = self::data(100, |id, labels| labels.extend((id % 30 == 11).then_some(10)));
    let some = load(&data, PixelFormat::Values, &["normalize"], true).unwrap();
    assert_eq!((some.len(), check(&some)), (2, 97));
}

#[test]
fn records_of_several_labels_in_a_set_of_one_are_refused() {
    let mut data = data(20, |_, _| {});
    (data.manifest.version, data.manifest.multi_label) = (1, false);
    data.manifest.write(&data.dir).unwrap();
    for error in [data.complaint(), data.split().unwrap().labels(false, 2).unwrap_err()] {
        assert!(matches!(record_fault(&error).2, Fault::Labels { count: 0 }), "{error}");
        assert_mentions(&error.to_string(), &["0 labels", "`multi_label`"]);
    }
}
