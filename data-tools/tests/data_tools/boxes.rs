//! Tests boxes of objects in pictures with an EXIF orientation. A box must match the object in every form in which the
//! file is stored.

use crate::common::Temp;
use crate::common::tiff::{long, one_strip, short, tags};
use data_tools::{ConvertOptions, Error, Sample, Source, SourceInfo, SourceSplit, convert_source};
use loaders::decode::ExifOrientation;
use loaders::example::BoundingBox;
use loaders::{Dataset, Format, decode};
use turbojpeg::{Image, PixelFormat, Subsamp};

const HEIGHT: usize = 40;
const WIDTH: usize = 80;
/// Position of the object in the stored image.
const OBJECT: BoundingBox = BoundingBox { ymin: 0.1, xmin: 0.5, ymax: 0.4, xmax: 0.75 };

/// Returns the stored image: black with a white object.
fn pixels() -> Vec<u8> {
    let inside = |at: usize, side: usize, from: f32, to: f32| {
        let at = (at as f32 + 0.5) / side as f32;
        at > from && at < to
    };
    let value = |y, x| match inside(y, HEIGHT, OBJECT.ymin, OBJECT.ymax) && inside(x, WIDTH, OBJECT.xmin, OBJECT.xmax) {
        true => 255,
        false => 0,
    };
    (0..HEIGHT).flat_map(|y| (0..WIDTH).flat_map(move |x| [value(y, x); 3])).collect()
}

/// Builds a JPEG with this EXIF orientation. The EXIF data is a little-endian TIFF with one entry.
fn jpeg(orientation: u8) -> Vec<u8> {
    let pixels = pixels();
    let image = Image { pixels: &pixels[..], width: WIDTH, pitch: 3 * WIDTH, height: HEIGHT, format: PixelFormat::RGB };
    let file = turbojpeg::compress(image, 95, Subsamp::Sub2x2).unwrap();
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&file[..2], &[0xff, 0xe1], &length, &exif, &file[2..]].concat()
}

/// Builds an uncompressed grey TIFF with this orientation.
fn tiff(orientation: u8) -> Vec<u8> {
    let (height, width) = (HEIGHT as u32, WIDTH as u32);
    let grey: Vec<u8> = pixels().into_iter().step_by(3).collect();
    one_strip(&tags(height, width, &[8], [(274, short(orientation.into())), (278, long(height))]), &grey)
}

/// A source that contains this image twice.
struct Pictures {
    file: Vec<u8>,
    info: SourceInfo,
}

impl Source for Pictures {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn sample(&self, _: usize, _: u64, sample: &mut Sample) -> Result<(), Error> {
        sample.encoded.clone_from(&self.file);
        (sample.format, sample.height, sample.width, sample.channels) = (Format::Jpeg, 0, 0, 0);
        sample.filename = "picture".into();
        sample.boxes.set(&[OBJECT]);
        Ok(())
    }
}

/// Converts the file. In the upright image, the box of its record must contain exactly the white pixels.
#[track_caller]
fn check(file: Vec<u8>, options: ConvertOptions, keeps_orientation: bool) {
    let temp = Temp::new();
    let splits = vec![SourceSplit { name: "train".into(), len: 2 }];
    let source =
        Pictures { file, info: SourceInfo { splits, classes: vec!["object".into()], ..SourceInfo::default() } };
    let options = ConvertOptions { shards: 1, jobs: 1, progress: false, ..options };
    convert_source(&source, &temp.path("out"), &options).unwrap();
    let split = Dataset::open(temp.path("out")).unwrap().split("train").unwrap();
    let (mut copy, mut scratch) = (Vec::new(), Vec::new());
    let (example, _) = split.record(1, &mut copy).unwrap();
    let mut decoder = decode::Decoder::default();
    let turn = decoder.open(&example).unwrap().turn();
    assert_eq!(!turn.is_none(), keeps_orientation);
    let spec = decode::spec(&example).unwrap();
    let pixels = decode::decode(&example, spec, &mut scratch).unwrap();
    let found = example.boxes.iter().map(|stored| turn.turn_box(stored)).collect::<Vec<_>>();
    let [BoundingBox { ymin, xmin, ymax, xmax }] = found[..] else { panic!("{found:?}") };
    let (height, width, channels) = (spec.height as usize, spec.width as usize, spec.channels as usize);
    for y in 0..height {
        for x in 0..width {
            let (at, across) = ((y as f32 + 0.5) / height as f32, (x as f32 + 0.5) / width as f32);
            let within = |margin: f32| {
                at > ymin - margin && at < ymax + margin && across > xmin - margin && across < xmax + margin
            };
            let value = pixels[(y * width + x) * channels];
            assert!(value > 180 || !within(-0.1), "{value} at {y}, {x} in {found:?}");
            assert!(value < 80 || within(0.1), "{value} at {y}, {x} beside {found:?}");
        }
    }
}

#[test]
fn boxes_are_turned_with_the_pixels() {
    let plain = ConvertOptions::default;
    for orientation in 1..=8 {
        let turned = orientation > 1;
        check(jpeg(orientation), plain(), turned);
        check(jpeg(orientation), ConvertOptions { resize: Some(20), ..plain() }, false);
        check(jpeg(orientation), ConvertOptions { raw: true, ..plain() }, false);
        check(jpeg(orientation), ConvertOptions { quality: Some(95), ..plain() }, false);
        for options in [plain(), ConvertOptions { raw: true, resize: Some(20), ..plain() }] {
            check(tiff(orientation), options, false);
        }
    }
    assert!(
        ExifOrientation::from_number(1).is_none()
            && ExifOrientation::from_number(0).is_none()
            && !ExifOrientation::from_number(6).is_none()
    );
}
