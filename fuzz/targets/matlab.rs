//! MATLAB files of ImageNet's development kit.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_tools::fuzzing::matlab(data));
