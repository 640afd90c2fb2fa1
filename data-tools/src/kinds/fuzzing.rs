//! Entry points of the fuzz targets that read sources.

use super::reader::input::Budget;
use super::reader::{archive as archives, arrays, devkit as tables, recordio as records};
use crate::options::ConvertOptions;
use crate::source::Sample;
use loaders::Limits;
use std::env::temp_dir;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process;

/// Memory limit for reading a source, in addition to four times its size.
const MEMORY: u64 = 32 << 20;

/// Writes the bytes to a file in the folder for temporary files, which the fuzzing script puts on a RAM disk.
fn file(bytes: &[u8]) -> Option<PathBuf> {
    let path = temp_dir().join(format!("trireme-fuzz-{}", process::id()));
    fs::write(&path, bytes).ok()?;
    Some(path)
}

/// Reads the bytes as an IDX file with images and as one with labels, plain or gzip-compressed.
pub fn idx(bytes: &[u8]) {
    let Some(path) = file(bytes) else { return };
    let budget = || Budget::new(Limits::with_memory(MEMORY));
    if let Ok(images) = arrays::read_images(&path, &mut budget()) {
        assert_eq!(images.pixels.len(), images.count * u64::from(images.height) * u64::from(images.width));
    }
    if let Ok(labels) = arrays::read_labels(&path, 10, &mut budget()) {
        assert!(labels.iter().all(|&label| label < 10));
    }
}

/// Reads the table of a MATLAB file.
pub fn matlab(bytes: &[u8]) {
    drop(tables::read_structs(bytes, "synsets", MEMORY));
}

/// Lists a tar archive. All members must be within the file.
pub fn tar_index(bytes: &[u8]) {
    let Some(path) = file(bytes) else { return };
    let Ok(opened) = File::open(&path) else { return };
    let length = bytes.len() as u64;
    if let Ok(members) = archives::list(&opened, &path, 0..length) {
        assert!(members.iter().all(|member| member.range.start <= member.range.end && member.range.end <= length));
    }
}

/// Lists a RecordIO file, and joins its parts to one image. All records must be within the file.
pub fn recordio(bytes: &[u8]) {
    let Some(path) = file(bytes) else { return };
    if let Ok(found) = records::list(&path, &Limits::with_memory(MEMORY)) {
        let length = bytes.len() as u64;
        assert!(found.iter().all(|record| record.range.start <= record.range.end && record.range.end <= length));
    }
    let mut parts = bytes.to_vec();
    if records::image_of_parts(&mut parts).is_ok() {
        assert!(parts.len() <= bytes.len());
    }
}

/// Opens a file as this source kind and reads up to 1000 samples of each split.
pub fn source(kind: &str, bytes: &[u8]) {
    let Some(path) = file(bytes) else { return };
    let options = ConvertOptions { jobs: 1, limits: Limits::with_memory(MEMORY), ..ConvertOptions::default() };
    let Ok(Some(source)) = super::open(kind, &path, &options) else { return };
    let classes = source.classes().len() as u32;
    let mut sample = Sample::default();
    for (number, split) in source.splits().iter().enumerate() {
        for index in 0..split.len.min(1000) {
            if source.sample(number, index, &mut sample).is_ok() {
                assert!(sample.label < classes, "label {} of {classes} classes", sample.label);
            }
        }
    }
}

/// Reads the arrays of a `.npz` file.
pub fn npz(bytes: &[u8]) {
    let Some(path) = file(bytes) else { return };
    let budget = &mut Budget::new(Limits::with_memory(MEMORY));
    for array in arrays::read_archive(&path, budget, |_| true).into_iter().flat_map(|(arrays, _)| arrays) {
        drop(array.whole_numbers(&path));
    }
}
