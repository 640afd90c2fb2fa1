//! Tests small sources that unpack to gigabytes. They must be rejected without exceeding the memory limit, and the
//! message must name the option that raises it.

use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, convert};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use loaders::Limits;
use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use support::mentions;

/// The environment variable that is set in the child process of a test.
const CHILD: &str = "TRIREME_TEST_CHILD";
/// Used instead of an option name: the source is converted, and the part that is too large is ignored.
const HARMLESS: &str = "harmless";
/// Address space of the child in addition to the memory limit of its source: for the program, stacks and reserves of
/// the allocator.
const BESIDE: u64 = 256 << 20;

/// Runs the test `name` again in a child process. Its address space is limited to the memory limit for a source of the
/// size of `dir`, plus [`BESIDE`].
fn in_little_memory(name: &str, dir: &Path) {
    let input: u64 = files_below(dir);
    let kib = (Limits::DEFAULT.allowed(input) + BESIDE) >> 10;
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(CHILD, dir)
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn files_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { fs::metadata(path).unwrap().len() }).sum()
}

/// Makes a source and converts it in a child process. The message must contain `flag`.
#[track_caller]
fn bomb(name: &str, kind: &str, flag: &str, make: impl FnOnce(&Path)) {
    if let Some(dir) = env::var_os(CHILD) {
        let options = ConvertOptions { jobs: 1, progress: false, ..ConvertOptions::default() };
        let dir = Path::new(&dir);
        let src = if kind == "cifar10" { dir.join("cifar.tar.gz") } else { dir.to_path_buf() };
        match (convert(kind, &src, &dir.with_extension("out"), &options), flag) {
            (Ok(_), HARMLESS) => {}
            (Err(error), flag) if error.to_string().contains(flag) => {}
            (done, _) => panic!("{done:?}; expected {flag}"),
        }
        return;
    }
    let temp = Temp::new();
    let dir = temp.path("src");
    fs::create_dir_all(&dir).unwrap();
    make(&dir);
    assert!(files_below(&dir) < 8 << 20, "the source is small");
    in_little_memory(name, &dir);
}

/// Returns a gzip stream of `head` followed by `mib` MiB of zeros. The same gzip member is repeated.
fn gzip_of_zeros(head: &[u8], mib: usize) -> Vec<u8> {
    let zeros = gz(&vec![0; 16 << 20]);
    [gz(head), zeros.repeat(mib / 16)].concat()
}

#[test]
fn a_pair_of_idx_files() {
    bomb("hostile::a_pair_of_idx_files", "mnist", "--limit-memory", |dir| {
        mnist(dir, false, false);
        let count = 752u32 << 20;
        let header = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        fs::write(dir.join("train-labels-idx1-ubyte"), gzip_of_zeros(&header(&[0x801, count]), 752)).unwrap();
        fs::write(dir.join("train-images-idx3-ubyte"), gzip_of_zeros(&header(&[0x803, count, 1, 1]), 752)).unwrap();
    });
}

#[test]
fn a_tar_archive() {
    bomb("hostile::a_tar_archive", "cifar10", "--limit-memory", |dir| {
        let mut header = tar::Header::new_gnu();
        header.set_path("cifar-10-batches-bin/data_batch_1.bin").unwrap();
        header.set_size(752 << 20);
        header.set_cksum();
        fs::write(dir.join("cifar.tar.gz"), gzip_of_zeros(header.as_bytes(), 752)).unwrap();
    });
}

/// A member that is not needed uses no memory, but reading it takes time, so it is limited as well.
#[test]
fn a_tar_archive_of_other_things() {
    bomb("hostile::a_tar_archive_of_other_things", "cifar10", "--limit-memory", |dir| {
        let mut header = tar::Header::new_gnu();
        header.set_path("other").unwrap();
        header.set_size(752 << 20);
        header.set_cksum();
        fs::write(dir.join("cifar.tar.gz"), gzip_of_zeros(header.as_bytes(), 752)).unwrap();
    });
}

/// Writes an ImageNet source with this `meta.mat`.
fn imagenet(dir: &Path, meta: &[u8]) {
    write(&dir.join("train/n00000001/a.jpg"), &jpeg(20, 20, 1));
    let kit = dir.join("ILSVRC2012_devkit_t12/data");
    write(&kit.join("meta.mat"), meta);
    write(&kit.join("ILSVRC2012_validation_ground_truth.txt"), b"1\n");
}

/// Returns a struct array that claims 2^62 records, with these field names of 8 bytes and these elements.
fn structs(names: &[u8], body: &[u8]) -> Vec<u8> {
    let fields = [element(5, &8u32.to_le_bytes()), element(1, names), body.to_vec()].concat();
    matrix(2, [u32::MAX / 2; 2], "synsets", &fields)
}

#[test]
fn a_table_of_no_fields_without_end() {
    bomb("hostile::a_table_of_no_fields_without_end", "imagenet", "no names", |dir| {
        imagenet(dir, &mat_file(&structs(b"", b"")));
    });
}

#[test]
fn a_packed_table() {
    bomb("hostile::a_packed_table", "imagenet", "--limit-memory", |dir| {
        // The array has 10 million records of 8 bytes.
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&structs(b"ILSVRC20", &[14, 0, 0, 0, 0, 0, 0, 0].repeat(10 << 20))).unwrap();
        let packed = packer.finish().unwrap();
        imagenet(dir, &mat_file(&packed_element(&packed)));
    });
}

/// The ground truth has 300 million lines. Each line would become a string.
#[test]
fn a_ground_truth_of_many_lines() {
    bomb("hostile::a_ground_truth_of_many_lines", "imagenet", "--limit-memory", |dir| {
        imagenet(dir, &meta_mat(&[(1.0, "n00000001", "a", 0.0)], true));
        let truth = dir.join("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt");
        fs::remove_dir_all(truth.parent().unwrap().parent().unwrap()).unwrap();
        let files = [("meta.mat".to_string(), meta_mat(&[(1.0, "n00000001", "a", 0.0)], true))];
        let mut archive = tar("data", &files);
        archive.truncate(archive.len() - 1024);
        let mut header = tar::Header::new_gnu();
        header.set_path("data/ILSVRC2012_validation_ground_truth.txt").unwrap();
        header.set_size(256 << 20);
        header.set_cksum();
        let lines = gz(&b"1\n".repeat(8 << 20));
        let packed = [gz(&archive), gz(header.as_bytes()), lines.repeat(16), gz(&[0; 1024])].concat();
        fs::write(dir.join("ILSVRC2012_devkit_t12.tar.gz"), packed).unwrap();
    });
}

/// The PNG has a colour profile that unpacks to 700 MiB. It is not needed and must not be read.
#[test]
fn a_png_with_a_large_profile() {
    bomb("hostile::a_png_with_a_large_profile", "folder", HARMLESS, |dir| {
        let file = png(20, 20, 1);
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        (0..700).for_each(|_| packer.write_all(&zeros).unwrap());
        let body = [b"iCCPx\0\0".as_slice(), &packer.finish().unwrap()].concat();
        let chunk = [&(body.len() as u32 - 4).to_be_bytes(), &body[..], &crc32(&body).to_be_bytes()].concat();
        // The chunk follows the PNG header.
        write(&dir.join("a/x.png"), &[&file[..33], &chunk, &file[33..]].concat());
    });
}

#[test]
fn a_jpeg_of_many_coefficients() {
    bomb("hostile::a_jpeg_of_many_coefficients", "folder", "--limit-memory", |dir| {
        write(&dir.join("a/x.jpg"), &progressive(10_000));
    });
}

#[test]
fn a_jpeg_of_many_scans() {
    bomb("hostile::a_jpeg_of_many_scans", "folder", "--limit-seconds", |dir| {
        let file = progressive(7000);
        let last = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let (body, scan) = file[..file.len() - 2].split_at(last);
        write(&dir.join("a/x.jpg"), &[body, &scan.repeat(480), &[0xff, 0xd9]].concat());
    });
}

/// Returns a progressive JPEG with a header that claims this length for both sides.
fn progressive(side: u16) -> Vec<u8> {
    let mut encoder = turbojpeg::Compressor::new().unwrap();
    encoder.set_progressive(true).unwrap();
    encoder.set_subsamp(turbojpeg::Subsamp::None).unwrap();
    let format = turbojpeg::PixelFormat::RGB;
    let pixels = [128u8; 16 * 16 * 3];
    let image = turbojpeg::Image { pixels: &pixels[..], width: 16, pitch: 48, height: 16, format };
    let mut file = encoder.compress_to_vec(image).unwrap();
    let frame = file.windows(2).position(|pair| pair == [0xff, 0xc2]).unwrap();
    file[frame + 5..frame + 9].copy_from_slice(&[side.to_be_bytes(); 2].concat());
    file
}

/// Raised limits apply: a source beyond the default limits is converted, but an image that training could not decode is
/// rejected.
#[test]
fn raised_limits_apply() {
    let temp = Temp::new();
    write(&temp.path("src/a/x.png"), &png(300, 300, 1));
    let with = |limits: Limits, resize: Option<u32>| {
        let options = ConvertOptions { limits, resize, progress: false, ..ConvertOptions::default() };
        let made = convert("folder", &temp.path("src"), &temp.path("out"), &options);
        let _ = fs::remove_dir_all(temp.path("out"));
        made.map(drop).map_err(|error| error.to_string())
    };
    let little = with(Limits::with_memory(100_000), None).unwrap_err();
    mentions(little, &["1 to 33333 pixels", "--limit-memory"]);
    assert_eq!(with(Limits::with_memory(300_000), None), Ok(()));
    write(&temp.path("src/a/x.jpg"), &progressive(10_000));
    // This image needs 900 MB. That is within the limit, but more than training allows, so it cannot be stored
    // unchanged.
    let kept = with(Limits::with_memory(2 << 30), None).unwrap_err();
    mentions(kept, &["JPEG", "900.0 MB", "--resize"]);
}
