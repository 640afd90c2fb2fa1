//! IDX files of MNIST, plain or gzip.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_tools::fuzzing::idx(data));
