//! Fuzzes raw images: TIFF, PNG with 16 bits, `.npy`.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Twice the limit, because the sanitizer moves a growing buffer and briefly keeps the old one.
const MEMORY: usize = 65 << 20;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), MEMORY, || data_tools::fuzzing::raw(data)));
