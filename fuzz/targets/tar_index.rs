//! Tar archives that are read in place.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_tools::fuzzing::tar_index(data));
