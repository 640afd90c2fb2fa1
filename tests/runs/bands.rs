//! Tests the real binary on images with more than three bands and with 16-bit or float values. The result of a run does
//! not depend on the number of ranks or on a stop. The network can use information that is only in a single band or in
//! the lowest bits of the values. A model refuses data sets that do not match its training data.

use loaders::{Draws, Dtype, ImageSpec, Reading};

use support::bands::{At, images, stored};
use support::program::{events, run};
use support::setting::Setting;
use support::weights::model;

use crate::evaluation::evaluation_file;
use crate::multi_label::assert_import_keeps_predictions;

const RECIPE: &str = r#"
epochs = 4
seed = 3
batch = 20
workers = 3
optimizer.momentum = 0.9
augment.train = ["normalize"]
augment.eval = ["normalize"]
schedule.base_lr = 0.01
schedule.reference_batch = 20
reduce.codec = "exact"
"#;

const MULTISPECTRAL: ImageSpec = ImageSpec::new(28, 28, 13);

/// Returns true in the half of the image that identifies the label: the left half for label 0, the right half for label
/// 1.
fn shows(at: At) -> bool {
    (at.x < 14) == (at.label == 0)
}

/// Returns noise for every band. In band 9, the half of the image that identifies the label is brighter.
fn band_nine(at: At, draws: &mut Draws) -> f64 {
    let noise = 2000.0 + f64::from(draws.below(800));
    noise + if at.band == 9 && shows(at) { 600.0 } else { 0.0 }
}

fn top1(out: &str) -> f64 {
    events(out, "eval").last().expect("an evaluation")["top1"].as_f64().expect("a score")
}

#[test]
fn ranks_and_stops_change_no_bit() {
    let recipe = RECIPE.replace(
        r#"train = ["normalize"]"#,
        r#"train = ["pad_crop(2)", "flip", "brightness(20)", "normalize", "cutout(6)"]"#,
    );
    for (spec, dtype) in [(MULTISPECTRAL, Dtype::U16), (ImageSpec::new(28, 28, 4), Dtype::F32)] {
        let value = |at: At, draws: &mut Draws| band_nine(at, draws) * if dtype == Dtype::F32 { 1e-3 } else { 1.0 };
        let setting = Setting::with(&recipe, |dir| images(dir, (spec, dtype), [75, 31], value));
        println!("{dtype}");
        let one = setting.assert_ranks_change_nothing(&[2, 3], &["--max-steps", "10"]);
        setting.trained("stopped", 2, &["--max-steps", "6"]);
        setting.resumed("stopped", 3, &["--max-steps", "10"]);
        setting.assert_same_bits("stopped", "1");
        let model = model(&one);
        assert_eq!(
            (model.bands, model.input),
            (setting.images.manifest.bands.clone(), [spec.channels as usize, 28, 28])
        );
    }
}

#[test]
fn what_only_band_nine_shows_is_learned() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [400, 200], band_nine));
    let all = setting.trained("all", 0, &["--set", "epochs=1"]);
    assert!(top1(&all) >= 0.99, "{}", top1(&all));
    let list = r#"["select_bands(B1, B2, B3)", "normalize"]"#;
    let [train, eval] = ["train", "eval"].map(|key| format!("augment.{key}={list}"));
    let cut = setting.trained("rgb", 0, &["--set", &train, "--set", &eval, "--set", "epochs=1"]);
    assert!((0.35..0.65).contains(&top1(&cut)), "{}", top1(&cut));
    // the model stores which bands it uses, so eval computes the score of the training run
    for (out, expected) in [(&all, top1(&all)), (&cut, top1(&cut))] {
        let model = format!("{out}/model.h5");
        let score = run(0, &["eval", &model, "--data", &setting.data, "--threads", "1", "--json"]).succeeded().json();
        assert_eq!(score["top1"], expected);
    }
}

#[test]
fn what_only_the_low_bits_show_is_learned() {
    let spec = ImageSpec::new(28, 28, 1);
    let value = |at: At, draws: &mut Draws| f64::from(0x1200 + draws.below(96)) + if shows(at) { 100.0 } else { 0.0 };
    let setting = Setting::with(RECIPE, |dir| images(dir, (spec, Dtype::U16), [400, 200], value));
    let out = setting.trained("16 bits", 0, &[]);
    assert!(top1(&out) >= 0.99, "{}", top1(&out));
    let cut = |at: At, draws: &mut Draws| f64::from(value(at, draws) as u16 >> 8);
    let recipe = RECIPE.replace(r#"["normalize"]"#, r#"["normalize(0.5, 0.25)"]"#);
    let setting = Setting::with(&recipe, |dir| images(dir, (spec, Dtype::U8), [400, 200], cut));
    let out = setting.trained("8 bits", 0, &[]);
    assert!((0.35..0.65).contains(&top1(&out)), "{}", top1(&out));
}

#[test]
fn other_data_sets_and_transforms_are_refused() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [60, 20], band_nine));
    let list = r#"augment.train=["equalize", "normalize"]"#;
    let refused = setting.train("equalize", 0, &["--set", list]);
    refused.failed(2, &["equalize", "uint16 with 13", "clip_percentile(1, 99)"]);
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    let model = format!("{out}/model.h5");
    let table = setting.folder.at("table.csv");
    let uses = |data: &str| {
        let eval = run(0, &["eval", &model, "--data", data, "--threads", "1"]);
        [eval, run(0, &["predict", &model, data, "--out", &table, "--threads", "1"])]
    };
    let refused = |data: &str, parts: &[&str]| uses(data).into_iter().for_each(|ended| drop(ended.failed(1, parts)));
    let signed = setting.folder.path().join("signed");
    images(&signed, (MULTISPECTRAL, Dtype::I16), [20, 20], band_nine);
    refused(&signed.display().to_string(), &["images of uint16", "are int16"]);
    let fewer = setting.folder.path().join("fewer");
    images(&fewer, (ImageSpec::new(28, 28, 4), Dtype::U16), [20, 20], band_nine);
    refused(&fewer.display().to_string(), &["images of 28x28x13", "images of 28x28x4"]);
    let larger = setting.folder.path().join("larger");
    images(&larger, (ImageSpec::new(32, 32, 13), Dtype::U16), [20, 20], band_nine);
    refused(&larger.display().to_string(), &["images of 28x28x13", "images of 32x32x13"]);
    let renamed = setting.described("renamed", |manifest| manifest.bands.names[3] = "near infrared".into());
    refused(&renamed, &["band 4 is \"B4\"", "\"near infrared\""]);
    let unnamed = setting.described("unnamed", |manifest| manifest.bands.names.clear());
    for ended in uses(&unnamed) {
        ended.succeeded().says(&["note: ", "no band names"]);
    }
    let fewer = setting.described("twelve", |manifest| {
        let bands = &mut manifest.bands;
        bands.channels = Some(12);
        bands.names.truncate(12);
        let lists = [&mut bands.min, &mut bands.max, &mut manifest.mean, &mut manifest.std];
        lists.into_iter().chain(bands.percentiles.values_mut()).for_each(|list| list.truncate(12));
    });
    setting
        .train("other bands", 0, &["--data", &fewer])
        .failed(2, &["images have 13 channels", "dataset.json says 12"]);
    // The error names a record if its type differs from dataset.json.
    let wrong = setting.described("wrong", |manifest| manifest.bands.dtype = Dtype::I16);
    let refused = setting.train("other type", 0, &["--data", &wrong]);
    refused.failed(1, &["train-0000", "record ", "of uint16 values", "expected int16"]);
}

/// Writes an image to an array file and returns the path.
fn array(setting: &Setting, name: &str, label: u32, bands: u32) -> String {
    let mut draws = Draws::new(9, label.into(), 0, 0);
    let places = (0..28).flat_map(|y| (0..28).flat_map(move |x| (0..bands).map(move |band| At { y, x, band, label })));
    let values: Vec<u8> = places.flat_map(|at| stored(Dtype::U16, band_nine(at, &mut draws))).collect();
    npy(setting, name, ("<u2", bands), &values)
}

/// Writes the values of an image of 28x28 pixels to an array file and returns the path.
fn npy(setting: &Setting, name: &str, (descr, bands): (&str, u32), values: &[u8]) -> String {
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (28, 28, {bands}), }}");
    file.extend(format!("{head:<117}\n").into_bytes());
    file.extend(values);
    setting.folder.write(name, file)
}

/// Writes a TIFF with a page for each label: 28x28 pixels with 13 interleaved bands of 16 bits in one strip. A page with
/// `None` is a smaller copy. Returns the path.
fn stack(setting: &Setting, name: &str, labels: &[Option<u32>]) -> String {
    let mut file = b"II*\0\0\0\0\0".to_vec();
    let mut link = 4;
    for label in labels {
        let strip = file.len() as u32;
        let (mut draws, own) = (Draws::new(9, label.unwrap_or(7).into(), 0, 0), label.unwrap_or(0));
        let places = (0..28).flat_map(|y| (0..28).flat_map(move |x| (0..13).map(move |band| (y, x, band))));
        places.for_each(|(y, x, band)| {
            file.extend(stored(Dtype::U16, band_nine(At { y, x, band, label: own }, &mut draws)));
        });
        let bits = file.len() as u32;
        file.extend([16u16; 13].iter().flat_map(|bits| bits.to_le_bytes()));
        file.extend([0u16; 13].iter().flat_map(|kind| kind.to_le_bytes()));
        let directory = file.len() as u32;
        file.splice(link..link + 4, directory.to_le_bytes());
        let bytes = bits - strip;
        let entries: [(u16, u16, u32, u32); 11] = [
            (254, 4, 1, u32::from(label.is_none())),
            (256, 4, 1, 28),
            (257, 4, 1, 28),
            (258, 3, 13, bits),
            (259, 3, 1, 1),
            (262, 3, 1, 1),
            (273, 4, 1, strip),
            (277, 3, 1, 13),
            (278, 4, 1, 28),
            (279, 4, 1, bytes),
            (338, 3, 12, bits + 26),
        ];
        file.extend((entries.len() as u16).to_le_bytes());
        for (tag, kind, count, value) in entries {
            file.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
            file.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
        }
        link = file.len();
        file.extend([0; 4]);
    }
    setting.folder.write(name, file)
}

/// `--pages` predicts each page of a TIFF. The table does not depend on the number of ranks.
#[test]
fn pages_are_predicted_one_by_one() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [200, 20], band_nine));
    let read = setting.described("read", |manifest| manifest.bands.reading = Some(Reading::default()));
    let out = setting.trained("out", 0, &["--data", &read, "--set", "epochs=2"]);
    let labels: Vec<Option<u32>> = (0..9).map(|page| if page == 4 { None } else { Some(page % 2) }).collect();
    let path = stack(&setting, "stack.tif", &labels);
    let found = run(0, &["predict", &out, &path, "--pages", "--csv", "--top", "1"]).succeeded().stdout;
    let pages = labels.iter().zip(1..).filter_map(|(label, page)| Some((format!("{path}#{page}"), (*label)?)));
    let expected: Vec<(String, u32)> = pages.collect();
    let lines: Vec<&str> = found.lines().skip(1).collect();
    assert_eq!(lines.len(), expected.len(), "{found}");
    for (line, (name, label)) in lines.iter().zip(&expected) {
        assert!(line.starts_with(&format!("{name},1,{label},")), "{line}, expected {name} and class {label}");
    }
    let table = |ranks: usize, to: &str| {
        let to = setting.folder.at(to);
        run(ranks, &["predict", &out, &path, "--pages", "--out", &to, "--batch", "3"]).succeeded();
        std::fs::read_to_string(to).unwrap()
    };
    let one = table(1, "one.csv");
    assert_eq!((one.lines().count(), table(2, "two.csv")), (9, one));
    // without the option, the first page is the image
    let first = run(0, &["predict", &out, &path, "--csv", "--top", "1"]).succeeded().stdout;
    assert!(first.lines().count() == 2 && first.contains("stack.tif,1,0,"), "{first}");
    assert_import_keeps_predictions(&setting, &out, &path, &["--pages"]);
    let stacked = setting.described("all", |manifest| {
        manifest.bands.reading = Some(Reading { page: "all".into(), ..Reading::default() });
    });
    let other = setting.trained("other", 0, &["--data", &stacked, "--max-steps", "1"]);
    run(0, &["predict", &other, &path, "--pages"]).failed(2, &["--pages", "TIFFs with all pages as one image"]);
}

#[test]
fn bands_of_the_report_are_checked() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [60, 20], band_nine));
    let train = |out: &str, bands: &str| {
        let bands = format!("log.bands={bands}");
        setting.train(out, 0, &["--set", &bands, "--set", "epochs=1"])
    };
    train("beyond", "[4, 3, 14]").failed(2, &["log.bands", "band 14", "13 bands"]);
    train("two", "[4, 3]").failed(2, &["log.bands", "2 bands to show", "expected three"]);
    train("zero", "[0]").failed(2, &["log.bands", "0 is not the number of a band"]);
    let augmented = |out: &str, bands: &str| {
        train(out, bands).succeeded();
        evaluation_file(&setting.out(out))["augmented"].to_string()
    };
    let [first, other, same] =
        [("first", "[1, 2, 3]"), ("other", "[10]"), ("same", "[1, 2, 3]")].map(|(out, bands)| augmented(out, bands));
    assert!(first.contains("base64") && first != other && first == same, "{first}");
}

/// The data set was converted with `--bands 10,1`. Only band 10 shows the class.
#[test]
fn predict_selects_the_bands_that_the_conversion_selected() {
    let tenth = |at: At, draws: &mut Draws| band_nine(At { band: [9, 0][at.band as usize], ..at }, draws);
    let spec = ImageSpec::new(28, 28, 2);
    let setting = Setting::with(RECIPE, |dir| images(dir, (spec, Dtype::U16), [400, 20], tenth));
    let reading = Reading { bands: vec![10, 1], layout: "NHWC".into(), ..Reading::default() };
    let read = setting.described("read", |manifest| manifest.bands.reading = Some(reading));
    let out = setting.trained("out", 0, &["--data", &read]);
    for (label, expected) in [(0, "left"), (1, "right")] {
        let path = array(&setting, &format!("{label}.npy"), label, 13);
        let found = run(0, &["predict", &out, &path, "--json", "--top", "1"]).succeeded().stdout;
        assert!(found.contains(expected), "{found}");
    }
    let few = array(&setting, "few.npy", 0, 2);
    run(0, &["predict", &out, &few]).failed(1, &["few.npy", "band 10", "2 bands"]);
    let sheet = setting.folder.at("sheet.png");
    let refused = run(0, &["predict", &out, &few, "--csv", "--sheet", &sheet]);
    let refused = refused.failed(2, &["--sheet", "PNG", "few.npy"]);
    assert!(refused.stdout.is_empty() && !std::path::Path::new(&sheet).exists(), "{}", refused.stdout);
}

/// With a nodata value, bytes are also read from array files. Pixels without data get the mean of their band.
#[test]
fn bytes_without_data_are_predicted_as_the_mean() {
    let value = |at: At, draws: &mut Draws| f64::from(1 + draws.below(100)) + if shows(at) { 100.0 } else { 0.0 };
    let setting = Setting::with(RECIPE, |dir| images(dir, (ImageSpec::new(28, 28, 3), Dtype::U8), [60, 20], value));
    let masked = setting.described("masked", |manifest| manifest.bands.nodata = Some(0.0));
    let out = setting.trained("out", 0, &["--data", &masked, "--max-steps", "1"]);
    let means = &setting.images.manifest.mean;
    let predicted = |without: [u8; 3]| {
        let pixel = |at: usize| if at < 300 { without } else { [1 + (at % 250) as u8; 3] };
        let values: Vec<u8> = (0..28 * 28).flat_map(pixel).collect();
        let path = npy(&setting, "bytes.npy", ("|u1", 3), &values);
        run(0, &["predict", &out, &path, "--csv"]).succeeded().stdout
    };
    let found = predicted([0; 3]);
    assert!(found.lines().count() == 3, "{found}");
    assert_eq!(found, predicted([0, 1, 2].map(|band| (means[band] * 255.0).round() as u8)));
}

/// The conversion maps 0 to 4095 to bytes. `predict` would map the full range, so it refuses files with 16 bits.
#[test]
fn files_with_more_bits_than_the_data_set_are_refused() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (ImageSpec::new(28, 28, 1), Dtype::U8), [20, 20], band_nine));
    let xrays = setting.folder.path().join("xrays");
    let file = |split: &str, class: &str, id: u16| xrays.join(format!("{split}/{class}/{id}.png"));
    for (split, class) in [("train", "a"), ("train", "b"), ("test", "a"), ("test", "b")] {
        for id in 0..6 {
            let pixel = |x: u32, y: u32| image::Luma([id * 300 + (x * y) as u16]);
            let path = file(split, class, id);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            image::ImageBuffer::<image::Luma<u16>, Vec<u16>>::from_fn(28, 28, pixel).save(path).unwrap();
        }
    }
    let (data, folder) = (setting.folder.at("converted"), xrays.display().to_string());
    run(0, &["data", "convert", "folder", &folder, &data, "--to-8bit=0,4095"]).succeeded();
    let out = setting.trained("out", 0, &["--data", &data, "--set", "batch=6", "--max-steps", "1"]);
    assert_eq!(model(&out).bands.to_8bit, Some([0.0, 4095.0]));
    let wide = file("test", "a", 5).display().to_string();
    run(0, &["predict", &out, &wide]).failed(1, &["5.png", "--to-8bit=0,4095", "16-bit"]);
    let bytes = setting.folder.at("bytes.png");
    image::GrayImage::from_pixel(28, 28, image::Luma([90])).save(&bytes).unwrap();
    run(0, &["predict", &out, &bytes]).succeeded();
    run(0, &["predict", &out, &data, "--out", &setting.folder.at("table.csv")]).succeeded();
    // without --to-8bit the images have a band, whose name may follow a space
    let named = setting.folder.at("named");
    run(0, &["data", "convert", "folder", &folder, &named, "--band-names", " dose"]).succeeded();
    let manifest = std::fs::read_to_string(format!("{named}/dataset.json")).unwrap();
    assert!(manifest.contains("\"dose\""), "{manifest}");
}

#[test]
fn views_follow_the_selected_bands() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [60, 20], band_nine));
    let list = r#"["select_bands(B10, B2)", "resize(28x28)", "normalize"]"#;
    let [train, eval] = ["train", "eval"].map(|key| format!("augment.{key}={list}"));
    let out = setting.trained("out", 0, &["--set", &train, "--set", &eval, "--max-steps", "1"]);
    run(0, &["eval", &out, "--data", &setting.data, "--threads", "1", "--flip"]).succeeded();
}

/// A teacher scores the images of the student, so it must be trained on the same value type and the same bands.
#[test]
fn teachers_of_other_bands_are_refused() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [60, 20], band_nine));
    let lists =
        |bands: &str| ["train", "eval"].map(|key| format!(r#"augment.{key}=["select_bands({bands})", "normalize"]"#));
    let [train, eval] = lists("4, 3, 2");
    let teacher = setting.trained("teacher", 0, &["--set", &train, "--set", &eval, "--max-steps", "1"]);
    let teacher = format!("distill.teacher={teacher}");
    let student = |out: &str, bands: &str| {
        let [train, eval] = lists(bands);
        setting.train(out, 0, &["--set", &train, "--set", &eval, "--set", &teacher, "--max-steps", "1"])
    };
    student("other", "4, 3, 1").failed(2, &["distill.teacher", "\"B4\", \"B3\", \"B2\"", "\"B4\", \"B3\", \"B1\""]);
    student("same", "B4, B3, B2").succeeded();
}

/// Predicts an array file of an image, and exports the model with its preprocessing.
#[test]
fn files_of_bands_are_classified_and_models_exported() {
    let setting = Setting::with(RECIPE, |dir| images(dir, (MULTISPECTRAL, Dtype::U16), [200, 20], band_nine));
    let reading = Reading { layout: "NHWC".into(), ..Reading::default() };
    let read = setting.described("read", |manifest| manifest.bands.reading = Some(reading));
    let out = setting.trained("out", 0, &["--data", &read, "--set", "epochs=2"]);
    for label in [0, 1] {
        let path = array(&setting, &format!("{label}.npy"), label, 13);
        let found = run(0, &["predict", &out, &path, "--json"]).succeeded().stdout;
        let expected = if label == 0 { "left" } else { "right" };
        let other = if label == 0 { "right" } else { "left" };
        let [expected, other] =
            [expected, other].map(|name| found.find(name).unwrap_or_else(|| panic!("{name}: {found}")));
        assert!(expected < other, "{found}");
    }
    let onnx = setting.folder.at("model.onnx");
    let exported = run(0, &["export", &out, "--to", "onnx", "--preprocess", "-o", &onnx]).succeeded();
    assert!(exported.stderr.contains("uint16 (N, 28, 28, 13), stored values"), "{}", exported.stderr);
    let bytes = std::fs::read(&onnx).unwrap();
    assert!(bytes.windows(17).any(|part| part == b"\"dtype\":\"uint16\","), "the metadata tell the type");
}

/// As in data sets, grey images of bytes are read as RGB.
#[test]
fn grey_files_of_bytes_are_classified_by_models_of_rgb_images() {
    let value = |_: At, draws: &mut Draws| f64::from(draws.below(256));
    let setting = Setting::with(RECIPE, |dir| images(dir, (ImageSpec::new(28, 28, 3), Dtype::U8), [60, 20], value));
    let reading = Reading { layout: "NHWC".into(), ..Reading::default() };
    let read = setting.described("read", |manifest| manifest.bands.reading = Some(reading));
    let out = setting.trained("out", 0, &["--data", &read, "--max-steps", "1"]);
    let grey: Vec<u8> = (0..28 * 28).map(|pixel| (pixel % 251) as u8).collect();
    let rgb: Vec<u8> = grey.iter().flat_map(|value| [*value; 3]).collect();
    let [grey, rgb] = [("grey.npy", 1, grey), ("rgb.npy", 3, rgb)].map(|(name, bands, values)| {
        let path = npy(&setting, name, ("|u1", bands), &values);
        run(0, &["predict", &out, &path, "--json"]).succeeded().json_lines()[0]["classes"].clone()
    });
    assert_eq!(grey, rgb);
    // a single band of 16 bits is not grey
    let path = npy(&setting, "wide.npy", ("<u2", 1), &[0; 2 * 28 * 28]);
    run(0, &["predict", &out, &path]).failed(1, &["wide.npy", "3 bands of uint8", "1 of uint16"]);
}

/// Starts training on 13 bands from the weights of a model for three bands.
#[test]
fn the_first_layer_of_other_weights_is_spread_over_the_bands() {
    let value = |at: At, draws: &mut Draws| band_nine(At { band: 9, ..at }, draws);
    let setting = Setting::with(RECIPE, |dir| images(dir, (ImageSpec::new(28, 28, 3), Dtype::U16), [60, 20], value));
    let source = setting.trained("source", 0, &["--max-steps", "1"]);
    let bands = setting.folder.path().join("bands");
    images(&bands, (MULTISPECTRAL, Dtype::U16), [60, 20], value);
    let (data, from) = (bands.display().to_string(), format!("init.from={source}"));
    let args = ["--data", &data, "--set", &from, "--set", "schedule.base_lr=1e-30", "--max-steps", "1"];
    setting.train("refused", 0, &args).failed(2, &["images with 3 channels", "have 13", "init.stem = \"repeat\""]);
    let started = setting.train("started", 0, &[&args[..], &["--set", "init.stem=repeat"]].concat()).succeeded();
    assert!(["13 instead of 3 ", "3/13"].iter().all(|part| started.stderr.contains(part)), "{}", started.stderr);
    let first = |out: &str| model(&setting.out(out)).layers[0].tensors[0].clone();
    let ((_, shape, spread), (_, _, own)) = (first("started"), first("source"));
    let plane = shape[2] * shape[3];
    assert_eq!(shape[1], 13);
    for (at, value) in spread.iter().enumerate() {
        let (filter, channel, pixel) = (at / (13 * plane), at / plane % 13, at % plane);
        let expected = own[(filter * 3 + channel % 3) * plane + pixel] * (3.0 / 13.0);
        assert!((value - expected).abs() <= 1e-6 * expected.abs(), "{at}");
    }
    setting.train("fresh", 0, &[&args[..], &["--set", "init.stem=fresh"]].concat()).succeeded();
    let (_, shape, fresh) = first("fresh");
    assert!(shape[1] == 13 && fresh.iter().zip(&spread).any(|(a, b)| (a - b).abs() > 0.01), "the filters are random");
    // The mean and deviation of the foreign model do not fit these bands, so plain `normalize` is accepted.
    let foreign = setting.folder.at("foreign.safetensors");
    run(0, &["export", &source, "--to", "safetensors", "-o", &foreign]).succeeded();
    let from = format!("init.from={foreign}");
    let args = ["--data", &data, "--set", &from, "--set", "init.stem=repeat", "--max-steps", "1"];
    setting.train("foreign", 0, &args).succeeded();
}
