//! Measures the cost of decoding and encoding in images per second of CPU time on one thread. Decodes each JPEG of a
//! folder at full size and encodes it with the size and quality of `trireme data convert folder --resize PX`. The
//! images are resized before the timing starts.
//!
//! `cargo run --release -p data-tools --example codec_rate -- FOLDER PX`

use std::path::{Path, PathBuf};
use std::{env, error, fs};
use turbojpeg::{Compressor, Decompressor, Image, PixelFormat, Subsamp};

type Result<T> = std::result::Result<T, Box<dyn error::Error>>;

fn files(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [folder, short] = args.as_slice() else { return Err("expected FOLDER PX".into()) };
    let short: u32 = short.parse()?;
    let mut all = Vec::new();
    files(Path::new(folder), &mut all)?;
    let (mut decoder, mut encoder) = (Decompressor::new()?, Compressor::new()?);
    encoder.set_quality(90)?;
    encoder.set_subsamp(Subsamp::Sub2x2)?;
    let (mut pixels, mut out, mut spent) = (Vec::new(), Vec::new(), 0);
    for path in &all {
        let file = fs::read(path)?;
        let image = image::load_from_memory(&file)?;
        let factor = f64::from(short) / f64::from(image.width().min(image.height()));
        let side = |n: u32| (f64::from(n) * factor) as u32;
        let small = image.thumbnail_exact(side(image.width()), side(image.height())).into_rgb8();
        let (width, height) = (small.width() as usize, small.height() as usize);
        let small =
            Image { pixels: small.as_raw().as_slice(), width, pitch: 3 * width, height, format: PixelFormat::RGB };
        out.resize(encoder.buf_len(width, height)?, 0);
        let started = cpu()?;
        let header = decoder.read_header(&file)?;
        let (width, height) = (header.width, header.height);
        pixels.resize(3 * width * height, 0);
        let full = Image { pixels: pixels.as_mut_slice(), width, pitch: 3 * width, height, format: PixelFormat::RGB };
        decoder.decompress(&file, full)?;
        encoder.compress_to_slice(small, &mut out)?;
        spent += cpu()? - started;
    }
    println!("{} images, {:.1} images a second of one core", all.len(), all.len() as f64 * 1e9 / spent as f64);
    Ok(())
}
