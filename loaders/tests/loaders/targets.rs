//! Images with numbers as labels: batches have the numbers for every image format, and errors name bad records.

use std::sync::Arc;

use crate::common::{SPEC, TestData, assert_mentions, pixels, raw, record_fault};
use loaders::example::{self, FloatList, Labels};
use loaders::{Dtype, Error, EvalOrder, Example, Fault, ImageSpec, Loader, Options, PixelFormat, Target};

/// Returns the numbers for sample `id`.
fn numbers(id: u64) -> Vec<f32> {
    vec![id as f32 * 0.5, -(id as f32)]
}

/// Creates records for `count` images. `edit` changes each image's numbers.
fn data(count: u64, edit: impl Fn(u64, &mut Vec<f32>)) -> TestData {
    let payload = |id| {
        let (mut list, mut numbers, mut out) = (FloatList::default(), numbers(id), Vec::new());
        edit(id, &mut numbers);
        list.set(numbers.into_iter());
        let bytes = raw(id, &pixels(id, SPEC), SPEC);
        let example = example::parse(&bytes).unwrap();
        example::encode(&Example { label: 0, labels: Labels::NONE, targets: list.floats(), ..example }, &mut out);
        out
    };
    let mut data = TestData::of(&(0..count).map(payload).collect::<Vec<_>>(), 3, 3);
    data.manifest.classes.clear();
    (data.manifest.version, data.manifest.targets) = (4, ["half", "minus"].map(Target::new).into());
    data.manifest.write(&data.dir).unwrap();
    data
}

/// The samples of a batch, and their numbers.
type Batch = (Vec<u64>, Vec<f32>);

fn load(data: &TestData, format: PixelFormat, ops: &[&str], skip: bool) -> Result<Vec<Batch>, Error> {
    let order = Box::new(EvalOrder::new(data.shared().len(), 50, 0, 1));
    let options = Options { threads: 2, skip, ..Options::default() };
    let mut loader = Loader::start_as(format, data.shared(), data.pipeline(ops, SPEC), order, options)?;
    let mut all = Vec::new();
    while let Some(batch) = loader.next()? {
        assert!(batch.label_sets().is_none());
        all.push((batch.ids().to_vec(), batch.targets().unwrap().to_vec()));
    }
    Ok(all)
}

fn check(batches: &[(Vec<u64>, Vec<f32>)]) -> usize {
    let images = batches.iter().flat_map(|(ids, all)| ids.iter().copied().zip(all.chunks(2)));
    images.map(|(id, own)| assert_eq!(own, numbers(id), "{id}")).count()
}

#[test]
fn batches_of_every_form_have_all_numbers() {
    let data = data(53, |_, _| {});
    assert_eq!(data.split().unwrap().class_names(), ["half", "minus"]);
    assert_eq!(check(&load(&data, PixelFormat::Values, &["normalize"], false).unwrap()), 53);
    assert_eq!(check(&load(&data, PixelFormat::Bytes(Dtype::U8), &["normalize"], false).unwrap()), 53);
    let (labels, targets) = (Arc::new([0; 53]), (0..53).flat_map(numbers).collect());
    let kept = PixelFormat::CropRects { labels, label_sets: None, targets, spec: ImageSpec::new(8, 8, 3) };
    assert_eq!(check(&load(&data, kept, &["pad_crop(2)", "normalize"], false).unwrap()), 53);
    // Data sets with classes have no numbers.
    let one = TestData::noise(9, 1, SPEC);
    let mut loader = one.loader(&[], SPEC, EvalOrder::new(9, 4, 0, 1), Options::default());
    assert!(loader.next().unwrap().unwrap().targets().is_none());
}

#[test]
fn records_without_a_finite_number_for_each_target_are_named_or_left_out() {
    type Edit = fn(&mut Vec<f32>);
    let edits: [(Edit, &str); 4] = [
        (|all| all.truncate(1), "1"),
        (Vec::clear, "0"),
        (|all| all.push(3.0), "more"),
        (|all| all[1] = f32::NAN, "NaN"),
    ];
    for (edit, got) in edits {
        let data = data(100, |id, numbers| {
            if id % 30 == 11 {
                edit(numbers)
            }
        });
        let error = load(&data, PixelFormat::Values, &["normalize"], false).unwrap_err();
        assert!(matches!(record_fault(&error).2, Fault::Targets { expected: 2, .. }), "{error}");
        assert_mentions(&error.to_string(), &["`image/targets`", "2 finite numbers", &format!("got {got}")]);
        let some = load(&data, PixelFormat::Values, &["normalize"], true).unwrap();
        assert_eq!((some.len(), check(&some)), (2, 97), "each image keeps its numbers");
    }
}

#[test]
fn a_set_of_classes_refuses_records_with_numbers() {
    let mut data = data(20, |_, _| {});
    data.manifest.targets.clear();
    (data.manifest.version, data.manifest.classes) = (1, vec!["a".into()]);
    data.manifest.write(&data.dir).unwrap();
    assert!(matches!(record_fault(&data.complaint()).2, Fault::Labels { count: 0 }), "{}", data.complaint());
}
