//! Fuzzes tar archives that are read in place.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 1 << 20, || data_tools::fuzzing::tar_index(data)));
