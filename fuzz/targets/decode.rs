//! Fuzzes the PNG and JPEG decoder. Verification must accept exactly the images that training can decode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loaders::decode::{self, Decoder};
use loaders::transform::{Pipeline, Scratch};
use loaders::{Example, Format, Images, Limits, Manifest};

/// A small limit, because the fuzzer runs many inputs.
const LIMITS: Limits = Limits::with_memory(32 << 20);

/// The memory of [`LIMITS`] plus 1 MiB that decoding takes for every image.
const MEMORY: usize = 33 << 20;

fuzz_target!(|data: &[u8]| {
    let (format, text, filename) = (Format::Jpeg, "", "");
    let (boxes, labels) = (Default::default(), Default::default());
    let example = Example {
        encoded: data,
        format,
        height: 0,
        width: 0,
        channels: 0,
        dtype: Default::default(),
        label: 0,
        labels,
        text,
        filename,
        boxes,
        entry_points: &[],
        targets: Default::default(),
    };
    let checked = trireme_fuzz::read(data.len(), MEMORY, || {
        let mut decoder = Decoder::new(LIMITS);
        let stored = decoder.open(&example)?;
        decoder.check(stored, &example)
    });
    let decoded = trireme_fuzz::read(data.len(), MEMORY, || {
        let mut decoder = Decoder::new(LIMITS);
        let spec = decoder.open(&example).map(|stored| stored.spec())?;
        decoder.decode_whole(&example, spec, &mut Vec::new()).map(<[u8]>::len)
    });
    assert_eq!(checked.is_ok(), decoded.is_ok(), "{checked:?} {decoded:?}");
    let manifest = Manifest {
        version: 1,
        classes: vec!["a".into()],
        mean: vec![0.5; 3],
        std: vec![0.5; 3],
        ..Manifest::default()
    };
    // decodes parts of the image, at full and at reduced size
    for list in [&["random_resized_crop(8)"][..], &["resize(9)", "center_crop(8)"]] {
        let list: Vec<String> = list.iter().map(|op| op.to_string()).collect();
        let pipeline = Pipeline::new(&list, Images::Varied { channels: 3 }, &manifest, 1).unwrap();
        let made = trireme_fuzz::read(data.len(), MEMORY, || {
            pipeline.run(&example, 0, 0, &mut Scratch::new(LIMITS), &mut [0.0; 192])
        });
        // decodes the same image with entry points, then with wrong entry points that have the right checksum
        if let Some(points) = decode::entry_points(data) {
            let with = Example { entry_points: &points, ..example };
            let (mut out, mut same) = ([0.0; 192], [0.0; 192]);
            let plain = pipeline.run(&example, 0, 0, &mut Scratch::new(LIMITS), &mut out);
            let by_points = pipeline.run(&with, 0, 0, &mut Scratch::new(LIMITS), &mut same);
            assert!(plain.is_err() || by_points.is_ok() && out.map(f32::to_bits) == same.map(f32::to_bits));
        }
        let mut wrong = data[data.len() - data.len() / 64..].to_vec();
        decode::fuzzing::seal_entry_points(&mut wrong, data);
        let with = Example { entry_points: &wrong, ..example };
        let _ = trireme_fuzz::read(data.len(), MEMORY, || {
            pipeline.run(&with, 0, 0, &mut Scratch::new(LIMITS), &mut [0.0; 192])
        });
        assert!(made.is_ok() || checked.is_err() || made.is_err_and(|fault| fault.to_string().contains("image of")));
    }
});
