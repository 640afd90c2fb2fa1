//! Fuzzes MXNet's RecordIO files, including split records.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 1 << 20, || data_tools::fuzzing::recordio(data)));
