//! Images mixed on the GPU are bit-identical to images mixed by the loader threads. Runs with mixing, with several labels
//! per image and with numbers as labels give the same results on any number of ranks, and they agree with the CPU.

use backend::cuda::Precision;
use backend::{Backend, CropRect, DeviceMemory, DrawKey, Input, PassInput, Queue};
use loaders::{Area, Dtype, ImageSpec, Mix};
use net::Shape;

use crate::recipe;
use support::blobs;
use support::gpu::{self, alone_with};
use support::images::Images;
use support::program::events;
use support::setting::Setting;

#[test]
fn bytes_and_kept_pictures_are_mixed_to_the_hosts_bits() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (shape, spec) = (Shape::image(3, 4, 5), ImageSpec::new(4, 5, 3));
    let tables: Vec<[f32; 256]> =
        (0..3).map(|c| std::array::from_fn(|b| (b as f32 / 255.0 - 0.3) / (0.2 + c as f32))).collect();
    for rows in [2, 3, 6] {
        let desc = cuda.input(rows, shape);
        let pixels: Vec<u8> = (0..rows * shape.elems()).map(|i| (i * 37 % 256) as u8).collect();
        // the expected images before mixing, computed on the host in NCHW
        let mut plain = vec![0.0; pixels.len()];
        for (i, &byte) in pixels.iter().enumerate() {
            let (row, p, c) = (i / shape.elems(), i / 3 % shape.plane(), i % 3);
            plain[(row * 3 + c) * shape.plane() + p] = tables[c][byte as usize];
        }
        let ids: Vec<u64> = (0..rows as u64).collect();
        let key = DrawKey { seed: 1, epoch: 0, ids: &ids };
        let feed = |images: Input<'_>| {
            let start =
                PassInput { images, images_again: false, key, loss: None, targets: None, running: &[], training: true };
            let mut to = cuda.alloc(desc.elems()).unwrap();
            cuda.begin(&start, &desc, &mut to).unwrap();
            cuda.download(&desc, &to).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert!(cuda.keep(&pixels, 4, 5).unwrap());
        let view = |picture| CropRect { picture, top: 0, left: 0, mirrored: 0 };
        let views: Vec<CropRect> = (0..rows as u32).map(view).collect();
        let area = Area { top: 1, bottom: 3, left: 2, right: 5 };
        let mixes = [(0.3, None), (0.7, Some(area))].map(|(share, area)| Some(Mix { share, area }));
        for mix in mixes.into_iter().chain([None]) {
            let mut want = plain.clone();
            mix.iter().for_each(|mix| mix.apply(&mut want, spec));
            let want: Vec<u32> = want.into_iter().map(f32::to_bits).collect();
            assert_eq!(feed(Input::Bytes { pixels: &pixels, tables: &tables, mix }), want, "{rows} rows, {mix:?}");
            assert_eq!(feed(Input::Kept { views: &views, tables: &tables, mix }), want, "{rows} kept, {mix:?}");
            // the same images as floats that need no change
            let stored: Vec<u8> = pixels
                .iter()
                .zip((0..3).cycle())
                .flat_map(|(&byte, c): (_, usize)| tables[c][byte as usize].to_le_bytes())
                .collect();
            let pairs = [[0.0, 1.0]; 3];
            let images = Input::Stored { pixels: &stored, dtype: Dtype::F32, pairs: &pairs, mix };
            assert_eq!(feed(images), want, "{rows} rows of floats, {mix:?}");
        }
    }
}

const STEPS: &[&str] = &["--share-gpu", "--max-steps", "8"];

#[test]
fn runs_with_mixed_images_keep_the_laws() {
    let keys = r#"
model = "resnet20"
epochs = 3
seed = 3
batch = 12
workers = 2
label_smoothing = 0.1
"#;
    let augment = r#""pad_crop(1)", "flip", "normalize""#;
    let recipe = recipe(keys, 0.01, augment, "[mix]\nmixup = 0.8\ncutmix = 1.0");
    let setting = Setting::new(&recipe, ImageSpec::new(8, 8, 3), [43, 16]);
    let train = |out: &str, ranks: usize, more: &[&str]| {
        gpu::train(&setting, out, ranks, &[STEPS, more].concat(), &[]).succeeded();
        setting.losses(out)
    };
    let exact = ["--set", "reduce.codec=exact"];
    let one = train("1", 1, &exact);
    assert_eq!(train("2", 2, &exact), one, "2 ranks");
    // pictures that stay on the device are mixed like pictures that arrive as bytes
    assert_eq!(train("kept", 1, &[&exact[..], &["--set", "loader.cache=device"]].concat()), one);
    // a run on one rank without a codec, which enqueues steps ahead, must agree with the CPU
    train("ahead", 1, &[]);
    setting.trained("host", 1, &["--device", "cpu", "--max-steps", "8"]);
    setting.assert_losses_near("ahead", "host", 2e-3);
}

/// Returns a recipe with a seed for which no input of a ReLU is so near 0 that rounding decides its sign. With other
/// seeds the gradients of GPU and CPU may differ by some thousandths.
fn labelled(more_keys: &str, base_lr: f64, train: &str, loss: &str) -> String {
    let keys = r#"
model = "resnet20"
epochs = 2
seed = 2
batch = 12
workers = 2
"#;
    let sections = format!("[mix]\nmixup = 0.4\nprob = 0.5\n\n[loss]\n{loss}\n");
    crate::recipe(&format!("{keys}{more_keys}"), base_lr, train, &sections)
}

/// Trains on one rank, on two ranks, and with pictures that stay on the GPU, and checks that losses and results are equal.
/// Then trains on the CPU and checks that the losses are nearly equal. `result` reads the results of a run from its
/// output folder. Returns the results on the GPU, and the output folder of the run on the CPU.
fn assert_alike<R: PartialEq + std::fmt::Debug>(setting: &Setting, result: impl Fn(&str) -> R) -> (R, String) {
    let train = |out: &str, ranks: usize, more: &[&str]| {
        let more = [&["--share-gpu", "--set", "reduce.codec=exact"], more].concat();
        gpu::train(setting, out, ranks, &more, &[]).succeeded();
        (setting.losses(out), result(&setting.out(out)))
    };
    let one = train("1", 1, &[]);
    assert_eq!(train("2", 2, &[]), one, "2 ranks");
    // the labels must also belong to the right pictures if the pictures stay on the device
    assert_eq!(train("kept", 1, &["--set", "loader.cache=device"]), one);
    let host = setting.trained("host", 1, &["--device", "cpu"]);
    setting.assert_losses_near("1", "host", 2e-3);
    (one.1, host)
}

fn hits(out: &str) -> Vec<f64> {
    events(out, "step").iter().map(|line| line["top1"].as_f64().unwrap()).collect()
}

#[test]
fn several_labels_are_learnt_on_a_gpu_as_on_the_processor() {
    let recipe = labelled("label_smoothing = 0.1", 0.05, r#""pad_crop(1)", "flip", "normalize""#, "kind = \"bce\"");
    let setting = Setting::with(&recipe, |dir| Images::several(dir, ImageSpec::new(8, 8, 3), 43, 16));
    let ((own, map), host) = assert_alike(&setting, |out| {
        let eval = events(out, "eval").pop().expect("a score");
        (hits(out), eval["map"].as_f64().unwrap())
    });
    assert!(own.iter().any(|hits| *hits > 0.0) && map > 0.0, "{own:?}, {map}");
    let differ = own.iter().zip(hits(&host)).filter(|(a, b)| (*a - b).abs() > 1e-9).count();
    assert!(differ <= 1, "hits on the GPU {own:?}, on the CPU {:?}", hits(&host));
}

#[test]
fn numbers_are_learnt_on_a_gpu_as_on_the_processor() {
    let recipe = labelled("", 0.01, r#""pad_crop(1)", "normalize""#, "kind = \"huber\"\ndelta = 0.8");
    let setting = Setting::with(&recipe, |dir| blobs::images(dir, ImageSpec::new(8, 8, 1), [43, 16]));
    assert_alike(&setting, |out| {
        let eval = events(out, "eval").pop().expect("a score");
        (eval["rmse"].as_f64().unwrap(), eval["targets"].clone())
    });
}
