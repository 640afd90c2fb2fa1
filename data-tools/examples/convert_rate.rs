//! Compares a conversion with a plain loop on the same number of threads. The loop reads the same bytes, decodes each
//! picture the same number of times, and writes and syncs the same number of files and bytes. It does not shuffle and
//! writes no records or checksums.
//!
//! `cargo run --release -p data-tools --example convert_rate -- KIND SRC SCRATCH [JOBS [ROUNDS]]`
//!
//! KIND is a kind of `trireme data convert`. SCRATCH is a folder that the program creates and removes. The program
//! prints one JSON line with the seconds of both, measured in alternation, the ratio of the medians, and the share of
//! the threads' time that the conversion spent reading, decoding and writing.

use data_tools::{ConvertOptions, ConvertSummary, convert};
use flate2::read::MultiGzDecoder;
use loaders::decode::Decoder;
use loaders::{Limits, example, record};
use parquet::column::reader::ColumnReader;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, error, thread};

type Result<T> = std::result::Result<T, Box<dyn error::Error + Send + Sync>>;

/// Number of pixel bytes that are read and written at a time.
const BLOCK: u64 = 1 << 18;
const PAGE: usize = 1 << 12;
/// The loop decodes one in this many files at full size and the others at 1/8. A conversion of 8,000 photos measures the
/// mean on about as many files at full size.
const WHOLE: usize = 31;

/// A part of the source that one thread reads.
enum Part {
    /// A range of a file that contains pixels: offset and length.
    Pixels(PathBuf, u64, u64),
    Unpacked(Vec<u8>),
    Picture(PathBuf),
    /// A picture inside a larger file: offset and length.
    Within(PathBuf, u64, u64),
    Tar(PathBuf),
    RowGroup(PathBuf, usize),
    /// A compressed file of records.
    Records(PathBuf),
}

impl Part {
    /// Returns the number of pixel bytes in this part that are written unchanged.
    fn pixels(&self) -> u64 {
        match self {
            Part::Pixels(_, _, length) => *length,
            Part::Unpacked(bytes) => bytes.len() as u64,
            _ => 0,
        }
    }
}

/// Returns the files below `path` in order.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut inside = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    inside.sort();
    Ok(inside.iter().map(|path| files(path)).collect::<Result<Vec<_>>>()?.concat())
}

/// Divides a source into parts for the threads. Data that only one thread can read, such as the content of a ZIP
/// archive, is read here.
fn parts(kind: &str, src: &Path) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    if kind == "csv" {
        let folder = src.parent().unwrap_or(Path::new(""));
        let lines = fs::read_to_string(src)?;
        let names = lines.lines().skip(1).filter_map(|line| line.split(',').next());
        return Ok(names.map(|name| Part::Picture(folder.join(name))).collect());
    }
    for path in files(src)? {
        match kind {
            "folder" => parts.push(Part::Picture(path)),
            "webdataset" => parts.push(Part::Tar(path)),
            "tfrecord" => parts.push(Part::Records(path)),
            "parquet" => {
                let groups = SerializedFileReader::new(File::open(&path)?)?.metadata().num_row_groups();
                parts.extend((0..groups).map(|group| Part::RowGroup(path.clone(), group)));
            }
            "recordio" => {
                let (file, mut at, mut head) = (File::open(&path)?, 0, [0; 8]);
                while file.read_at(&mut head, at)? == head.len() {
                    let length = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]) & 0x1fff_ffff);
                    // Skips the record header, the label and two ids.
                    parts.push(Part::Within(path.clone(), at + 32, length - 24));
                    at += 8 + length.next_multiple_of(4);
                }
            }
            "npz" => {
                let mut archive = zip::ZipArchive::new(BufReader::new(File::open(&path)?))?;
                for number in 0..archive.len() {
                    let mut member = archive.by_index(number)?;
                    let length = member.size();
                    for at in (0..length).step_by(BLOCK as usize) {
                        let mut block = vec![0; BLOCK.min(length - at) as usize];
                        member.read_exact(&mut block)?;
                        parts.push(Part::Unpacked(block));
                    }
                }
            }
            _ => {
                let length = fs::metadata(&path)?.len();
                let starts = (0..length).step_by(BLOCK as usize);
                parts.extend(starts.map(|at| Part::Pixels(path.clone(), at, BLOCK.min(length - at))));
            }
        }
    }
    Ok(parts)
}

/// Writes a series of equally large files.
struct Output<'a> {
    scratch: &'a Path,
    number: &'a AtomicUsize,
    /// Size of each file in bytes.
    size: u64,
    file: Option<(File, u64)>,
}

impl Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let (file, written) = match &mut self.file {
            Some(open) => open,
            none => {
                let name = format!("loop-{}", self.number.fetch_add(1, Ordering::Relaxed));
                none.insert((File::create(self.scratch.join(name))?, 0))
            }
        };
        file.write_all(bytes)?;
        *written += bytes.len() as u64;
        if *written >= self.size { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<()> {
        self.file.take().map_or(Ok(()), |(file, _)| Ok(file.sync_all()?))
    }
}

/// The decoder and buffers of one thread.
struct Worker<'a> {
    decoder: Decoder,
    pixels: Vec<u8>,
    buffer: Vec<u8>,
    seen: usize,
    output: Output<'a>,
    /// Number of bytes that a conversion writes for names, labels and checksums per byte of pixels.
    extra: f64,
}

impl Worker<'_> {
    /// Writes pixels together with as many extra bytes as a conversion writes for names, labels and checksums. Rounds
    /// up to whole pages, which is fastest.
    fn pixels(&mut self, pixels: &mut Vec<u8>) -> Result<()> {
        let bytes = (pixels.len() as f64 * (1.0 + self.extra)) as usize;
        pixels.resize(bytes.next_multiple_of(PAGE), 0);
        self.output.write(pixels)
    }

    /// Decodes a picture and writes its file.
    fn picture(&mut self, file: &[u8]) -> Result<()> {
        for reduction in if self.seen.is_multiple_of(WHOLE) { &[8, 1][..] } else { &[8] } {
            let stored = self.decoder.open_file(file)?;
            let channels = if *reduction == 8 && stored.planes().is_some() { 1 } else { 3 };
            self.decoder.reduced(stored, file, *reduction, channels, &mut self.pixels)?;
        }
        self.seen += 1;
        self.output.write(file)
    }

    fn part(&mut self, part: &Part) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        match part {
            Part::Unpacked(bytes) => {
                buffer.clear();
                buffer.extend(bytes);
                self.pixels(&mut buffer)?;
            }
            Part::Pixels(path, at, length) | Part::Within(path, at, length) => {
                buffer.resize(*length as usize, 0);
                File::open(path)?.read_exact_at(&mut buffer, *at)?;
                match part {
                    Part::Pixels(..) => self.pixels(&mut buffer)?,
                    _ => self.picture(&buffer)?,
                }
            }
            Part::Picture(path) => {
                buffer.clear();
                File::open(path)?.read_to_end(&mut buffer)?;
                self.picture(&buffer)?;
            }
            Part::Tar(path) => {
                for member in tar::Archive::new(BufReader::new(File::open(path)?)).entries()? {
                    let mut member = member?;
                    buffer.clear();
                    member.read_to_end(&mut buffer)?;
                    if member.path()?.extension().is_some_and(|ending| ending == "jpg") {
                        self.picture(&buffer)?;
                    }
                }
            }
            Part::RowGroup(path, group) => {
                let file = SerializedFileReader::new(File::open(path)?)?;
                let (group, mut values) = (file.get_row_group(*group)?, Vec::new());
                let rows = group.metadata().num_rows() as usize;
                let ColumnReader::ByteArrayColumnReader(mut column) = group.get_column_reader(0)? else {
                    return Err("expected a column of bytes".into());
                };
                column.read_records(rows, Some(&mut Vec::new()), None, &mut values)?;
                values.iter().try_for_each(|value| self.picture(value.data()))?;
            }
            Part::Records(path) => {
                buffer.clear();
                MultiGzDecoder::new(BufReader::new(File::open(path)?)).read_to_end(&mut buffer)?;
                let mut at = 0;
                while at < buffer.len() as u64 {
                    let (payload, next) = record::read_record(&buffer, at)?;
                    let picture = example::parse(payload)?;
                    let stored = self.decoder.open_file(picture.encoded)?;
                    self.decoder.reduced(stored, picture.encoded, 1, 3, &mut self.pixels)?;
                    self.output.write(&buffer[at as usize..next as usize])?;
                    at = next;
                }
            }
        }
        self.buffer = buffer;
        Ok(())
    }
}

/// Reads and decodes a source and writes `bytes` bytes to about `files` files. Returns the seconds that this took.
fn bare(kind: &str, src: &Path, scratch: &Path, jobs: usize, (bytes, files): (u64, u64)) -> Result<f64> {
    fs::create_dir_all(scratch)?;
    let started = Instant::now();
    let parts = parts(kind, src)?;
    let pixels: u64 = parts.iter().map(Part::pixels).sum();
    let extra = bytes.saturating_sub(pixels) as f64 / pixels.max(1) as f64;
    let (next, number) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || -> Result<()> {
        let output = Output { scratch, number: &number, size: bytes / files, file: None };
        let decoder = Decoder::new(Limits::DEFAULT);
        let mut worker = Worker { decoder, pixels: Vec::new(), buffer: Vec::new(), seen: 0, output, extra };
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            worker.part(part)?;
        }
        worker.output.finish()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    fs::remove_dir_all(scratch)?;
    Ok(seconds)
}

fn converted(kind: &str, src: &Path, scratch: &Path, jobs: usize) -> Result<ConvertSummary> {
    fs::create_dir_all(scratch)?;
    let options = ConvertOptions { jobs, progress: false, ..ConvertOptions::default() };
    let converted = convert(kind, src, &scratch.join("out"), &options)?;
    fs::remove_dir_all(scratch)?;
    Ok(converted)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [kind, src, scratch, numbers @ ..] = args.as_slice() else {
        return Err("expected KIND SRC SCRATCH [JOBS [ROUNDS]]".into());
    };
    let (src, scratch) = (Path::new(src), Path::new(scratch));
    let number = |at: usize, usual: usize| numbers.get(at).map_or(Ok(usual), |text| text.parse());
    let (jobs, rounds) = (number(0, 2)?, number(1, 3)?);
    let (mut bares, mut conversions, mut shares, mut threads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let done = converted(kind, src, scratch, jobs)?;
        let files: usize = done.manifest.splits.values().map(|split| split.shards.len()).sum();
        bares.push(bare(kind, src, scratch, jobs, (done.bytes, files as u64))?);
        let seconds = done.elapsed.as_secs_f64();
        let spent = done.spent.reading + done.spent.decoding + done.spent.writing;
        conversions.push(seconds);
        shares.push(spent.as_secs_f64() / jobs as f64 / seconds);
        threads.push(done.to_json()["thread_seconds"].clone());
    }
    let line = serde_json::json!({
        "kind": kind, "jobs": jobs, "loop": bares, "conversion": conversions, "share": shares, "thread_seconds": threads,
        "ratio": median(bares.clone()) / median(conversions.clone()), "share_median": median(shares.clone()),
    });
    println!("{line}");
    Ok(())
}
