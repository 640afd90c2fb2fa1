//! Tests that files written by libhdf5 are read back, and that forged files with a valid checksum give an error. There
//! must be no panic, no hang, no memory beyond the file's size, and no access to another file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdf5_metno as hdf5;
use hdf5_metno::file::LibraryVersion;
use loaders::random::philox4x32;

use super::super::error::Error;
use super::super::keras::LayerKind;
use super::super::model::{LayerWeights, ModelFile};
use super::super::state_file::{Progress, StateFile};
use super::super::{checksum, h5::H5File};
use super::group::{self, Group};
use crate::temporary::Temporary;

fn layer(name: String) -> LayerWeights {
    let tensor = |name: &str, shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        (name.to_string(), shape.to_vec(), (0..count).map(|i| i as f32).collect())
    };
    LayerWeights {
        name,
        kind: LayerKind::named("linear").unwrap(),
        tensors: vec![tensor("weight", &[2, 3]), tensor("bias", &[2])],
    }
}

/// Creates a model. With many layers and classes, its file has B-trees of two levels and huge objects in heaps.
fn model(layers: usize, classes: usize) -> ModelFile {
    ModelFile {
        network: "many".into(),
        definition: "many nodes\n".repeat(9000),
        classes: (0..classes).map(|i| format!("class {i}")).collect(),
        recipe: "model = \"many\"\n".into(),
        layers: (0..layers).map(|i| layer(format!("block{i}.fc"))).collect(),
        ema: Vec::new(),
        ..ModelFile::sample()
    }
}

fn state(layers: usize, classes: usize) -> StateFile {
    let model = model(layers, classes);
    let tensors = model.layers.iter().flat_map(|l| {
        l.tensors.iter().map(|(field, shape, values)| (format!("{}.{field}", l.name), shape.clone(), values.clone()))
    });
    let slots = vec![("momentum_buffer".to_string(), tensors.collect())];
    StateFile { model, slots, residuals: Vec::new(), progress: Progress { step: 2, ..Progress::default() } }
}

/// Reads a file as a model and as a checkpoint.
fn read(path: &std::path::Path) -> Result<(), Error> {
    let begin = Instant::now();
    let model = ModelFile::read(path).map(drop);
    let state = StateFile::read(path).map(drop);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?} to read a small file", begin.elapsed());
    model.and(state)
}

#[test]
fn state_files_round_trip_with_lists_of_any_length() {
    let file = Temporary::new("reader.h5");
    for (layers, classes) in [(0, 0), (1, 1), (8, 255), (9, 256), (23, 257), (90, 5_000), (3_000, 1)] {
        let state = state(layers, classes);
        state.write(&file.0).unwrap();
        assert_eq!(StateFile::read(&file.0).unwrap(), state, "{layers} layers, {classes} classes");
        state.model.write(&file.0).unwrap();
        assert_eq!(ModelFile::read(&file.0).unwrap(), state.model, "{layers} layers, {classes} classes");
    }
}

/// Returns random numbers for try `number`.
fn draws(number: u32) -> [usize; 4] {
    philox4x32([number, 0, 0, 0], [13, 1]).map(|word| word as usize)
}

/// Changes some bytes as an attacker would: huge lengths, addresses of other objects, missing ends.
fn mutate(bytes: &mut Vec<u8>, number: u32) {
    let [way, first, second, value] = draws(number);
    let end = bytes.len() - 24;
    let (first, second) = (8 + first % (end - 8), 8 + second % (end - 8));
    let huge = [u64::MAX, 1 << 62, 1 << 40, end as u64, end as u64 - 1, 0x7fff_ffff, 0, 8];
    let addresses = |bytes: &[u8]| -> Vec<usize> {
        let is = |at: &usize| (40..end as u64).contains(&u64::from_le_bytes(bytes[*at..at + 8].try_into().unwrap()));
        (8..end).filter(is).collect()
    };
    match way % 6 {
        0 => bytes[first] ^= value as u8 | 1,
        1 => bytes[first..first + 8].copy_from_slice(&huge[value % huge.len()].to_le_bytes()),
        2 => bytes[first..first + 2 + 2 * (value % 2)].fill(0xff),
        3 => bytes.truncate(first.max(256)),
        4 => (0..8).for_each(|i| bytes.swap(first + i, second + i)),
        _ => {
            let places = addresses(bytes);
            if places.is_empty() {
                return;
            }
            let (to, from) = (places[first % places.len()], places[second % places.len()]);
            bytes.copy_within(from..from + 8, to);
        }
    }
}

/// The checksum is valid in every try, so that the parser is tested.
#[test]
fn forged_files_are_refused() {
    let file = Temporary::new("reader.h5");
    let (mut refused, mut tries) = (0, 0);
    let write = |n: usize, path: &std::path::Path| match n {
        0 => model(3, 300).write(path).unwrap(),
        1 => model(60, 4).write(path).unwrap(),
        2 => drop(state(4, 3).write(path).unwrap()),
        _ => drop(state(50, 300).write(path).unwrap()),
    };
    for n in 0..4 {
        write(n, &file.0);
        let whole = std::fs::read(&file.0).unwrap();
        for number in 0..400 {
            let mut bytes = whole.clone();
            // Up to three changes at once.
            (0..1 + number % 3).for_each(|i| mutate(&mut bytes, 4_000 * n as u32 + 10 * number + i));
            checksum::update_checksum(&mut bytes, &file.0);
            tries += 1;
            if let Err(error) = read(&file.0) {
                refused += 1;
                assert!(!matches!(error, Error::Damaged { .. } | Error::Truncated { .. }), "{error}");
            }
        }
    }
    // If fewer files were refused, most changes would not affect what is parsed.
    assert!(refused > tries / 2, "{refused} of {tries} refused");
}

/// Replaces the number at each position by one that is too large or too small. Uses two threads, because this is the
/// slowest test.
#[test]
fn extreme_numbers_at_any_position_do_not_panic() {
    let file = Temporary::new("reader.h5");
    state(2, 2).write(&file.0).unwrap();
    let whole = std::fs::read(&file.0).unwrap();
    let places: Vec<usize> = (8..whole.len() - 24).step_by(3).collect();
    let try_all = |places: &[usize]| {
        let file = Temporary::new("reader.h5");
        for (at, value) in places.iter().flat_map(|at| [u64::MAX - 1, whole.len() as u64 - 20].map(|v| (*at, v))) {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            checksum::update_checksum(&mut bytes, &file.0);
            let _ = read(&file.0);
        }
    };
    let (one, other) = places.split_at(places.len() / 2);
    std::thread::scope(|scope| [one, other].map(|part| scope.spawn(|| try_all(part))).map(drop));
}

/// Creates a file as another program would, but with a valid checksum at the end.
fn foreign(low: LibraryVersion, fill: impl FnOnce(&hdf5::File) -> hdf5::Result<()>) -> Result<Group, Error> {
    let file = Temporary::new("reader.h5");
    let high = LibraryVersion::latest();
    let mut options = hdf5::File::with_options();
    options.with_fapl(|access| access.libver_bounds(low, high)).with_fcpl(|create| create.obj_track_times(false));
    let made = options.create(&file.0).unwrap();
    fill(&made).unwrap();
    made.close().unwrap();
    checksum::append(&file.0).unwrap();
    group::open(checksum::open(&file.0).unwrap(), &file.0)
}

/// Checks that reading failed because `object` has a layout that trireme does not write. The description must contain
/// `parts`.
#[track_caller]
fn refused<T>(result: Result<T, Error>, object: &str, parts: &[&str]) {
    let error = result.err().expect("was read");
    let Error::Layout { path, object: named, text, .. } = &error else { panic!("{error}") };
    assert!(path.extension().is_some_and(|ending| ending == "h5"), "{error}");
    assert_eq!(named, object, "{error}");
    parts.iter().for_each(|part| assert!(text.contains(part), "expected {part:?} in: {error}"));
}

#[test]
fn external_storage_is_refused() {
    let values = [0f32; 4];
    let root = foreign(LibraryVersion::V18, |file| {
        let array = file.new_dataset::<f32>().shape(4).obj_track_times(false);
        array.with_dcpl(|p| p.external("/etc/passwd", 0, 16)).create("array").map(drop)?;
        file.new_dataset::<f32>().shape(4).obj_track_times(false).create("own")?.write(&values)
    });
    let root = root.unwrap();
    refused(root.array("array"), "/array", &["external storage"]);
    assert_eq!(root.array("own").unwrap(), (vec![4], vec![0.0; 4]));
}

#[test]
fn layouts_that_trireme_does_not_write_are_refused() {
    let made = |make: &dyn Fn(&hdf5::File) -> hdf5::Result<()>| foreign(LibraryVersion::V18, make).unwrap();
    let chunked =
        made(&|file| file.new_dataset::<f32>().shape(64).chunk(8).obj_track_times(false).create("a").map(drop));
    refused(chunked.array("a"), "/a", &["chunked storage"]);
    let compact = made(&|file| {
        file.new_dataset::<f32>()
            .shape(4)
            .obj_track_times(false)
            .layout(hdf5::dataset::Layout::Compact)
            .create("a")
            .map(drop)
    });
    refused(compact.array("a"), "/a", &["compact storage"]);
    let wide = made(&|file| file.new_dataset::<f64>().shape(4).obj_track_times(false).create("a")?.write(&[0f64; 4]));
    refused(wide.array("a"), "/a", &["F32", "F64"]);
    let odd = made(&|file| file.new_dataset::<i16>().shape(4).obj_track_times(false).create("a")?.write(&[0i16; 4]));
    refused(odd.array("a"), "/a", &["value type"]);
    let empty = made(&|file| file.new_dataset::<f32>().shape(1 << 40).obj_track_times(false).create("a").map(drop));
    refused(empty.array("a"), "/a", &["undefined"]);
    let soft = foreign(LibraryVersion::V18, |file| file.link_soft("/elsewhere", "a"));
    refused(soft, "/", &["link", "another file"]);
    let timed = foreign(LibraryVersion::V18, |file| file.create_group("a").map(drop));
    refused(timed.and_then(|root| root.open("a")), "/a/", &["flags", "0 to 3"]);
}

#[test]
fn other_superblock_versions_are_refused_by_number() {
    refused(foreign(LibraryVersion::Earliest, |_| Ok(())), "/", &["superblock version", "expected 2", "got 0"]);
    refused(foreign(LibraryVersion::V110, |_| Ok(())), "/", &["superblock version", "expected 2", "got 3"]);
}

/// Finds the references to strings of this length. A reference consists of length, collection address and number.
fn references(bytes: &[u8], length: u32) -> Vec<usize> {
    let is = |at: &usize| {
        let address = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().unwrap()) as usize;
        bytes[*at..at + 4] == length.to_le_bytes()
            && bytes.get(address..).is_some_and(|there| there.starts_with(b"GCOL"))
    };
    (0..bytes.len() - 16).filter(is).collect()
}

/// Many names for one long string would let a small file become a large model.
#[test]
fn values_cannot_exceed_the_file_size() {
    let file = Temporary::new("reader.h5");
    let mut model = model(1, 0);
    model.recipe = "x".repeat(50_000);
    model.classes = (100..600).map(|i| format!("class no {i}")).collect();
    model.write(&file.0).unwrap();
    let mut bytes = std::fs::read(&file.0).unwrap();
    let (recipe, classes) = (references(&bytes, 50_000), references(&bytes, 12));
    assert_eq!((recipe.len(), classes.len()), (1, 500));
    classes.iter().for_each(|&at| bytes.copy_within(recipe[0]..recipe[0] + 16, at));
    checksum::update_checksum(&mut bytes, &file.0);
    refused(ModelFile::read(&file.0), "/trireme/classes", &["overlap"]);
}

/// Each attribute needs eight times its size in memory, so the number of attributes is limited.
#[test]
fn groups_have_a_limited_number_of_attributes() {
    let message = |kind: u8, content: &[u8]| {
        let length = (content.len() as u16).to_le_bytes();
        [&[kind, length[0], length[1], 0], content].concat()
    };
    let attribute = |number: u32| {
        let number = [3, 0, 7, 0, 12, 0, 4, 0, 1].into_iter().chain(format!("{number:06}\0").into_bytes());
        let datatype = [0x10, 0, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0];
        message(0x0c, &number.chain(datatype).chain([2, 0, 0, 0]).chain([0; 4]).collect::<Vec<u8>>())
    };
    let read = |count: u32| {
        let mut messages = message(0x02, &[&[0, 0][..], &[0xff; 16]].concat());
        (0..count).for_each(|number| messages.extend(attribute(number)));
        let header = [b"OHDR\x02\x02", &(messages.len() as u32).to_le_bytes()[..], &messages, &[0; 4]].concat();
        let words = [0, u64::MAX, 48 + header.len() as u64, 48].map(u64::to_le_bytes).concat();
        let file = Temporary::new("reader.h5");
        std::fs::write(&file.0, [b"\x89HDF\r\n\x1a\n\x02\x08\x08\0", &words[..], &[0; 4], &header].concat()).unwrap();
        checksum::append(&file.0).unwrap();
        group::open(checksum::open(&file.0).unwrap(), &file.0)
    };
    assert_eq!(read(1000).unwrap().attribute_names().count(), 1000);
    refused(read(1024), "/", &["more than 1024"]);
}

#[test]
fn paths_have_a_limited_depth() {
    let file = Temporary::new("reader.h5");
    let made = H5File::create(&file.0).unwrap();
    made.root().unwrap().create("a").unwrap();
    made.close().unwrap();
    checksum::append(&file.0).unwrap();
    let root = group::open(checksum::open(&file.0).unwrap(), &file.0).unwrap();
    assert!(root.open("a").is_ok() && root.has("a") && !root.has("b"));
    let contradiction = |path: &str| match root.open(path) {
        Err(Error::Content { text, .. }) => text,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("was read"),
    };
    let (missing, deep) = (contradiction("a/b"), contradiction(&"a/".repeat(100_000)));
    assert!(missing.contains("nothing at /a/b"), "{missing}");
    assert!(deep.contains("8 names"), "{deep}");
}

/// Returns the folder with the fuzzer's seeds. They have no checksum, because the fuzz target appends it to each input.
fn seeds() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/h5")
}

#[test]
fn fuzz_seeds_are_read_and_findings_are_refused() {
    let file = Temporary::new("reader.h5");
    let (mut whole, mut found) = (0, 0);
    for entry in std::fs::read_dir(seeds()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, &file.0).unwrap();
        checksum::append(&file.0).unwrap();
        if path.file_name().unwrap().to_string_lossy().starts_with("found-") {
            assert!(ModelFile::read(&file.0).is_err() && StateFile::read(&file.0).is_err(), "{}", path.display());
            found += 1;
        } else {
            ModelFile::read(&file.0).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            whole += 1;
        }
    }
    assert!(whole >= 4, "{whole} files that can be read, {found} that cannot");
}

/// Run by hand if the layout has changed: cargo test -p formats --lib -- --ignored seeds_are_written
#[test]
#[ignore = "writes fuzz/seeds/h5"]
fn seeds_are_written() {
    let write = |name: &str, write: &dyn Fn(&std::path::Path)| {
        let file = Temporary::new("reader.h5");
        write(&file.0);
        let bytes = std::fs::read(&file.0).unwrap();
        std::fs::create_dir_all(seeds()).unwrap();
        std::fs::write(seeds().join(name), &bytes[..bytes.len() - checksum::LENGTH as usize]).unwrap();
    };
    for (layers, classes) in [(1, 1), (9, 256)] {
        write(&format!("model-{layers}"), &|path| model(layers, classes).write(path).unwrap());
    }
    for (layers, classes) in [(1, 1), (23, 257)] {
        write(&format!("state-{layers}"), &|path| {
            state(layers, classes).write(path).unwrap();
        });
    }
}

/// Run this by hand on an idle machine: cargo test --release -p formats --lib -- --ignored large_files --nocapture
#[test]
#[ignore = "measures"]
fn large_files_are_read_about_as_fast_as_bytes() {
    let file = Temporary::new("reader.h5");
    let mut state = state(1, 10);
    let many = |i: usize| (format!("block0.fc.{i}"), vec![1 << 20], vec![1.5f32; 1 << 20]);
    state.slots = vec![("momentum_buffer".into(), (0..50).map(many).collect())];
    state.write(&file.0).unwrap();
    let begin = Instant::now();
    let bytes = std::fs::read(&file.0).unwrap().len();
    let plain = begin.elapsed();
    let begin = Instant::now();
    drop(checksum::open(&file.0).unwrap());
    let checked = begin.elapsed();
    let begin = Instant::now();
    StateFile::read(&file.0).unwrap();
    let whole = begin.elapsed();
    println!("{} MB: bytes alone {plain:?}, checksum {checked:?}, all of it {whole:?}", bytes >> 20);
    assert!(whole < 8 * plain.max(Duration::from_millis(50)), "{whole:?}, bytes alone {plain:?}");
}
