//! Writes a data set's training batches to stdout exactly as a network receives them, so that another program can train on them.
//!
//!     cargo run --release -p loaders --example batches -- DIR SEED BATCH STEPS MIXUP [TRANSFORM...]
//!
//! Each batch contains these fields. All numbers are little-endian.
//! - n, the number of images, as `u32`
//! - the mixup weight w of each image's own pixels and label, as `f32`: the other image has weight 1 - w, and w = 1 without mixup
//! - the pixels, as `f32` (n, channels, height, width)
//! - the labels, as `u32` (n)
//!
//! Image i is mixed with image n - 1 - i. The pixels are already mixed, and the labels are not. There is a single logical worker, as in a
//! recipe with `workers = 1`.

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use loaders::{Dataset, Loader, MixSettings, Options, Pipeline, TrainOrder};

const USAGE: &str = "expected DIR SEED BATCH STEPS MIXUP [TRANSFORM...]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, seed, batch, steps, mixup, transforms @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let (seed, batch, steps) = (seed.parse()?, batch.parse()?, steps.parse::<u64>()?);
    let mixup: f64 = mixup.parse()?;
    let dataset = Dataset::open(Path::new(dir))?;
    let split = Arc::new(dataset.split("train")?);
    let mut pipeline = Pipeline::new(transforms, split.images()?, &dataset.manifest, seed)?;
    if mixup > 0.0 {
        pipeline = pipeline.mixed(MixSettings { mixup, cutmix: 0.0, switch: 0.5, prob: 1.0 });
    }
    let order = TrainOrder::new(seed, split.len(), batch, 1, 0..1, (0, 0), u32::MAX);
    let mut loader = Loader::start(split, pipeline, Box::new(order), Options::default())?;
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for _ in 0..steps {
        let Some(batch) = loader.next()? else { break };
        out.write_all(&u32::try_from(batch.len())?.to_le_bytes())?;
        out.write_all(&batch.mix().map_or(1.0, |mix| mix.share).to_le_bytes())?;
        for value in batch.images() {
            out.write_all(&value.to_le_bytes())?;
        }
        for label in batch.labels() {
            out.write_all(&label.to_le_bytes())?;
        }
    }
    Ok(out.flush()?)
}
