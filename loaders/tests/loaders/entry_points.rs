//! Entry points in a record make training faster but do not change results: every list of transforms produces the same
//! bits with them.

use crate::common::{self, TestData};
use loaders::decode::{check_entry_points, entry_points};
use loaders::example::{self, Example, Format};
use loaders::transform::Scratch;
use loaders::{Fault, ImageSpec, Images, Pipeline};
use turbojpeg::Subsamp;

const LISTS: [&[&str]; 5] = [
    &["random_resized_crop(48)", "flip", "normalize"],
    &["random_resized_crop(16)", "vertical_flip", "normalize"],
    &["inception_crop(32)", "normalize"],
    &["resize(96)", "center_crop(64)", "normalize"],
    &["resize(300)", "random_crop(40)", "normalize"],
];

fn example<'a>(file: &'a [u8], entry_points: &'a [u8]) -> Example<'a> {
    Example { entry_points, ..Example::from_file(file, Format::Jpeg) }
}

/// Creates an image of noise. If the orientation is not 0, it is written to the EXIF data.
fn jpeg(height: usize, width: usize, subsampling: Subsamp, orientation: u8) -> Vec<u8> {
    let noise = |at: usize| ((at as u32).wrapping_mul(2_654_435_761) >> 25) as usize + at / width % 120;
    let pixels: Vec<u8> = (0..3 * height * width).map(|at| noise(at) as u8).collect();
    let file = common::jpeg(&pixels, height, width, 92, subsampling);
    if orientation == 0 { file } else { common::with_orientation(&file, orientation) }
}

fn pipelines() -> Vec<Pipeline> {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let pipeline = |list: &&[&str]| {
        let list: Vec<String> = list.iter().map(|op| op.to_string()).collect();
        Pipeline::new(&list, Images::Varied { channels: 3 }, &data.manifest, 1).unwrap()
    };
    LISTS.iter().map(pipeline).collect()
}

/// Returns the results of each list for an example in some epochs.
fn made(pipelines: &[Pipeline], example: &Example<'_>) -> Vec<Vec<u32>> {
    let mut scratch = Scratch::default();
    let mut run = |pipeline: &Pipeline, epoch| {
        let mut out = vec![f32::NAN; pipeline.output().values()];
        pipeline.run(example, 7, epoch, &mut scratch, &mut out).unwrap();
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    (0..12).flat_map(|epoch| pipelines.iter().map(|pipeline| run(pipeline, epoch)).collect::<Vec<_>>()).collect()
}

#[test]
fn entry_points_do_not_change_any_pixel() {
    let pipelines = pipelines();
    for subsampling in [Subsamp::Sub2x2, Subsamp::Sub2x1, Subsamp::None, Subsamp::Gray] {
        for orientation in 0..=8 {
            let file = jpeg(211, 290, subsampling, orientation);
            let points = entry_points(&file).unwrap();
            let with = example(&file, &points);
            check_entry_points(&with).unwrap();
            assert!(made(&pipelines, &with) == made(&pipelines, &example(&file, &[])), "{subsampling:?} {orientation}");
        }
    }
}

/// Entry points of another file and damaged entry points are not used. The image is decoded correctly.
#[test]
fn entry_points_of_another_file_are_ignored() {
    let (file, other) = (jpeg(211, 290, Subsamp::Sub2x2, 0), jpeg(211, 290, Subsamp::Sub2x2, 3));
    let (points, pipelines) = (entry_points(&other).unwrap(), pipelines());
    let wrong = example(&file, &points);
    assert!(made(&pipelines, &wrong) == made(&pipelines, &example(&file, &[])));
    let fault = check_entry_points(&wrong).unwrap_err();
    assert!(matches!(&fault, Fault::EntryPoints(problem) if problem.contains("another file")), "{fault}");
    assert!(fault.to_string().contains("--entry-points"), "{fault}");
}

#[test]
fn records_with_entry_points_round_trip() {
    let file = jpeg(120, 160, Subsamp::Sub2x2, 0);
    let points = entry_points(&file).unwrap();
    let mut payload = Vec::new();
    example::encode(&example(&file, &points), &mut payload);
    assert_eq!(example::parse(&payload).unwrap(), example(&file, &points));
    // Entry points with their key add less than 2 % of the file's size.
    let mut plain = Vec::new();
    example::encode(&example(&file, &[]), &mut plain);
    assert!(payload.len() > plain.len() && payload.len() - plain.len() < file.len() / 50);
}
