//! Measures how many images per second the loader delivers, and prints the result as one line of JSON.
//!
//!     cargo run --release -p loaders --example loader_rate -- [DIR [SPLIT [THREADS [TRANSFORM...]]]]
//!
//! Without DIR (or with `-`), it creates a data set like CIFAR-10 in the temporary directory: 50,000 RAW images of
//! 32x32x3 noise. With `-mnist`, it creates 60,000 images of 28x28x1, with `-bands` 5,000 images of 64x64x13 in uint16, and with `-floats`
//! 5,000 images of 128x128x1 in float32. The data set is removed afterwards.

use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use loaders::example::{self, Example};
use loaders::record::RecordWriter;
use loaders::{
    Bands, Draws, Dtype, ImageSpec, LabelKind, Manifest, Options, ShardManifest, Shuffle, SplitManifest, bench, shard,
};

const BATCH: usize = 128;
const EPOCHS: u32 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().unwrap_or_else(|| "-".into());
    let split = arguments.next().unwrap_or_else(|| "train".into());
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let mut transforms: Vec<String> = arguments.collect();
    if transforms.is_empty() {
        transforms = ["pad_crop(4)", "flip", "normalize"].map(String::from).into();
    }
    let synthetic = match place.as_str() {
        "-" => Some((ImageSpec::new(32, 32, 3), Dtype::U8, 50_000)),
        "-mnist" => Some((ImageSpec::new(28, 28, 1), Dtype::U8, 60_000)),
        "-bands" => Some((ImageSpec::new(64, 64, 13), Dtype::U16, 5_000)),
        "-floats" => Some((ImageSpec::new(128, 128, 1), Dtype::F32, 5_000)),
        _ => None,
    };
    let dir = match synthetic {
        Some((spec, dtype, count)) => make(spec, dtype, count)?,
        None => PathBuf::from(&place),
    };
    let measured = measure(&dir, &split, &transforms, threads);
    if synthetic.is_some() {
        fs::remove_dir_all(&dir)?;
    }
    println!("{}", measured?);
    Ok(())
}

fn measure(
    dir: &Path,
    split: &str,
    transforms: &[String],
    threads: usize,
) -> Result<serde_json::Value, loaders::Error> {
    let request = bench::LoaderRequest {
        dir: dir.to_owned(),
        split: split.to_owned(),
        transforms: transforms.to_vec(),
        batch: BATCH,
        epochs: EPOCHS,
        shuffle: Shuffle::Full,
        options: Options { threads, ..Options::default() },
        stored: false,
    };
    let rate = bench::run(&request, || 0.0)?;
    let checksum_ns = bench::checksum_ns(dir, split)?;
    let image_ns = 1e9 / rate.img_per_s * threads.max(1) as f64;
    Ok(serde_json::json!({
        "bench": "loader",
        "transforms": transforms,
        "batch": BATCH,
        "threads": threads,
        "img_per_s": rate.img_per_s.round(),
        "img_per_s_first": rate.img_per_s_first.round(),
        "mb_per_s": (rate.bytes_per_s / 1e6).round(),
        "image_ns": image_ns.round(),
        "checksum_ns": checksum_ns.round(),
        "img_per_s_without_checksum": (1e9 / (image_ns - checksum_ns) * threads.max(1) as f64).round(),
    }))
}

/// Writes noise images to 4 shards.
fn make(spec: ImageSpec, dtype: Dtype, count: u64) -> Result<PathBuf, Box<dyn Error>> {
    const SHARDS: u64 = 4;
    let dir = std::env::temp_dir().join(format!("trireme-loader-rate-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let mut split = SplitManifest::default();
    let mut payload = Vec::new();
    let mut pixels = vec![0u8; spec.values() * dtype.bytes()];
    for number in 0..SHARDS {
        let file = format!("train-{number:05}-of-{SHARDS:05}.tfrecord");
        let path = dir.join(&file);
        let mut writer = RecordWriter::new(BufWriter::new(File::create(&path)?));
        let mut entries = Vec::new();
        for id in number * count / SHARDS..(number + 1) * count / SHARDS {
            let mut draws = Draws::new(1, id, 0, 0);
            match dtype {
                // Draw floats, because random bytes could be NaN.
                Dtype::F32 => {
                    pixels.as_chunks_mut().0.iter_mut().for_each(|value| *value = draws.unit().to_le_bytes());
                }
                _ => pixels.fill_with(|| draws.next_u32() as u8),
            }
            payload.clear();
            let example = Example {
                dtype,
                label: i64::from(draws.below(10)),
                text: "a class",
                filename: "data_batch_1.bin",
                ..Example::from_raw(&pixels, spec)
            };
            example::encode(&example, &mut payload);
            entries.push(writer.write(&payload)?);
        }
        writer.finish()?;
        shard::write_index(&path, &entries)?;
        let records = entries.len() as u64;
        split.count += records;
        split.shards.push(ShardManifest { file, count: records, bytes: fs::metadata(&path)?.len() });
    }
    let channels = spec.channels as usize;
    let bands = Bands { dtype, channels: Some(spec.channels), ..Bands::default() };
    Manifest {
        version: Manifest::version_for(LabelKind::OneClass, &bands),
        classes: (0..10).map(|class| format!("class {class}")).collect(),
        multi_label: false,
        targets: Vec::new(),
        label_offset: 0,
        bands,
        mean: vec![0.5; channels],
        std: vec![0.25; channels],
        splits: [("train".to_owned(), split)].into(),
    }
    .write(&dir)?;
    Ok(dir)
}
